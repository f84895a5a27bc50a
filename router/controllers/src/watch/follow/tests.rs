use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use kvasir_api::gateway::ReferenceGrant;
use kvasir_api::{ModelServer, Read};
use kvasir_state::plan::ObjectName;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::status::StatusKind;
use crate::watch::WatchedKind;

type Server = Read<ModelServer>;

fn server(name: &str, generation: i64, extra: Value) -> Server {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "n", "generation": generation, "uid": name},
        "spec": {"inferenceEngine": "vLLM", "workloadPort": {"port": 8000}},
    });
    for (field, value) in extra.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) => inner.iter().for_each(|(key, value)| object[field][key] = value.clone()),
            None => object[field] = value.clone(),
        }
    }
    serde_json::from_value(object).expect("readable")
}

fn plain(name: &str) -> Server {
    server(name, 1, json!({}))
}

fn answer(code: u16) -> watcher::Error {
    watcher::Error::InitialListFailed(kube::Error::Api(Status::failure("no", "No").with_code(code).boxed()))
}

/// Follows events up to their end.
async fn follow_all<W: Watched>(store: &Store, events: Vec<watcher::Result<Event<W>>>) {
    let mut follower = Follower::new(store);
    let mut events = pin!(stream::iter(events));
    while let Some(event) = follower.next(&mut events).await {
        if let Err(fall) = event {
            follower.stumble(&fall.trouble);
        }
    }
}

fn listed(all: Vec<Server>) -> Vec<watcher::Result<Event<Server>>> {
    let all = all.into_iter().map(|server| Ok(Event::InitApply(server)));
    std::iter::once(Ok(Event::Init)).chain(all).chain([Ok(Event::InitDone)]).collect()
}

fn names(store: &Store) -> Vec<String> {
    store.objects().model_servers.keys().map(|name| name.name.to_string()).collect()
}

fn servers() -> Store {
    Store::new([WatchedKind::ModelServers])
}

/// What is to be done right now.
async fn work_now(store: &Store) -> Option<super::super::Work> {
    tokio::time::timeout(Duration::from_millis(1), store.work()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_new_list_replaces_the_old_one_whole() {
    let store = servers();
    follow_all(&store, listed(vec![plain("a"), plain("b")])).await;
    assert_eq!(names(&store), ["a", "b"]);
    // The watch expires, and meanwhile `a` was deleted and `c` made. Half of the list changes nothing yet.
    let begun = vec![Err(answer(410)), Ok(Event::Init), Ok(Event::InitApply(plain("c")))];
    follow_all(&store, begun).await;
    assert_eq!(names(&store), ["a", "b"]);
    follow_all(&store, listed(vec![plain("c"), plain("b")])).await;
    assert_eq!(names(&store), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_while_the_api_server_is_away() {
    let store = servers();
    let mut events = listed(vec![plain("a")]);
    events.extend((0..20).map(|_| Err(answer(500))));
    events.push(Ok(Event::Init));
    events.push(Err(answer(403)));
    follow_all(&store, events).await;
    assert_eq!(names(&store), ["a"]);
    let kind = &store.kinds()[0];
    assert_eq!((kind.restarts, kind.listed, kind.objects), (21, true, 1));
    assert!(kind.trouble.as_ref().is_some_and(|trouble| trouble.contains("may not list")), "{kind:?}");
    follow_all(&store, listed(vec![plain("a")])).await;
    assert_eq!(store.kinds()[0].trouble, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_to_be_done_before_every_kind_was_listed() {
    let store = Store::new([WatchedKind::ModelServers, WatchedKind::Pods]);
    follow_all(&store, listed(vec![plain("a")])).await;
    assert_eq!(store.pending(), ["pods"]);
    assert!(work_now(&store).await.is_none());
    follow_all::<Pod>(&store, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
    assert!(store.pending().is_empty());
    assert!(work_now(&store).await.expect("everything was listed").translate);
    assert!(work_now(&store).await.is_none(), "nothing changed since");
}

#[tokio::test(start_paused = true)]
async fn only_changes_that_matter_are_translated() {
    let store = servers();
    follow_all(&store, listed(vec![plain("a")])).await;
    work_now(&store).await.expect("the first");
    let bad = json!({"spec": {"workloadPort": {"port": "http"}}});
    let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let key = (StatusKind::ModelServer, ObjectName::new("n", "a"));
    // Each against the one before it.
    for (next, translate) in [
        (json!({"status": {"observedGeneration": 1}}), false),
        (json!({"metadata": {"resourceVersion": "7", "managedFields": [{"manager": "x"}]}}), false),
        (json!({"metadata": {"annotations": copy}}), false),
        (json!({"metadata": {"annotations": {"kvasir.io/tls-server-name": "x"}}}), true),
        (json!({"metadata": {"labels": {"a": "b"}}}), true),
        (json!({"metadata": {"uid": "another"}}), true),
        (bad.clone(), true),
        (bad, false),
        (json!({}), true),
    ] {
        follow_all(&store, vec![Ok(Event::Apply(server("a", 1, next.clone())))]).await;
        let work = work_now(&store).await.expect("something");
        assert_eq!(work.translate, translate, "{next}");
        assert_eq!(work.restated.contains(&key), !translate, "{next}");
    }
    follow_all(&store, vec![Ok(Event::Apply(server("a", 2, json!({}))))]).await;
    assert!(work_now(&store).await.is_some_and(|work| work.translate), "another generation");
    follow_all(&store, vec![Ok(Event::Delete(plain("b")))]).await;
    assert!(work_now(&store).await.is_none(), "it was not there");
    follow_all(&store, vec![Ok(Event::Delete(plain("a")))]).await;
    assert!(work_now(&store).await.is_some_and(|work| work.translate), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_brings_nothing_new_is_not_translated() {
    let store = servers();
    follow_all(&store, listed(vec![plain("a"), plain("b")])).await;
    work_now(&store).await.expect("the first");
    follow_all(&store, listed(vec![plain("b"), plain("a")])).await;
    let work = work_now(&store).await.expect("statuses may differ");
    assert!(!work.translate && work.restated.len() == 2);
    follow_all(&store, listed(vec![plain("b")])).await;
    assert!(work_now(&store).await.expect("one is gone").translate);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_says_the_same_is_no_change() {
    let pod = |ready: &str, note: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "annotations": {"note": note}},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "message": note,
                "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .expect("a pod")
    };
    let store = Store::new([WatchedKind::Pods]);
    let first = vec![Ok(Event::Init), Ok(Event::InitApply(pod("True", "a"))), Ok(Event::InitDone)];
    follow_all(&store, first).await;
    work_now(&store).await.expect("the first");
    follow_all(&store, vec![Ok(Event::Apply(pod("True", "b")))]).await;
    assert!(work_now(&store).await.is_none());
    follow_all(&store, vec![Ok(Event::Apply(pod("False", "b")))]).await;
    assert!(work_now(&store).await.is_some_and(|work| work.translate));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_asked_for_again() {
    let store = servers();
    let started = AtomicUsize::new(0);
    let start = || {
        let number = started.fetch_add(1, Ordering::Relaxed);
        let events = if number < 2 { vec![Ok(Event::Init)] } else { listed(vec![plain("a")]) };
        stream::iter(events).chain(stream::pending())
    };
    let begin = Instant::now();
    tokio::select! {
        () = follow::<Server, _>(&store, start) => {}
        work = store.work() => assert!(work.translate),
    }
    assert_eq!(started.load(Ordering::Relaxed), 3);
    assert!(begin.elapsed() < 3 * LIST_STALLS_AFTER, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_a_watch_that_expired_is_listed_soon() {
    let store = servers();
    let events = || {
        let away = (0..8).map(|_| Err(answer(500))).chain([Err(answer(410))]);
        stream::iter(away.chain(listed(vec![plain("a")])).collect::<Vec<_>>()).chain(stream::pending())
    };
    let begin = Instant::now();
    let mut away = Duration::ZERO;
    tokio::select! {
        () = follow::<Server, _>(&store, events) => {}
        _ = store.work() => {}
        () = async {
            while store.kinds()[0].restarts < 9 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                away = begin.elapsed();
            }
            std::future::pending::<()>().await;
        } => {}
    }
    assert!(begin.elapsed() - away <= FIRST_WAIT, "{:?} of {:?}", begin.elapsed() - away, begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn failures_are_waited_for_longer_and_longer() {
    let store = servers();
    // A watcher says `Init` before every list that fails: that is no success.
    let events = || {
        let failed = (0..12).flat_map(|_| [Ok(Event::Init), Err(answer(500))]);
        stream::iter(failed.chain(listed(Vec::new())).collect::<Vec<_>>()).chain(stream::pending())
    };
    let begin = Instant::now();
    tokio::select! {
        () = follow::<Server, _>(&store, events) => {}
        _ = store.work() => {}
    }
    // 0.8, 1.6, 3.2, 6.4 s and then 10 s each, or half of it.
    let waited = begin.elapsed();
    assert!(waited > Duration::from_secs(45) && waited < Duration::from_secs(93), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_grants_that_may_not_be_read() {
    let store = Store::new([WatchedKind::ReferenceGrants]);
    follow_all::<Read<ReferenceGrant>>(&store, vec![Err(answer(500))]).await;
    assert_eq!(store.pending(), ["referencegrants.gateway.networking.k8s.io"]);
    assert!(work_now(&store).await.is_none());
    follow_all::<Read<ReferenceGrant>>(&store, vec![Err(answer(403))]).await;
    assert!(store.pending().is_empty());
    assert!(work_now(&store).await.is_some());
    let kind = store.kinds().remove(0);
    assert!(!kind.listed, "nobody has seen any");
    let trouble = kind.trouble.expect("it is said");
    assert!(
        trouble.contains("a role for it") && trouble.ends_with("another namespace until then"),
        "{trouble}"
    );
}

/// A list, after which no watch can begin.
fn forgotten() -> Vec<watcher::Result<Event<Server>>> {
    listed(vec![plain("a")]).into_iter().chain([Err(cannot_begin(410))]).collect()
}

fn cannot_begin(code: u16) -> watcher::Error {
    watcher::Error::WatchStartFailed(kube::Error::Api(Status::failure("no", "No").with_code(code).boxed()))
}

/// Follows, for a while, streams that never end.
async fn follow_for(
    store: &Store,
    span: Duration,
    events: impl Fn(usize) -> Vec<watcher::Result<Event<Server>>>,
) -> usize {
    let started = AtomicUsize::new(0);
    let start = || {
        let number = started.fetch_add(1, Ordering::Relaxed);
        stream::iter(events(number)).chain(stream::pending())
    };
    let _ = tokio::time::timeout(span, follow::<Server, _>(store, start)).await;
    started.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_may_not_go_on_is_listed_anew() {
    let store = servers();
    let span = Duration::from_secs(3);
    let started = follow_for(&store, span, |number| match number {
        // A watcher would ask for the same once more, for good: here it hangs instead.
        0 => forgotten(),
        _ => listed(vec![plain("b")]),
    });
    assert_eq!(started.await, 2);
    assert_eq!(names(&store), ["b"]);
    assert_eq!(store.kinds()[0].trouble, None);
    // A busy API server is not asked for everything: the watch goes on from where it was.
    let started = follow_for(&store, span, |_| vec![Err(cannot_begin(429)), Ok(Event::Apply(plain("c")))]);
    assert_eq!(started.await, 1);
    assert_eq!(names(&store), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_forgets_every_watch_is_not_listed_twice_a_second() {
    let store = servers();
    let started = follow_for(&store, Duration::from_secs(300), |_| forgotten());
    // 0.8, 1.6, 3.2, 6.4 s and then 10 s each, or half of it.
    let started = started.await;
    assert!((30..=65).contains(&started), "{started} lists in five minutes");
    let trouble = store.kinds().remove(0).trouble;
    assert!(trouble.is_some_and(|trouble| trouble.contains("listed anew")));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_kind_recovers_without_an_event() {
    let store = servers();
    let blip = |_| {
        let mut events = listed(vec![plain("a")]);
        events.extend((0..4).map(|_| Err(cannot_begin(503))));
        events
    };
    follow_for(&store, Duration::from_secs(12), blip).await;
    assert!(!store.kinds()[0].is_watched(), "it failed a moment ago");
    follow_for(&store, Duration::from_secs(60), blip).await;
    let kind = store.kinds().remove(0);
    assert!(kind.is_watched() && kind.trouble.is_none(), "{kind:?}");
    assert!(
        kind.last_event_age.is_some_and(|age| age > Duration::from_secs(50)),
        "nothing was heard: {kind:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_no_quiet_kind() {
    let store = servers();
    let events = |_| (0..1000).flat_map(|_| [Ok(Event::Init), Err(answer(500))]).collect();
    follow_for(&store, Duration::from_secs(300), events).await;
    let kind = store.kinds().remove(0);
    assert!(!kind.is_watched() && kind.trouble.is_some(), "{kind:?}");
    assert!(!servers().kinds()[0].is_watched(), "nothing was heard yet");
}
