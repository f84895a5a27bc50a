//! Metrics: no label from a client, no series of who is gone, one outcome for each end, no number out of garbage.

use std::time::Duration;

use kvasir_suite::client::{Raw, get, post, send};
use kvasir_suite::eventually;
use kvasir_suite::h2c::H2c;
use kvasir_suite::paths::{Paths, Reply, answer};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};

use crate::fleet::completion;

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;

fn series(router: &Router) -> usize {
    router.metrics_page().lines().filter(|line| !line.starts_with('#')).count()
}

/// MET-01.
#[tokio::test(flavor = "multi_thread")]
async fn clients_make_no_series() -> anyhow::Result<()> {
    let engine = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let client = H2c::connect(router.inference).await?;
    let ask = async |number: usize| -> anyhow::Result<()> {
        let unknown = completion(&format!("random-{number}"), "\"x\"");
        assert_eq!(client.send(post("/v1/completions", unknown)?).await?.status(), 404);
        let path = format!("/v1/random/{number}");
        assert_eq!(client.send(post(&path, completion(MODEL, "\"x\""))?).await?.status(), 200);
        assert_eq!(client.send(get(&format!("/random-{number}"))?).await?.status(), 404);
        let response = get(&format!("/v1/responses/random-{number}"))?;
        assert_eq!(client.send(response).await?.status(), 400);
        Ok(())
    };
    for number in 0..10 {
        ask(number).await?;
    }
    // A request is counted when it has left, a moment after its client has the answer.
    let nobody = || router.gateway.readiness.inside() == 0;
    eventually("all are counted", nobody).await;
    let before = series(&router);
    for number in 10..1_500 {
        ask(number).await?;
    }
    eventually("all are counted", nobody).await;
    assert_eq!(series(&router), before);
    assert!(!router.metrics_page().contains("random"));
    Ok(())
}

/// MET-03.
#[tokio::test(flavor = "multi_thread")]
async fn series_of_endpoints_that_are_gone_disappear() -> anyhow::Result<()> {
    let engine = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let first = settings(&[engine.url()])?;
    let router = Router::start(first.clone()).await?;
    send(router.inference, post("/v1/completions", completion(MODEL, "\"x\""))?).await?;
    eventually("the request is counted", || router.metric("kvasir_request_outcomes_total").is_some()).await;
    assert!(router.metrics_page().contains(&format!("endpoint=\"default/{}\"", engine.address)));
    let before = series(&router);
    for port in 20_000..20_100 {
        let next = settings(&[format!("http://127.0.0.9:{port}")])?;
        let changes = router.gateway.state.replace(kvasir::house::plan(&next));
        for gone in changes.removed {
            router.gateway.index.forget(gone.slot);
            router.gateway.state.release_slot(gone.slot);
        }
        let page = router.metrics_page();
        assert!(page.contains(&format!("endpoint=\"default/127.0.0.9:{port}\"")), "{page}");
        assert!(!page.contains(&format!("endpoint=\"default/{}\"", engine.address)));
        assert!(!page.contains(&format!("127.0.0.9:{}\"", port - 1)));
    }
    router.gateway.state.replace(kvasir::house::plan(&first));
    assert!(series(&router) <= before, "{before} series became {}", series(&router));
    Ok(())
}

/// MET-05.
#[tokio::test(flavor = "multi_thread")]
async fn every_end_has_its_outcome_and_only_an_answer_is_a_success() -> anyhow::Result<()> {
    let engine = Paths::start().await?;
    engine.tell("/v1/completions", answer("200 OK", "application/json", OK));
    let router = Router::start(settings(&[engine.url()])?).await?;
    let ask = async || send(router.inference, post("/v1/completions", completion(MODEL, "\"x\""))?).await;
    let outcome = |model: &str, outcome: &str| {
        let labels = format!("{{model=\"{model}\",outcome=\"{outcome}\"}}");
        router.metric(&format!("kvasir_request_outcomes_total{labels}")).unwrap_or(0.0)
    };
    let error_type = |status: u16, kind: &str| {
        let page = router.metrics_page();
        let line = page.lines().find(|line| {
            line.starts_with("kthena_router_requests_total{")
                && line.contains(&format!("status_code=\"{status}\""))
                && line.contains(&format!("error_type=\"{kind}\""))
        });
        line.is_some()
    };
    assert_eq!(ask().await?.status(), 200);
    eventually("success", || outcome(MODEL, "success") == 1.0).await;

    engine.tell("/v1/completions", answer("429 Too Many Requests", "application/json", "{}"));
    assert_eq!(ask().await?.status(), 429);
    eventually("the engine's 429", || error_type(429, "upstream_response")).await;

    engine.tell("/v1/completions", Reply::Cut("HTTP/1.1 200 OK\r\ncontent-le".into()));
    assert_eq!(ask().await?.status(), 502);
    eventually("an engine that failed", || outcome(MODEL, "engine_error") == 1.0).await;

    engine.tell("/v1/completions", answer("503 Service Unavailable", "application/json", "{}"));
    assert_eq!(ask().await?.status(), 503);
    eventually("the engine's 503", || outcome(MODEL, "overloaded") == 2.0).await;

    router.gateway.state.drain(&engine.url(), true);
    assert_eq!(ask().await?.status(), 503);
    eventually("no endpoint", || outcome(MODEL, "router_error") == 1.0).await;
    assert!(error_type(503, "pod_discovery"));
    router.gateway.state.drain(&engine.url(), false);

    engine.tell("/v1/completions", Reply::Hang);
    let before = engine.asked("/v1/completions");
    let client =
        Raw::post(router.inference, "/v1/completions", completion(MODEL, "\"x\"").as_bytes()).await?;
    eventually("the engine has it", || engine.asked("/v1/completions") > before).await;
    drop(client);
    eventually("a client that left", || outcome(MODEL, "client_cancelled") == 1.0).await;

    let unknown = send(router.inference, post("/v1/completions", completion("nobody", "\"x\""))?).await?;
    assert_eq!(unknown.status(), 404);
    eventually("a client's mistake", || outcome("unknown", "client_error") == 1.0).await;
    assert_eq!(outcome(MODEL, "success"), 1.0, "only the first was one");
    Ok(())
}

const PAGE: &str = "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_waiting{engine=\"0\"} 3\n";

/// MET-06.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_no_metrics_page_changes_no_number() -> anyhow::Result<()> {
    let engine = Paths::start().await?;
    engine.tell("/v1/completions", answer("200 OK", "application/json", OK));
    engine.tell("/metrics", answer("200 OK", "text/plain", PAGE));
    let mut settings = settings(&[engine.url()])?;
    settings.scrape_interval = Duration::from_millis(50);
    let router = Router::start(settings).await?;
    let waiting = || {
        let endpoints = router.gateway.state.endpoints();
        endpoints
            .first()
            .and_then(|endpoint| endpoint.load.sample)
            .map(|sample| (sample.running, sample.waiting))
    };
    let error =
        || router.gateway.state.endpoints().first().and_then(|endpoint| endpoint.scrape_error.clone());
    let lie = "vllm:num_requests_waiting{engine=\"0\"} 999\n";
    let html = format!("<html><body>{lie}</body></html>");
    for (name, bad) in [
        ("500", answer("500 Internal Server Error", "text/plain", lie)),
        ("html", answer("200 OK", "text/html", &html)),
        ("cut", Reply::Cut(format!("HTTP/1.1 200 OK\r\ncontent-length: 4000\r\n\r\n{lie}").into())),
        ("other", answer("200 OK", "text/plain", "go_goroutines 5\n")),
    ] {
        engine.tell("/metrics", answer("200 OK", "text/plain", PAGE));
        eventually("a good page is read", || waiting() == Some((2, 3)) && error().is_none()).await;
        engine.tell("/metrics", bad);
        eventually("the bad page is refused", || error().is_some()).await;
        assert_eq!(waiting(), Some((2, 3)), "{name}: {:?}", error());
    }
    engine.tell("/metrics", answer("200 OK", "text/plain", PAGE));
    eventually("a good page is read", || error().is_none()).await;
    engine.tell("/metrics", Reply::Hang);
    let before = engine.asked("/metrics");
    eventually("the page hangs", || engine.asked("/metrics") > before).await;
    for _ in 0..20 {
        let answer = send(router.inference, post("/v1/completions", completion(MODEL, "\"x\""))?).await?;
        assert_eq!(answer.status(), 200, "requests do not wait for a page");
    }
    assert!(engine.asked("/metrics") <= before + 2, "one scrape at a time");
    Ok(())
}
