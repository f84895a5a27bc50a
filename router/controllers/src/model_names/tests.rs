use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

type Heard = Arc<Mutex<Vec<Vec<String>>>>;
type Events = Vec<watcher::Result<Event<Read<ModelServer>>>>;

fn server(name: &str, generation: i64, model: Value) -> Read<ModelServer> {
    let spec = json!({"model": model, "inferenceEngine": "vLLM", "workloadPort": {"port": 8000},
        "workloadSelector": {"matchLabels": {"app": "engine"}}});
    let metadata = json!({"name": name, "namespace": "n", "generation": generation, "uid": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a head at least")
}

fn listed(servers: Vec<Read<ModelServer>>) -> Events {
    let servers = servers.into_iter().map(|server| Ok(Event::InitApply(server)));
    std::iter::once(Ok(Event::Init)).chain(servers).chain([Ok(Event::InitDone)]).collect()
}

fn answer(code: u16) -> watcher::Error {
    let status = Status::failure("no", "No").with_code(code);
    watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
}

/// On a clock that goes on when nothing else is to be done.
const MOMENT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3_600);

/// Plays events one at a time, each heard of before the next; what was told.
async fn told(events: Events) -> Vec<Vec<String>> {
    let heard = Heard::default();
    let ears = Arc::clone(&heard);
    let left = AtomicUsize::new(events.len());
    let events = Mutex::new(Some(events));
    let start = || {
        let events = stream::iter(events.lock().take().unwrap_or_default());
        let events = events.then(|event| async {
            left.fetch_sub(1, Ordering::Relaxed);
            tokio::time::sleep(MOMENT).await;
            event
        });
        events.chain(stream::pending())
    };
    let telling = tell(start, move |names| ears.lock().push(names.into_iter().collect()));
    assert!(tokio::time::timeout(LONG, telling).await.is_err());
    assert_eq!(left.load(Ordering::Relaxed), 0);
    heard.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn names_are_told_once_when_they_are_others() {
    let mut events = listed(vec![
        server("one", 1, json!("a")),
        server("two", 1, json!("a")),
        server("unnamed", 1, json!(null)),
        server("empty", 1, json!("")),
        server("bad", 1, json!({"not": "a name"})),
    ]);
    events.extend([
        Ok(Event::Apply(server("three", 1, json!("b")))),
        // A status, a second server of a model, and one of two that goes.
        Ok(Event::Apply(server("three", 1, json!("b")))),
        Ok(Event::Apply(server("four", 1, json!("b")))),
        Ok(Event::Delete(server("one", 1, json!("a")))),
        Ok(Event::Delete(server("two", 1, json!("a")))),
        Ok(Event::Apply(server("three", 2, json!("c")))),
    ]);
    assert_eq!(told(events).await, [vec!["a"], vec!["a", "b"], vec!["b"], vec!["b", "c"]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_before_a_whole_list_and_an_empty_one_is_one() {
    let missing: Events = (0..5).flat_map(|_| [Ok(Event::Init), Err(answer(404))]).collect();
    assert!(told(missing).await.is_empty());
    let mut begun = listed(vec![server("one", 1, json!("a"))]);
    begun.pop();
    assert!(told(begun).await.is_empty());
    let none: Vec<String> = Vec::new();
    assert_eq!(told(listed(Vec::new())).await, [none]);
}

#[tokio::test(start_paused = true)]
async fn what_was_told_stays_while_the_api_server_is_away() {
    let mut events = listed(vec![server("one", 1, json!("a")), server("two", 1, json!("b"))]);
    for code in [410, 500, 403, 404] {
        events.extend([Err(answer(code)), Ok(Event::Init)]);
    }
    // What happened meanwhile comes with the next list.
    events.extend(listed(vec![server("two", 1, json!("b")), server("three", 1, json!("c"))]));
    assert_eq!(told(events).await, [["a", "b"], ["b", "c"]]);
}
