//! The door, with real waiting on a stopped clock.

mod limits;
mod shares;

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::advance;

use crate::testing::{Bench, ask, bench};
use crate::{Admission, AdmissionMode, Ask, Denied, FairnessOptions, Permit, SessionBoostOptions};
use std::sync::Arc;

fn places(max_concurrent: usize) -> FairnessOptions {
    FairnessOptions { max_concurrent, ageing: 0.0, ..FairnessOptions::default() }
}

fn fairness(options: FairnessOptions) -> Bench {
    bench(AdmissionMode::Fairness(options))
}

fn boost(options: SessionBoostOptions) -> Bench {
    bench(AdmissionMode::SessionBoost(options))
}

/// Asks in a task of its own, and waits until it stands in line or has its answer.
async fn ask_aside(
    admission: &Arc<Admission>,
    user: Option<&'static str>,
    session: Option<&'static str>,
) -> JoinHandle<Result<Permit, Denied>> {
    let admission = Arc::clone(admission);
    let task = tokio::spawn(async move { admission.admit(ask(user, session)).await });
    settle().await;
    task
}

/// Lets every task do what it can without time passing.
async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

fn asked_once<F: Future>(future: Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn off_lets_everybody_in() {
    let bench = bench(AdmissionMode::Off);
    let permits: Vec<_> = {
        let mut permits = Vec::new();
        for _ in 0..1000 {
            permits.push(bench.admission.admit(ask(None, None)).await.unwrap());
        }
        permits
    };
    bench.admission.close();
    assert!(bench.admission.admit(ask(None, None)).await.is_ok(), "there is nothing to close");
    assert_eq!((permits.len(), bench.meter.heard().dequeued.len()), (1000, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_is_overtaken_until_there_is_room() {
    let bench = fairness(places(1));
    let mut heavy = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    let a = ask_aside(&bench.admission, Some("a"), None).await;
    let b = ask_aside(&bench.admission, Some("b"), None).await;
    assert_eq!((bench.admission.waiting(), bench.meter.heard().size), (2, 2));
    advance(Duration::from_secs(1)).await;
    heavy.settle(None, true);
    assert!(!a.is_finished() && !b.is_finished(), "the place is not free yet");
    drop(heavy);
    let permit = b.await.unwrap().unwrap();
    settle().await;
    assert!(!a.is_finished());
    drop(permit);
    drop(a.await.unwrap().unwrap());
    let heard = bench.meter.heard();
    assert_eq!((heard.queued, heard.size, heard.in_flight, heard.most_in_flight), (2, 0, 0, 1));
    assert_eq!(heard.dequeued, [0, 1, 1].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn a_pace_lets_in_so_many_a_second() {
    let bench = fairness(FairnessOptions { max_qps: 50.0, ..FairnessOptions::default() });
    let begun = tokio::time::Instant::now();
    let permit = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let admission = Arc::clone(&bench.admission);
            tokio::spawn(async move { admission.admit(ask(Some("a"), None)).await })
        })
        .collect();
    for (number, task) in (1..).zip(asked) {
        drop(task.await.unwrap().unwrap());
        let wanted = Duration::from_millis(20) * number;
        let passed = begun.elapsed();
        assert!(passed + Duration::from_millis(6) >= wanted && passed <= wanted, "{number}: {passed:?}");
    }
    drop(permit);
    let heard = bench.meter.heard();
    assert_eq!((heard.in_flight, heard.size, heard.dequeued.len()), (0, 0, 101));
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end() {
    let bench = fairness(places(1));
    let permit = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    let begun = tokio::time::Instant::now();
    let answer = bench.admission.admit(ask(Some("b"), None)).await;
    assert_eq!(answer.unwrap_err(), Denied::TimedOut(Duration::from_secs(60)));
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    let heard = bench.meter.heard();
    assert_eq!((heard.timed_out, heard.cancelled, heard.size, bench.admission.waiting()), (1, 0, 0, 0));
    drop(permit);
    assert!(bench.admission.admit(ask(Some("b"), None)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_is_gone_at_once_and_takes_no_place_along() {
    let bench = fairness(places(1));
    let permit = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    let mut waiting = Box::pin(bench.admission.admit(ask(Some("b"), None)));
    let mut other = Box::pin(bench.admission.admit(ask(Some("c"), None)));
    assert!(asked_once(waiting.as_mut()).is_pending() && asked_once(other.as_mut()).is_pending());
    drop(waiting);
    assert_eq!((bench.admission.waiting(), bench.meter.heard().cancelled), (1, 1));
    // This one is let in, and goes without having noticed.
    let mut late = Box::pin(bench.admission.admit(ask(Some("d"), None)));
    assert!(asked_once(late.as_mut()).is_pending());
    drop(permit);
    assert_eq!(bench.meter.heard().in_flight, 1);
    drop(other);
    let permit = late.await.unwrap();
    assert_eq!((bench.meter.heard().cancelled, bench.meter.heard().in_flight), (2, 1));
    drop(permit);
    let heard = bench.meter.heard();
    assert_eq!((heard.in_flight, heard.size, heard.dequeued.len(), heard.queued), (0, 0, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_after_being_let_in_is_charged_nothing() {
    let bench = fairness(places(1));
    let permit = bench.admission.admit(ask(Some("x"), None)).await.unwrap();
    for _ in 0..5 {
        let mut leaver = Box::pin(bench.admission.admit(ask(Some("a"), None)));
        assert!(asked_once(leaver.as_mut()).is_pending());
        drop(leaver);
    }
    let mut leaver = Box::pin(bench.admission.admit(ask(Some("a"), None)));
    assert!(asked_once(leaver.as_mut()).is_pending());
    drop(permit);
    drop(leaver);
    use kvasir_core::UsageBoard;
    assert!(bench.admission.running().is_empty());
    bench.admission.take_settled();
    let mut permit = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    assert_eq!(bench.admission.running().len(), 1);
    permit.settle(None, false);
    assert!(bench.admission.running().is_empty() && bench.admission.take_settled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_answers_all() {
    let mut benches = vec![fairness(places(1)), fairness(FairnessOptions { max_qps: 0.001, ..places(0) })];
    let kept = boost(SessionBoostOptions::default());
    kept.pods.set(1, false);
    benches.push(kept);
    for bench in benches {
        let permit = bench.admission.admit(ask(Some("a"), None));
        let permit = tokio::time::timeout(Duration::from_millis(1), permit).await;
        let mut waiting = Vec::new();
        for _ in 0..50 {
            waiting.push(ask_aside(&bench.admission, Some("a"), Some("s")).await);
        }
        bench.admission.close();
        for task in waiting {
            assert_eq!(task.await.unwrap().unwrap_err(), Denied::Closed);
        }
        let late = bench.admission.admit(Ask { model: "other", ..ask(None, None) }).await;
        assert_eq!(late.unwrap_err(), Denied::Closed);
        let heard = bench.meter.heard();
        assert_eq!((bench.admission.waiting(), heard.size), (0, 0));
        assert_eq!((heard.closed >= 49, heard.cancelled <= 1), (true, true), "{heard:?}");
        drop(permit);
        assert_eq!(bench.meter.heard().in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn queues_of_models_without_a_route_are_closed() {
    let bench = fairness(places(1));
    let gone = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    let stays = bench.admission.admit(Ask { model: "stays", ..ask(Some("a"), None) }).await.unwrap();
    let waiting = ask_aside(&bench.admission, Some("a"), None).await;
    bench.admission.keep_models(&|model| model == "stays");
    assert_eq!(waiting.await.unwrap().unwrap_err(), Denied::Closed);
    let heard = bench.meter.heard();
    assert_eq!((heard.forgotten, heard.closed, heard.cancelled), (1, 1, 0));
    // The route comes back while one of before still runs, which is none of the new queue's.
    let new = bench.admission.admit(ask(Some("a"), None)).await.unwrap();
    drop(gone);
    let heard = bench.meter.heard();
    assert_eq!((heard.forgotten, heard.in_flight), (1, 1));
    drop(new);
    drop(stays);
    bench.admission.keep_models(&|_| false);
    assert_eq!(bench.meter.heard().forgotten, 3);
    assert!(format!("{:?}", bench.admission).contains("models: 0"));
}

#[tokio::test(start_paused = true)]
async fn warm_sessions_go_first() {
    let bench = boost(SessionBoostOptions { inflight_per_pod: 1, ..SessionBoostOptions::default() });
    bench.pods.set(1, true);
    let mut first = bench.admission.admit(ask(None, Some("warm"))).await.unwrap();
    first.settle(None, true);
    let cold = ask_aside(&bench.admission, None, Some("cold")).await;
    let warm = ask_aside(&bench.admission, None, Some("warm")).await;
    drop(first);
    let mut permit = warm.await.unwrap().unwrap();
    settle().await;
    assert!(!cold.is_finished());
    permit.settle(None, false);
    drop(permit);
    drop(cold.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn relief_from_outside_is_noticed() {
    let bench = boost(SessionBoostOptions { inflight_per_pod: 1, ..SessionBoostOptions::default() });
    bench.pods.set(1, false);
    let waiting = ask_aside(&bench.admission, None, None).await;
    let second = ask_aside(&bench.admission, None, None).await;
    advance(Duration::from_millis(950)).await;
    settle().await;
    assert!(!waiting.is_finished());
    bench.pods.set(1, true);
    let begun = tokio::time::Instant::now();
    let permit = waiting.await.unwrap().unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(101), "{:?}", begun.elapsed());
    assert!(!second.is_finished());
    // Another pod came.
    bench.pods.set(2, true);
    drop(second.await.unwrap().unwrap());
    assert!(begun.elapsed() <= Duration::from_millis(201), "{:?}", begun.elapsed());
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_kept_for_the_next_turn() {
    let grace_period = Duration::from_millis(30);
    let bench =
        boost(SessionBoostOptions { inflight_per_pod: 1, grace_period, ..SessionBoostOptions::default() });
    bench.pods.set(1, true);
    let mut permit = bench.admission.admit(ask(None, Some("warm"))).await.unwrap();
    let cold = ask_aside(&bench.admission, None, None).await;
    permit.settle(None, true);
    drop(permit);
    advance(Duration::from_millis(20)).await;
    // The place is its own: it has it at once, and others not.
    let second = bench.admission.admit(ask(None, Some("warm"))).await.unwrap();
    settle().await;
    assert!(!cold.is_finished());
    assert_eq!((bench.meter.heard().in_flight, bench.meter.heard().most_in_flight), (1, 1));
    // The next turn may be here before the last one is over.
    let third = ask_aside(&bench.admission, None, Some("warm")).await;
    drop(second);
    let third = third.await.unwrap().unwrap();
    settle().await;
    assert!(!cold.is_finished());
    let ended = tokio::time::Instant::now();
    drop(third);
    drop(cold.await.unwrap().unwrap());
    assert!((30..=32).contains(&ended.elapsed().as_millis()), "{:?}", ended.elapsed());
    // There is no next turn of no conversation.
    let none = bench.admission.admit(ask(None, None)).await.unwrap();
    drop(none);
    assert!(asked_once(Box::pin(bench.admission.admit(ask(None, None))).as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_goes_on_and_on_does_not_keep_the_others_out() {
    let bench = boost(SessionBoostOptions {
        inflight_per_pod: 1,
        grace_period: Duration::from_secs(1),
        ..SessionBoostOptions::default()
    });
    bench.pods.set(1, true);
    let begun = tokio::time::Instant::now();
    let mut permit = bench.admission.admit(ask(None, Some("warm"))).await.unwrap();
    let cold = ask_aside(&bench.admission, None, None).await;
    let mut turns = 0;
    while !cold.is_finished() {
        advance(Duration::from_millis(100)).await;
        permit.settle(None, true);
        drop(permit);
        // Here before the last turn is over, and after.
        let next = ask_aside(&bench.admission, None, Some("warm")).await;
        turns += 1;
        if cold.is_finished() {
            break;
        }
        permit = next.await.unwrap().unwrap();
    }
    assert!((10_000..=10_200).contains(&begun.elapsed().as_millis()), "{:?}, {turns}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn session_boost_may_wait_for_ever_or_not() {
    for (timeout, answer) in [(None, None), (Some(Duration::from_secs(30)), Some(Duration::from_secs(30)))] {
        let bench = boost(SessionBoostOptions { timeout, ..SessionBoostOptions::default() });
        bench.pods.set(1, false);
        let waiting = bench.admission.admit(ask(None, None));
        let answered = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
        let denied = answered.ok().map(|answer| answer.unwrap_err());
        assert_eq!(denied, answer.map(Denied::TimedOut));
        assert_eq!(bench.admission.waiting(), 0);
    }
}
