//! SGLang: both engines are asked at once, and meet in a room that is nobody else's.

use std::collections::HashSet;
use std::time::Duration;

use kvasir_mock_engine::{ConnectorKind, End, Fault, Role};
use kvasir_suite::eventually;

use crate::site::{COMPLETIONS, Sketch, completion, is_whole, requests, streamed};

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_work_at_the_same_time_in_a_room_of_their_own() -> anyhow::Result<()> {
    let site = Sketch::of(ConnectorKind::Sglang, 1).build().await?;
    for number in 0..20 {
        let body = if number % 2 == 0 { completion(number, 80) } else { streamed(number, 5) };
        assert!(is_whole(site.answer(COMPLETIONS, body).await?.body()));
    }
    site.is_clean().await;
    let (prefills, decodes) = (site.exchanges(Role::Prefill), site.exchanges(Role::Decode));
    let mut rooms = HashSet::new();
    for prefill in &prefills {
        assert!(prefill.room.is_some_and(|room| rooms.insert(room)), "{:?} is used twice", prefill.room);
        let partner = decodes.iter().find(|decode| decode.room == prefill.room).expect("a partner");
        assert!(prefill.overlaps(partner) && prefill.prompt == partner.prompt);
    }
    assert_eq!((rooms.len(), decodes.len()), (20, 20));
    assert!(rooms.iter().any(|room| *room > u64::from(u32::MAX)), "63 bits, not a counter");
    for request in requests(&site.groups[0].decodes[0]) {
        let body: serde_json::Value = serde_json::from_slice(&request.body)?;
        assert_eq!(body["bootstrap_host"], site.groups[0].prefills[0].address().ip().to_string());
    }
    Ok(())
}

/// The answer is the decode engine's: what the other one says once it has begun does not spoil it.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_error_of_the_prefill_engine_does_not_spoil_the_answer() -> anyhow::Result<()> {
    let late = |code| Fault::StatusAfterWork { code, ms: 500 };
    for (number, fault) in [late(500), late(503), late(400), Fault::AnswerNoJson].into_iter().enumerate() {
        let steady = Sketch::of(ConnectorKind::Sglang, 1)
            .engines_that(Role::Decode, |config| config.decode_us_per_token = 25_000.0);
        let site = steady.build().await?;
        site.groups[0].spoil_prefill(fault.clone()).await;
        // In the middle of a stream, behind the end of one, and behind a whole answer.
        let seed = number as u32 * 10;
        for body in [streamed(seed, 40), streamed(seed + 1, 2), completion(seed + 2, 60)] {
            let answer = site.answer(COMPLETIONS, body).await?;
            assert!(is_whole(answer.body()), "{fault:?}: {:?}", answer.body());
        }
        site.is_clean().await;
        assert_eq!(site.exchanges(Role::Decode).len(), 3, "nothing was asked twice");
    }
    Ok(())
}

/// An engine that waits in a room for somebody who cannot come is told at once.
#[tokio::test(flavor = "multi_thread")]
async fn when_one_engine_refuses_the_other_one_is_not_left_waiting() -> anyhow::Result<()> {
    let patient = |sketch: Sketch| sketch.parts(|part| part.patience = Duration::from_secs(600));
    for spoiled in [Role::Prefill, Role::Decode] {
        let site = patient(Sketch::of(ConnectorKind::Sglang, 1)).build().await?;
        let refusal = Fault::Status { code: 422, body: r#"{"error":{"message":"no"}}"#.to_owned() };
        match spoiled {
            Role::Prefill => site.groups[0].spoil_prefill(refusal).await,
            _ => site.groups[0].spoil_decode(refusal).await,
        }
        let answer = site.ask(COMPLETIONS, completion(1, 60)).await?;
        assert_eq!(answer.status(), 422, "{spoiled:?}: {:?}", answer.body());
        assert_eq!(answer.body().as_ref(), br#"{"error":{"message":"no"}}"#);
        site.is_clean().await;
        let other = if spoiled == Role::Prefill { Role::Decode } else { Role::Prefill };
        eventually("the other engine saw the router leave", || {
            // It may not even have been asked.
            site.exchanges(other).iter().all(|exchange| exchange.end == Some(End::Left))
        })
        .await;
    }
    Ok(())
}
