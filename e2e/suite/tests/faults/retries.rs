//! Retries: whole bodies at any size, no blame for bad requests, hung and absent engines passed over.

use std::time::{Duration, Instant};

use kvasir_core::Completeness;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};
use serde_json::Value;

use crate::fleet::{complete, completion, id_of, ids, known, pair, quick};

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;

/// RET-01. The model is an alias, so that a body that was rewritten twice would show.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_any_size_goes_whole_to_the_next_engine() -> anyhow::Result<()> {
    for size in [1 << 10, 64 << 10, 65 << 10, 2 << 20] {
        let bad = Scripted::start(vec![Step::Close]).await?;
        let good = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
        let mut settings = settings(&[bad.url(), good.url()])?;
        settings.models[0].aliases = vec!["alias".into()];
        let router = Router::start(settings).await?;
        let body = |model: &str| format!(r#"{{"model":"{model}","prompt":"{}"}}"#, "y".repeat(size));
        for _ in 0..64 {
            let answer = send(router.inference, post("/v1/completions", body("alias"))?).await?;
            assert_eq!(answer.status(), 200, "{size} bytes");
            if !bad.arrived().is_empty() {
                break;
            }
        }
        assert!(!bad.arrived().is_empty(), "the bad engine was never asked");
        for arrived in bad.arrived().iter().chain(&good.arrived()) {
            assert!(arrived.body == body(MODEL), "{size}: {} bytes arrived", arrived.body.len());
        }
    }
    Ok(())
}

/// RET-03.
#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_take_no_engine_out() -> anyhow::Result<()> {
    let (_engines, settings) = pair(&EngineConfig { max_model_len: 64, ..quick() }).await?;
    let router = Router::start(settings).await?;
    let long = completion(MODEL, &ids(1, 400));
    for _ in 0..20 {
        let answer = send(router.inference, post("/v1/completions", long.clone())?).await?;
        assert_eq!(answer.status(), 400, "{:?}", answer.body());
    }
    complete(router.inference, completion(MODEL, "\"short\"")).await?;
    for endpoint in router.gateway.state.endpoints() {
        assert_eq!((endpoint.health, endpoint.failures), ("healthy", Default::default()), "{}", endpoint.url);
    }
    assert_eq!(router.metric("kvasir_retries_total"), None, "a bad request is not tried elsewhere");
    Ok(())
}

/// RET-08.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_engine_is_avoided_after_a_few_failures() -> anyhow::Result<()> {
    let hung = Scripted::start(vec![Step::Hold]).await?;
    let good = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let mut settings = settings(&[hung.url(), good.url()])?;
    settings.limits.first_byte_timeout = Duration::from_millis(150);
    let router = Router::start(settings).await?;
    let began = Instant::now();
    let mut late = 0;
    for _ in 0..50 {
        let answer = send(router.inference, post("/v1/completions", completion(MODEL, "\"x\""))?).await?;
        match answer.status().as_u16() {
            200 => {}
            504 => late += 1,
            other => panic!("status {other}: {:?}", answer.body()),
        }
    }
    assert_eq!(late, hung.arrived().len(), "every request that met the hung engine was told, and no other");
    // Three failures take it out; then one trial may be made each time its back-off has passed.
    let trials = usize::try_from(began.elapsed().as_secs())?;
    assert!(late <= 3 + trials, "{late} requests met the hung engine in {:?}", began.elapsed());
    assert_eq!(good.arrived().len(), 50 - late);
    Ok(())
}

/// RET-08: the healthy engine's requests do not wait for those of the hung one.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_engine_holds_up_nobody_else() -> anyhow::Result<()> {
    let hung = Scripted::start(vec![Step::Hold]).await?;
    let good = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let router = Router::start(settings(&[hung.url(), good.url()])?).await?;
    let to = router.inference;
    let mut waiting = Vec::new();
    // Equals are chosen by chance and the less loaded one first, so both are met soon.
    while hung.arrived().is_empty() {
        waiting.push(tokio::spawn(async move { complete(to, completion(MODEL, "\"x\"")).await }));
        eventually("the request is at an engine", || {
            hung.arrived().len() + good.arrived().len() == waiting.len()
        })
        .await;
    }
    let before = good.arrived().len();
    let good_is_idle = || {
        let endpoints = router.gateway.state.endpoints();
        endpoints.iter().any(|endpoint| endpoint.url == good.url() && endpoint.load.in_flight == 0)
    };
    for _ in 0..20 {
        // The client may have its answer a moment before the engine counts as idle; then the two are equals again.
        eventually("the good engine is idle", good_is_idle).await;
        complete(to, completion(MODEL, "\"x\"")).await?;
    }
    assert_eq!(good.arrived().len(), before + 20);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_every_endpoint_down_the_answer_says_when_to_come_back() -> anyhow::Result<()> {
    let (engines, settings) = pair(&quick()).await?;
    for engine in &engines {
        engine.stop().await;
    }
    let router = Router::start(settings).await?;
    let answer = send(router.inference, post("/v1/completions", completion(MODEL, "\"x\""))?).await?;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("1"));
    let error: Value = serde_json::from_slice(answer.body())?;
    assert!(error["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    let failed = format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"success\"}}");
    assert_eq!(router.metric(&failed), None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_comes_up_later_is_picked_up_with_its_events() -> anyhow::Result<()> {
    let ([early, late], settings) = pair(&quick()).await?;
    late.stop().await;
    let router = Router::start(settings).await?;
    complete(router.inference, completion(MODEL, &ids(1, 160))).await?;
    late.restart().await?;
    complete(late.address(), completion(MODEL, &ids(2, 160))).await?;
    let knows = |engine: &Engine| {
        known(&router, engine).is_some_and(|(how, blocks)| how == Completeness::Exact && blocks > 0)
    };
    eventually("both engines' caches are known", || knows(&early) && knows(&late)).await;
    let is_back = || router.gateway.state.endpoints().iter().all(|endpoint| endpoint.available);
    eventually("both engines are in service", is_back).await;
    let answer = complete(router.inference, completion(MODEL, &ids(2, 160))).await?;
    let by = answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok());
    assert_eq!(by, Some(id_of(&late).as_str()), "what it holds counts at once");
    Ok(())
}
