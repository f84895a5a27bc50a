//! What is bounded, under crowds and chance.

use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// What one waiting request may take in memory, apart from its task.
const MOST_BYTES: usize = 1024;

#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_and_no_more() {
    let bench = fairness(places(1));
    let permit = bench.admission.admit(ask(Some("first"), None)).await.unwrap();
    let users: Vec<String> = (0..10_000).map(|number| format!("user{}", number)).collect();
    let mut waiting = Vec::new();
    for user in &users {
        let mut future = Box::pin(bench.admission.admit(ask(Some(user), None)));
        assert!(asked_once(future.as_mut()).is_pending());
        waiting.push(future);
    }
    let future = waiting.first().map_or(0, |future| size_of_val(&**future));
    let bytes = future + size_of::<crate::waiters::Waiter>() + size_of::<crate::ledger::Account>();
    assert!(bytes + 2 * size_of::<crate::order::Position>() < MOST_BYTES, "{bytes}");
    assert_eq!(bench.admission.waiting(), 10_000);
    for model in ["m", "another"] {
        // Another model's own place is free; its second request has to wait.
        let ask = Ask { model, ..ask(Some("late"), None) };
        let begun = bench.admission.admit(ask).await;
        assert_eq!(begun.is_ok(), model == "another");
        assert_eq!(bench.admission.admit(ask).await.unwrap_err(), Denied::Full);
    }
    assert_eq!(bench.meter.heard().rejected, 3);
    // Half of them go; the others are served, each once.
    let mut rng = StdRng::seed_from_u64(1);
    let mut left = 0;
    waiting.retain(|_| {
        left += 1;
        rng.random_bool(0.5)
    });
    assert_eq!((left, bench.admission.waiting()), (10_000, waiting.len()));
    drop(permit);
    let mut served = 0;
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain_mut(|future| match asked_once(future.as_mut()) {
            std::task::Poll::Ready(answer) => {
                served += usize::from(answer.is_ok());
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.len() == before {
            break;
        }
    }
    assert_eq!((waiting.len(), bench.admission.waiting(), bench.meter.heard().size), (0, 0, 0));
    assert_eq!(served + 2, bench.meter.heard().dequeued.len());
    assert_eq!(bench.meter.heard().most_in_flight, 1);
}

/// Whoever sends as much as may wait loses its latest to others, until both have as many.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_one_user_does_not_keep_others_out() {
    let bench = fairness(FairnessOptions { max_waiting: 10, ..places(1) });
    let permit = bench.admission.admit(ask(Some("first"), None)).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..10 {
        crowd.push(ask_aside(&bench.admission, Some("crowd"), None).await);
    }
    let mut few = Vec::new();
    for left in (5..10).rev() {
        few.push(ask_aside(&bench.admission, Some("few"), None).await);
        let gone = crowd.pop().unwrap();
        assert_eq!(gone.await.unwrap().unwrap_err(), Denied::Full);
        assert!(crowd.iter().all(|waiting| !waiting.is_finished()) && crowd.len() == left);
    }
    for user in ["few", "crowd"] {
        assert_eq!(bench.admission.admit(ask(Some(user), None)).await.unwrap_err(), Denied::Full);
    }
    let heard = bench.meter.heard();
    assert_eq!((heard.displaced, heard.rejected, heard.size, bench.admission.waiting()), (5, 2, 10, 10));
    // One that leaves before it hears that it was sent away counts once.
    let mut unaware = Box::pin(bench.admission.admit(ask(Some("few"), None)));
    few.pop().unwrap().abort();
    settle().await;
    assert!(asked_once(unaware.as_mut()).is_pending());
    crowd.push(ask_aside(&bench.admission, Some("third"), None).await);
    drop(unaware);
    assert_eq!((bench.meter.heard().displaced, bench.meter.heard().cancelled), (6, 1));
    drop(permit);
    for waiting in crowd.into_iter().chain(few) {
        drop(waiting.await.unwrap());
    }
    assert_eq!(
        (bench.meter.heard().size, bench.meter.heard().in_flight, bench.admission.waiting()),
        (0, 0, 0)
    );
}

/// What befalls one request.
#[derive(Clone, Debug)]
struct Fate {
    user: u8,
    arrives: u64,
    patience: Option<u64>,
    runs: u64,
    settles: u8,
}

fn fate() -> impl Strategy<Value = Fate> {
    let patience = prop::option::of(0_u64..400);
    (0_u8..5, 0_u64..1000, patience, 0_u64..100, 0_u8..4)
        .prop_map(|(user, arrives, patience, runs, settles)| Fate { user, arrives, patience, runs, settles })
}

fn mode(kind: u8, most: usize) -> AdmissionMode {
    match kind {
        0 => AdmissionMode::Fairness(FairnessOptions {
            max_concurrent: most,
            queue_timeout: Duration::from_millis(500),
            max_waiting: 12,
            ..FairnessOptions::default()
        }),
        1 => AdmissionMode::Fairness(FairnessOptions { max_qps: 50.0, ..FairnessOptions::default() }),
        _ => AdmissionMode::SessionBoost(SessionBoostOptions {
            inflight_per_pod: most as u32,
            grace_period: Duration::from_millis(if kind == 2 { 0 } else { 7 }),
            ..SessionBoostOptions::default()
        }),
    }
}

async fn meet(admission: Arc<Admission>, fate: Fate) -> Option<Denied> {
    tokio::time::sleep(Duration::from_millis(fate.arrives)).await;
    let user = format!("u{}", fate.user);
    let known = (fate.user > 0).then_some(user.as_str());
    let admitted = admission.admit(ask(known, known));
    let answer = match fate.patience {
        Some(patience) => tokio::time::timeout(Duration::from_millis(patience), admitted).await.ok()?,
        None => admitted.await,
    };
    let mut permit = match answer {
        Ok(permit) => permit,
        Err(denied) => return Some(denied),
    };
    tokio::time::sleep(Duration::from_millis(fate.runs)).await;
    match fate.settles {
        0 => {}
        1 => permit.settle(None, false),
        _ => permit.settle(
            Some(&kvasir_core::Usage { prompt_tokens: 5, completion_tokens: 9, cached_tokens: None }),
            true,
        ),
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn places_are_never_exceeded_lost_or_doubled(
        kind in 0_u8..4,
        most in 1_usize..5,
        closes in prop::option::of(0_u64..1500),
        fates in prop::collection::vec(fate(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = bench(mode(kind, most));
            bench.pods.set(1, true);
            let asked = fates.len();
            let tasks: Vec<_> = fates.into_iter().map(|fate| tokio::spawn(meet(Arc::clone(&bench.admission), fate))).collect();
            if let Some(closes) = closes {
                tokio::time::sleep(Duration::from_millis(closes)).await;
                bench.admission.close();
            }
            for task in tasks {
                let denied = task.await.unwrap();
                prop_assert!(closes.is_some() || denied != Some(Denied::Closed));
            }
            let heard = bench.meter.heard();
            if kind != 1 {
                prop_assert!(heard.most_in_flight <= most, "{heard:?}");
            }
            prop_assert_eq!((heard.in_flight, heard.size, bench.admission.waiting()), (0, 0, 0));
            let over = heard.dequeued.len() + heard.cancelled + heard.closed + heard.timed_out + heard.displaced;
            prop_assert!(over <= asked);
            // Whoever waited was admitted, left, was sent away, or gave up.
            let at_once = heard.dequeued.iter().filter(|waited| waited.is_zero()).count();
            prop_assert!(heard.queued <= over);
            prop_assert!(heard.queued + at_once >= over);
            // All places are free again.
            if closes.is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let wanted = if kind == 1 { 1 } else { most };
                let mut permits = Vec::new();
                for _ in 0..wanted {
                    let mut future = Box::pin(bench.admission.admit(ask(None, None)));
                    let std::task::Poll::Ready(permit) = asked_once(future.as_mut()) else {
                        return Err(TestCaseError::fail("a place was lost"));
                    };
                    permits.push(permit.unwrap());
                }
            }
            Ok(())
        })?;
    }
}
