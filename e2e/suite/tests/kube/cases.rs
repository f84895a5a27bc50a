//! The routing rules, each as a case of `e2e/suite/cases`: objects in a real API, a router, requests, and what comes back.

mod format;
mod judge;
mod objects;
mod statuses;
mod world;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use kvasir_suite::client::send;
use kvasir_suite::cluster::{Cluster, Crds, install_crds, shared_data};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use format::{Case, RequestSpec, Scope, Step};
use judge::{Answer, judge};
use world::World;

/// Cases that run at the same time.
const AT_ONCE: usize = 4;

/// How long what was changed may take to be seen: a hundred times what it takes.
const SEEN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(25);

/// One case alone, by a part of its title: `KVASIR_CASE="rule order" cargo test -p kvasir-suite --test kube cases`.
const ONLY: &str = "KVASIR_CASE";

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_namespace_holds() {
    let cluster = Cluster::shared().await.unwrap();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (file, case) in chosen(Scope::Namespace) {
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            run(cluster, &file, &case).await
        });
    }
    report(running.join_all().await);
}

/// A router that watches everything sees the objects of other cases, so these run one after the other, apart.
#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_whole_cluster_holds() {
    let cases = chosen(Scope::Cluster);
    if cases.is_empty() {
        return;
    }
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Ours).await.unwrap();
    if shared_data("crds").is_some() {
        install_crds(&client, Crds::GatewayApi).await.unwrap();
    }
    let mut wrong = Vec::new();
    for (file, case) in cases {
        wrong.push(run(&cluster, &file, &case).await);
    }
    report(wrong);
}

/// Every file can be read, and no two cases have the same title.
#[test]
fn cases_are_well_written() {
    let mut titles = BTreeSet::new();
    for (file, case) in format::read_all() {
        let case: Result<Case, String> =
            format::named(&case, &with_ports()).map_err(|error| format!("{file}: {error}: {case}"));
        let case = case.unwrap();
        assert!(!case.source.is_empty() && !case.steps.is_empty(), "{file}: {}", case.title);
        let apart = case.namespaces.is_empty() || case.scope == Scope::Cluster;
        assert!(apart, "{file}: {}: more namespaces need the scope of a cluster", case.title);
        assert!(titles.insert(case.title.clone()), "{file}: there are two cases {:?}", case.title);
    }
}

/// What stands for numbers must be one when a case is read.
fn with_ports() -> format::Names {
    ["$PORT", "$PORT_A", "$PORT_B", "$PORT_C", "$PORT_D"].map(|word| (word.to_owned(), json!(1))).into()
}

#[expect(clippy::disallowed_methods, reason = "which case is run is no setting of the router")]
fn chosen(scope: Scope) -> Vec<(String, Value)> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut cases = format::read_all();
    // The HTTPRoute kinds lie beside the checkout, or are not there at all.
    let has_gateways = shared_data("crds").is_some();
    cases.retain(|(file, case)| {
        let of_scope = case.get("scope").and_then(Value::as_str) == Some("cluster");
        let title = case.get("title").and_then(Value::as_str).unwrap_or_default();
        (of_scope == (scope == Scope::Cluster))
            && (has_gateways || case.get("mode").is_none())
            && (only.is_empty() || title.contains(&only) || file.contains(&only))
    });
    cases
}

fn report(outcomes: Vec<Vec<String>>) {
    let (count, wrong) = (outcomes.len(), outcomes.concat());
    assert!(wrong.is_empty(), "{count} cases, {} mistakes:\n\n{}\n", wrong.len(), wrong.join("\n\n"));
}

/// Everything that is wrong with a case.
async fn run(cluster: &Cluster, file: &str, written: &Value) -> Vec<String> {
    let title = written.get("title").and_then(Value::as_str).unwrap_or("without a title");
    let mut wrong = Vec::new();
    if let Err(error) = walk(cluster, written, &mut wrong).await {
        wrong.push(format!("cannot go on: {error:#}"));
    }
    wrong.into_iter().map(|wrong| format!("{file}: {title}\n    {wrong}")).collect()
}

async fn walk(cluster: &Cluster, written: &Value, wrong: &mut Vec<String>) -> Result<()> {
    let (mut world, case) = World::new(cluster, written).await?;
    world.begin(cluster, &case).await?;
    for (number, step) in case.steps.iter().enumerate() {
        world.change(step).await?;
        if let Err(why) = hold(&mut world, step).await? {
            wrong.push(format!("step {} ({}): {why}", number + 1, step.note));
        }
    }
    world.end().await
}

/// Holds a step against the world. What follows a change may take a while; what does not must hold at once.
async fn hold(world: &mut World, step: &Step) -> Result<Result<(), String>> {
    for expected in &step.statuses {
        let deadline = Instant::now() + SEEN;
        while let Err(why) = statuses::check(&world.client, &world.space, expected).await? {
            if Instant::now() > deadline {
                return Ok(Err(why));
            }
            tokio::time::sleep(POLL).await;
        }
    }
    let Some(request) = &step.request else { return Ok(Ok(())) };
    let deadline = Instant::now() + if world.changed { SEEN } else { Duration::ZERO };
    loop {
        let mut answers = Vec::new();
        for _ in 0..step.repeat {
            answers.push(Answer::of(&ask(world, request).await?));
        }
        match judge(&step.expect, &answers) {
            Ok(()) => {
                world.changed = false;
                return Ok(Ok(()));
            }
            Err(why) if Instant::now() >= deadline => return Ok(Err(why)),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Every prompt is another one: an engine that has seen it would be preferred.
async fn ask(world: &World, spec: &RequestSpec) -> Result<http::Response<Bytes>> {
    static PROMPTS: AtomicUsize = AtomicUsize::new(0);
    let to = SocketAddr::from(([127, 0, 0, 1], world.port(spec.port.as_deref())?));
    let prompt = format!("prompt {}", PROMPTS.fetch_add(1, Ordering::Relaxed));
    let body = match (&spec.body, &spec.model) {
        (Some(body), _) => body.clone(),
        (None, Some(model)) => {
            json!({"model": model, "messages": [{"role": "user", "content": prompt}]}).to_string()
        }
        (None, None) => String::new(),
    };
    let mut request =
        Request::builder().method(spec.method.as_str()).uri(&spec.path).header("host", &spec.host);
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in &spec.headers {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            request = request.header(name, value.as_str().unwrap_or_default());
        }
    }
    // A port that is not open yet is no answer, and may open.
    let request = request.body(Full::new(Bytes::from(body)))?;
    match send(to, request).await {
        Ok(answer) => Ok(answer),
        Err(error) => Ok(http::Response::builder().status(599).body(Bytes::from(format!("{error:#}")))?),
    }
}
