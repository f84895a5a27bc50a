//! How requests end otherwise: answers that break off, clients that leave, engines that say nothing.

use std::time::Duration;

use kvasir_mock_engine::{ConnectorKind, End, Fault, Role};
use kvasir_suite::client::{Raw, post};
use kvasir_suite::eventually;
use kvasir_suite::h2c::H2c;
use kvasir_suite::router::MODEL;

use crate::site::{COMPLETIONS, Site, Sketch, completion, streamed};

const LONG: Duration = Duration::from_secs(600);

fn outcome(site: &Site, outcome: &str) -> Option<f64> {
    site.router.metric(&format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"{outcome}\"}}"))
}

/// RET-02: nothing is retried once the client has something, and the cut is seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_decode_that_dies_in_mid_stream_is_a_cut_and_not_retried() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for fault in [Fault::ResetMidStream { after_events: 3 }, Fault::CutMidStream { after_events: 3 }] {
            let site = Sketch::of(connector, 2).build().await?;
            for group in &site.groups {
                group.spoil_decode(fault.clone()).await;
            }
            let mut client = Raw::post(site.door(), COMPLETIONS, streamed(1, 50).as_bytes()).await?;
            let (all, _) = client.read_to_end().await;
            let text = String::from_utf8_lossy(&all);
            assert_eq!(text.matches("HTTP/1.1").count(), 1, "{connector}: one set of headers");
            assert_eq!(text.matches("data: ").count(), 3, "{connector} {fault:?}: {text}");
            assert!(!text.ends_with("0\r\n\r\n"), "{connector}: a cut stream must not look finished");
            site.is_clean().await;
            assert_eq!(site.exchanges(Role::Decode).len(), 1, "{connector}: not retried");
            assert_eq!(site.exchanges(Role::Prefill).len(), 1, "{connector}: not retried");
            eventually("it is counted", || outcome(&site, "stream_broken") == Some(1.0)).await;
        }
    }
    Ok(())
}

/// An answer that is not streamed and breaks off is told as that.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_answer_that_breaks_off_is_a_502_and_not_retried() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 2).build().await?;
        for group in &site.groups {
            group.spoil_decode(Fault::ShortBody).await;
        }
        // Its usage is corrected, for which it is held until it is whole: the client has nothing yet.
        let answer = site.ask(COMPLETIONS, completion(1, 50)).await?;
        assert_eq!(answer.status(), 502, "{connector}: {:?}", answer.body());
        assert!(String::from_utf8_lossy(answer.body()).contains("stream_broken"), "{connector}");
        site.is_clean().await;
        assert_eq!(site.exchanges(Role::Decode).len(), 1, "{connector}: not retried");
    }
    Ok(())
}

/// An engine error inside a stream passes as it came.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_event_of_the_decode_engine_passes() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 2).build().await?;
        for group in &site.groups {
            group.spoil_decode(Fault::ErrorMidStream { after_events: 2 }).await;
        }
        let answer = site.answer(COMPLETIONS, streamed(1, 50)).await?;
        let text = String::from_utf8_lossy(answer.body());
        assert!(
            text.contains("EngineCore encountered an issue") && text.ends_with("data: [DONE]\n\n"),
            "{text}"
        );
        site.is_clean().await;
        assert_eq!(site.exchanges(Role::Decode).len(), 1);
        assert_eq!(outcome(&site, "engine_error"), Some(1.0));
    }
    Ok(())
}

/// How every exchange of a role ended; `None` for one that is under way.
fn all_left(site: &Site, role: Role) -> bool {
    let exchanges = site.exchanges(role);
    !exchanges.is_empty() && exchanges.iter().all(|exchange| exchange.end == Some(End::Left))
}

/// CAN-01: in each phase the engines at work are told at once, and nothing is begun afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_the_prefill_is_noticed() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for stream in [true, false] {
            let slow = Sketch::of(connector, 2).parts(|part| part.patience = LONG);
            let site =
                slow.engines_that(Role::Prefill, |config| config.prefill_us_per_token = 1e6).build().await?;
            let body = if stream { streamed(1, 50) } else { completion(1, 100) };
            let client = Raw::post(site.door(), COMPLETIONS, body.as_bytes()).await?;
            eventually("an engine computes", || {
                site.groups.iter().any(|group| group.prefills[0].backlog().prefilling == 1)
            })
            .await;
            drop(client);
            eventually("it is told", || all_left(&site, Role::Prefill)).await;
            site.is_clean().await;
            if connector == ConnectorKind::Sglang {
                assert!(all_left(&site, Role::Decode), "both were at work");
            } else {
                assert!(site.exchanges(Role::Decode).is_empty(), "{connector}: nobody waits for an answer");
            }
            assert_eq!(site.exchanges(Role::Prefill).len(), 1);
            eventually("it is counted", || outcome(&site, "client_cancelled") == Some(1.0)).await;
        }
    }
    Ok(())
}

/// CAN-01, on HTTP/2: the connection stays, the request's stream is reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_its_stream_during_the_prefill_is_noticed() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let slow = Sketch::of(connector, 1).parts(|part| part.patience = LONG);
        let site =
            slow.engines_that(Role::Prefill, |config| config.prefill_us_per_token = 1e6).build().await?;
        let client = H2c::connect(site.door()).await?;
        {
            let asking = client.begin(post(COMPLETIONS, streamed(1, 50))?);
            tokio::pin!(asking);
            tokio::select! {
                _ = &mut asking => anyhow::bail!("a slow engine has answered"),
                () = eventually("it computes", || site.groups[0].prefills[0].backlog().prefilling == 1) => {}
            }
        }
        eventually("it is told", || all_left(&site, Role::Prefill)).await;
        site.is_clean().await;
        drop(client);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_between_the_phases_or_before_the_first_token_is_noticed() -> anyhow::Result<()>
{
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 2).parts(|part| part.patience = LONG).build().await?;
        for group in &site.groups {
            group.spoil_decode(Fault::Hang).await;
        }
        let client = Raw::post(site.door(), COMPLETIONS, streamed(1, 50).as_bytes()).await?;
        eventually("the decode engine has it", || site.exchanges(Role::Decode).len() == 1).await;
        drop(client);
        eventually("it is told", || all_left(&site, Role::Decode)).await;
        site.is_clean().await;
        assert_eq!(site.exchanges(Role::Prefill).len(), 1, "{connector}: not begun again");
        if connector == ConnectorKind::Sglang {
            assert!(all_left(&site, Role::Prefill), "it waits for its partner");
        }
        eventually("it is counted", || outcome(&site, "client_cancelled") == Some(1.0)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_the_decode_is_noticed() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let slow =
            |sketch: Sketch| sketch.engines_that(Role::Decode, |config| config.decode_us_per_token = 1e6);
        let site = slow(Sketch::of(connector, 2)).build().await?;
        let mut client = Raw::post(site.door(), COMPLETIONS, streamed(1, 1000).as_bytes()).await?;
        assert!(client.read().await?.is_some_and(|begun| begun.starts_with(b"HTTP/1.1 200")));
        drop(client);
        eventually("it is told", || all_left(&site, Role::Decode)).await;
        site.is_clean().await;
        assert!(
            site.exchanges(Role::Prefill).iter().all(kvasir_mock_engine::Exchange::succeeded),
            "{connector}"
        );
        eventually("it is counted", || outcome(&site, "client_cancelled") == Some(1.0)).await;
    }
    Ok(())
}

/// CAN-02, over pairs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_leave_at_any_moment_leave_no_count_behind() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let slow = Sketch::of(connector, 2).engines(|config| {
            (config.prefill_us_per_token, config.decode_us_per_token) = (200.0, 2_000.0);
        });
        let site = slow.build().await?;
        let door = site.door();
        let leaving = (0..100u32).map(|seed| {
            tokio::spawn(async move {
                let mut client = Raw::post(door, COMPLETIONS, streamed(seed, 20).as_bytes()).await?;
                let stays = Duration::from_millis(u64::from(seed * 7 % 60));
                let _ = tokio::time::timeout(stays, client.read_to_end()).await;
                anyhow::Ok(())
            })
        });
        for one in leaving.collect::<Vec<_>>() {
            one.await??;
        }
        site.is_clean().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_says_nothing_is_a_504_after_one_attempt() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for role in [Role::Prefill, Role::Decode] {
            let sketch = Sketch::of(connector, 2).parts(|part| part.patience = LONG);
            let site = sketch
                .router(|settings| settings.limits.first_byte_timeout = Duration::from_millis(300))
                .build()
                .await?;
            for group in &site.groups {
                match role {
                    Role::Prefill => group.spoil_prefill(Fault::Hang).await,
                    _ => group.spoil_decode(Fault::Hang).await,
                }
            }
            let answer = site.ask(COMPLETIONS, completion(1, 50)).await?;
            assert_eq!(answer.status(), 504, "{connector} {role:?}: {:?}", answer.body());
            site.is_clean().await;
            assert_eq!(site.exchanges(role).len(), 1, "{connector} {role:?}: not tried elsewhere");
            assert!(all_left(&site, role), "{connector} {role:?}");
        }
    }
    Ok(())
}

/// Each phase has the time of a first byte: a prefill that takes most of it leaves the decode its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_prefill_does_not_take_the_decodes_time() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Lmcache, ConnectorKind::Nixl] {
        let site = Sketch::of(connector, 1)
            .router(|settings| settings.limits.first_byte_timeout = Duration::from_millis(1500))
            .build()
            .await?;
        site.groups[0].spoil_prefill(Fault::SlowFirstByte { ms: 900 }).await;
        site.groups[0].spoil_decode(Fault::SlowFirstByte { ms: 900 }).await;
        site.answer(COMPLETIONS, completion(1, 50)).await?;
        site.is_clean().await;
    }
    Ok(())
}
