//! What the router answers by itself: health, models, bad input, limits, headers.

use std::io::Write as _;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use kvasir_suite::client::{get, post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};
use serde_json::Value;

const OK: &str =
    r#"{"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

async fn engine() -> anyhow::Result<Scripted> {
    Ok(Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?)
}

fn error(body: &Bytes) -> Value {
    serde_json::from_slice::<Value>(body).unwrap_or_default()["error"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_models() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].aliases = vec!["alias".into()];
    settings.models[0].adapters = vec!["sql".into()];
    let router = Router::start(settings).await?;
    let health = send(router.inference, get("/healthz")?).await?;
    assert_eq!((health.status().as_u16(), health.body().as_ref()), (200, br#"{"message":"ok"}"#.as_ref()));
    let ready = send(router.inference, get("/readyz")?).await?;
    assert_eq!(
        (ready.status().as_u16(), ready.body().as_ref()),
        (200, br#"{"message":"router is ready"}"#.as_ref())
    );
    let models = send(router.inference, get("/v1/models")?).await?;
    let models: Value = serde_json::from_slice(models.body())?;
    let ids: Vec<_> =
        models["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids, ["alias", "sql", MODEL]);
    assert_eq!(send(router.inference, get("/v1/models/alias")?).await?.status(), 200);
    assert_eq!(send(router.inference, get("/v1/models/none")?).await?.status(), 404);
    assert_eq!(send(router.inference, get("/nowhere")?).await?.status(), 404);
    assert_eq!(send(router.inference, get("/v1/completions")?).await?.status(), 405);
    assert_eq!(send(router.metrics, get("/metrics")?).await?.status(), 200);
    assert_eq!(send(router.metrics, get("/")?).await?.status(), 404);
    router.signals.stop.cancel();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_get_a_400_that_names_the_field() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let deep = "[".repeat(100_000);
    let cases: Vec<(Vec<u8>, u16)> = vec![
        (b"".to_vec(), 400),
        (b"{".to_vec(), 400),
        (b"[]".to_vec(), 400),
        (b"\"x\"".to_vec(), 400),
        (br#"{"model":5}"#.to_vec(), 400),
        (br#"{"model":null}"#.to_vec(), 400),
        (br#"{"prompt":"x"}"#.to_vec(), 400),
        (b"{\"model\":\"\xff\"}".to_vec(), 400),
        (format!("{{\"model\":\"{MODEL}\",\"x\":{deep}}}").into_bytes(), 400),
        (format!("{{\"model\":\"{MODEL}\"}} x").into_bytes(), 400),
        (br#"{"model":"unknown"}"#.to_vec(), 404),
    ];
    for (body, status) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = send(router.inference, post("/v1/completions", body)?).await?;
        assert_eq!(answer.status().as_u16(), status, "{shown}: {:?}", answer.body());
        let error = error(answer.body());
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{shown}: {error}");
        assert!(answer.headers().contains_key("x-request-id"), "{shown}");
    }
    assert!(engine.arrived().is_empty(), "no bad body may reach an engine");
    for name in 0..200 {
        send(router.inference, post("/v1/completions", format!("{{\"model\":\"random-{name}\"}}"))?).await?;
    }
    let page = router.metrics_page();
    assert!(!page.contains("random-"), "client-chosen names must not become labels");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_encodings_and_upgrades() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.limits.max_body_bytes = 10_000;
    let router = Router::start(settings).await?;
    let large = format!(r#"{{"model":"{MODEL}","prompt":"{}"}}"#, "x".repeat(20_000));
    assert_eq!(send(router.inference, post("/v1/completions", large.clone())?).await?.status(), 413);

    let plain = format!(r#"{{"model":"{MODEL}","prompt":"zip"}}"#);
    let zip = |text: &str| -> anyhow::Result<Vec<u8>> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes())?;
        Ok(encoder.finish()?)
    };
    let mut zipped = post("/v1/completions", zip(&plain)?)?;
    zipped.headers_mut().insert("content-encoding", "gzip".parse()?);
    assert_eq!(send(router.inference, zipped).await?.status(), 200);
    let arrived = engine.arrived().pop().unwrap_or_default();
    assert_eq!(arrived.body, plain, "the engine gets the plain body");
    assert!(!arrived.head.to_lowercase().contains("content-encoding"));
    let mut bomb = post("/v1/completions", zip(&large)?)?;
    bomb.headers_mut().insert("content-encoding", "gzip".parse()?);
    assert_eq!(send(router.inference, bomb).await?.status(), 413);
    let mut brotli = post("/v1/completions", plain.clone())?;
    brotli.headers_mut().insert("content-encoding", "br".parse()?);
    assert_eq!(send(router.inference, brotli).await?.status(), 415);
    let mut image = post("/v1/completions", plain)?;
    image.headers_mut().insert("content-type", "image/png".parse()?);
    assert_eq!(send(router.inference, image).await?.status(), 415);
    let mut upgrade = get("/v1/realtime")?;
    upgrade.headers_mut().insert("upgrade", "websocket".parse()?);
    upgrade.headers_mut().insert("connection", "upgrade".parse()?);
    assert_eq!(send(router.inference, upgrade).await?.status(), 426);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_not_the_engines_business_stay_here() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/completions?x=1")
        .header("host", "public.example")
        .header("content-type", "application/json")
        .header("authorization", "Bearer secret")
        .header("cookie", "a=b")
        .header("x-api-key", "secret")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("x-data-parallel-rank", "7")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("x-request-id", "my-id")
        .header("x-custom", "kept")
        .body(Full::new(Bytes::from(format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#))))?;
    let answer = send(router.inference, request).await?;
    assert_eq!(answer.headers().get("x-request-id").and_then(|v| v.to_str().ok()), Some("my-id"));
    assert!(answer.headers().contains_key("x-kvasir-endpoint"));
    let head = engine.arrived().pop().unwrap_or_default().head.to_lowercase();
    assert!(head.starts_with("post /v1/completions?x=1 http/1.1"), "{head}");
    for kept in [
        "traceparent: 00-0af7",
        "x-request-id: my-id",
        "x-custom: kept",
        &format!("host: {}", engine.address),
    ] {
        assert!(head.contains(kept), "{kept} is missing in {head}");
    }
    for dropped in ["authorization", "cookie", "x-api-key", "x-hop", "x-data-parallel-rank", "public.example"]
    {
        assert!(!head.contains(dropped), "{dropped} must not go on: {head}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_is_rewritten_and_nothing_else_is_touched() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].aliases = vec!["gpt \"4\"".into()];
    settings.models[0].adapters = vec!["sql".into()];
    let router = Router::start(settings).await?;
    let body = "{ \"z\": 1.0, \"model\" : \"gpt \\\"4\\\"\", \"big\":12345678901234567890, \"prompt\":\"h\u{e9} & <b>\" }";
    send(router.inference, post("/v1/completions", body)?).await?;
    let arrived = engine.arrived().pop().unwrap_or_default();
    assert_eq!(arrived.body, body.replace("\"gpt \\\"4\\\"\"", &format!("\"{MODEL}\"")));
    send(router.inference, post("/v1/completions", r#"{"model":"sql","prompt":"x"}"#)?).await?;
    assert_eq!(engine.arrived().pop().unwrap_or_default().body.as_ref(), br#"{"model":"sql","prompt":"x"}"#);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_responses_go_to_the_endpoint_that_holds_them() -> anyhow::Result<()> {
    let script = |id: &str| {
        let body =
            format!(r#"{{"id":"{id}","object":"response","usage":{{"input_tokens":3,"output_tokens":1}}}}"#);
        vec![Step::Send(json_answer("200 OK", &body)), Step::Again]
    };
    let (first, second) =
        (Scripted::start(script("resp_a")).await?, Scripted::start(script("resp_b")).await?);
    let router = Router::start(settings(&[first.url(), second.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","input":"hello"}}"#);
    let answer = send(router.inference, post("/v1/responses", body)?).await?;
    let id = serde_json::from_slice::<Value>(answer.body())?["id"].as_str().unwrap_or_default().to_owned();
    let (holder, other) = if id == "resp_a" { (&first, &second) } else { (&second, &first) };
    for _ in 0..10 {
        let next = format!(r#"{{"model":"{MODEL}","input":"more","previous_response_id":"{id}"}}"#);
        assert_eq!(send(router.inference, post("/v1/responses", next)?).await?.status(), 200);
        assert_eq!(send(router.inference, get(&format!("/v1/responses/{id}"))?).await?.status(), 200);
    }
    assert_eq!((holder.arrived().len(), other.arrived().len()), (21, 0));
    let unknown = format!(r#"{{"model":"{MODEL}","input":"more","previous_response_id":"resp_never"}}"#);
    let answer = send(router.inference, post("/v1/responses", unknown)?).await?;
    assert_eq!(
        (answer.status().as_u16(), error(answer.body())["code"].as_str()),
        (400, Some("response_not_found"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_drained_by_hand_and_decisions_are_explained() -> anyhow::Result<()> {
    let (first, second) = (engine().await?, engine().await?);
    let router = Router::start(settings(&[first.url(), second.url()])?).await?;
    let drain = format!("/endpoints/drain?endpoint={}", first.url());
    assert_eq!(send(router.admin, post(&drain, "")?).await?.status(), 200);
    assert_eq!(send(router.admin, post("/endpoints/drain?endpoint=nobody", "")?).await?.status(), 400);
    for number in 0..20 {
        let mut request = post("/v1/completions", format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#))?;
        request.headers_mut().insert("x-request-id", format!("r-{number}").parse()?);
        send(router.inference, request).await?;
    }
    assert_eq!((first.arrived().len(), second.arrived().len()), (0, 20));
    eventually("the last decision is in the ring", || router.gateway.ring.get("r-19").is_some()).await;
    let record = send(router.admin, get("/explain/r-19")?).await?;
    let record: Value = serde_json::from_slice(record.body())?;
    assert_eq!(record["outcome"]["status"], 200);
    assert_eq!(record["candidates"].as_array().map(Vec::len), Some(1));
    let table = kvasir::explain::render(&record);
    assert!(table.contains("attempt") && table.contains("status 200"), "{table}");
    let dry =
        send(router.admin, post("/explain", format!(r#"{{"model":"{MODEL}","messages":[]}}"#))?).await?;
    let dry: Value = serde_json::from_slice(dry.body())?;
    assert!(dry["picks"].as_array().is_some_and(|picks| !picks.is_empty()), "{dry}");
    assert_eq!(second.arrived().len(), 20, "a dry run sends nothing");
    let undrain = format!("/endpoints/undrain?endpoint={}", first.url());
    assert_eq!(send(router.admin, post(&undrain, "")?).await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_streams_finish_and_refuses_readiness_first() -> anyhow::Result<()> {
    let script = vec![Step::Wait, Step::Send(json_answer("200 OK", OK))];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let request = post("/v1/completions", format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#))?;
    let running = tokio::spawn(send(router.inference, request));
    eventually("the request is inside", || engine.arrived().len() == 1).await;
    router.signals.stop.cancel();
    eventually("readiness fails", || !router.gateway.readiness.is_ready()).await;
    assert_eq!(router.gateway.readiness.inside(), 1);
    engine.proceed();
    assert_eq!(running.await??.status(), 200);
    assert_eq!(router.stop().await?, kvasir_gateway::listener::Served::Drained);
    Ok(())
}
