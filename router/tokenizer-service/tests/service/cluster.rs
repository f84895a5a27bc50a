//! Models that the ModelServers of a cluster name: they come, go, and are waited for.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch::{self, Sender};

use crate::support::{Running, folder};

const MODELS: [&str; 4] = ["--engine", "native", "--models", r#"{"a":"DIR/a","b":"DIR/b"}"#];

type Cluster = Sender<Option<BTreeSet<String>>>;

fn names(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// A service beside a cluster that said this so far.
async fn beside(
    said: Option<BTreeSet<String>>,
    flags: &[&str],
    departure: Duration,
    first_names: Duration,
) -> (Running, Cluster) {
    let (cluster, heard) = watch::channel(said);
    let flags = [&MODELS, flags].concat();
    let running = Running::start_named(folder(&["a", "b"]), &flags, Some(heard), |config| {
        config.timings.departure = departure;
        config.timings.first_names = first_names;
    });
    (running.await, cluster)
}

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn what_is_named_is_served_until_it_is_named_no_more() {
    let (running, cluster) = beside(names(&["a", "unmapped"]), &[], SHORT, LONG).await;
    running.until("a", "ready").await;
    assert_eq!(running.line("b").await, Value::Null);
    let (status, answer) = running.tokenize("b", "hello").await;
    assert_eq!((status, answer), (503, json!({"error": "model \"b\" is not served here"})));
    assert_eq!(running.tokenize("unmapped", "hello").await.0, 503);
    assert_eq!(running.call(Method::GET, "/readyz", "").await, (200, json!({"status": "ready"})));

    cluster.send_replace(names(&["a", "b"]));
    running.until("b", "ready").await;
    cluster.send_replace(names(&["b"]));
    running.line_when("a", Value::is_null).await;
    assert_eq!(running.tokenize("b", "hello").await.0, 200);
    cluster.send_replace(names(&[]));
    running.line_when("b", Value::is_null).await;
    assert_eq!(running.call(Method::GET, "/readyz", "").await.0, 200, "no model is a set too");
    running.stop().await;
}

#[tokio::test]
async fn what_is_named_no_more_stays_for_a_while_unless_its_place_is_needed() {
    let (running, cluster) = beside(names(&["a"]), &["--max-tokenizers", "1"], LONG, LONG).await;
    running.until("a", "ready").await;
    cluster.send_replace(names(&["unmapped"]));
    assert_eq!(running.tokenize("a", "hello").await.0, 200);
    cluster.send_replace(names(&["b"]));
    running.until("b", "ready").await;
    assert_eq!(running.line("a").await, Value::Null);
    running.stop().await;
}

#[tokio::test]
async fn a_cluster_that_says_nothing_is_waited_for() {
    let (running, cluster) = beside(None, &[], SHORT, LONG).await;
    let waiting = json!({"error": "the set of models is not known yet"});
    assert_eq!(running.call(Method::GET, "/readyz", "").await, (503, waiting));
    assert_eq!(running.tokenize("a", "hello").await.0, 503);
    cluster.send_replace(names(&["a"]));
    running.until("a", "ready").await;
    assert_eq!(running.call(Method::GET, "/readyz", "").await.0, 200);
    running.stop().await;
}

#[tokio::test]
async fn after_that_every_model_with_a_source_is_served_until_it_speaks() {
    let (running, cluster) = beside(None, &[], LONG, SHORT).await;
    running.until("a", "ready").await;
    running.until("b", "ready").await;
    let (status, answer) = running.call(Method::GET, "/readyz", "").await;
    assert_eq!((status, &answer["status"]), (200, &json!("ready")));
    assert!(answer["modelServers"].as_str().unwrap().starts_with("not listed yet"), "{answer}");
    cluster.send_replace(names(&["b"]));
    running.line_when("a", Value::is_null).await;
    while running.call(Method::GET, "/readyz", "").await != (200, json!({"status": "ready"})) {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.tokenize("b", "hello").await.0, 200);
    // Whoever watched is gone: what was said stays.
    drop(cluster);
    assert_eq!(running.tokenize("b", "hello").await.0, 200);
    running.stop().await;
}
