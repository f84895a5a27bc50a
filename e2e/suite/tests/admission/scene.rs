//! An engine that answers when told, a router with a queue before it, and clients that come in a known order.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use kvasir_settings::Settings;
use kvasir_settings::resolved::{AdmissionSettings, FairnessSettings};
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};
use tokio::task::JoinHandle;

/// The header that says who a client is.
pub const USER: &str = "x-user";
/// Tells the requests of a test apart, at the engine too.
pub const NUMBER: &str = "x-number";

/// A client that waits for its answer.
pub type Asked = JoinHandle<anyhow::Result<Response<Bytes>>>;

/// Fairness with one place, where waiting is worth nothing, so that use alone decides.
pub fn one_at_a_time() -> FairnessSettings {
    FairnessSettings {
        user_header: Some(USER.to_owned()),
        max_concurrent: 1,
        ageing: 0.0,
        ..FairnessSettings::default()
    }
}

/// An engine that holds every request until [`Scripted::proceed`], and then says that it took 200 weighted tokens.
pub async fn engine() -> Scripted {
    engine_that_counts(100, 50).await
}

/// The same with other numbers of tokens.
pub async fn engine_that_counts(prompt: u32, completion: u32) -> Scripted {
    let answer = format!(
        r#"{{"id":"1","choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
        prompt + completion
    );
    let script = vec![Step::Wait, Step::Send(json_answer("200 OK", &answer)), Step::Again];
    Scripted::start(script).await.unwrap()
}

/// Settings of a router before these engines.
pub fn settings_of(engines: &[&Scripted], admission: AdmissionSettings) -> Settings {
    let urls: Vec<String> = engines.iter().map(|engine| engine.url()).collect();
    let mut settings = settings(&urls).unwrap();
    settings.admission = admission;
    settings
}

/// A router before one engine.
pub async fn router(engine: &Scripted, fairness: FairnessSettings) -> Router {
    Router::start(settings_of(&[engine], AdmissionSettings::Fairness(fairness))).await.unwrap()
}

/// Asks for the model, with these headers.
pub fn ask(router: &Router, headers: &[(&str, &str)]) -> Asked {
    ask_for(router, MODEL, headers)
}

/// Asks for a model, with these headers.
pub fn ask_for(router: &Router, model: &str, headers: &[(&str, &str)]) -> Asked {
    let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
    let mut request = post("/v1/chat/completions", body).unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    tokio::spawn(send(router.inference, request))
}

/// Waits until so many requests are in the fairness queue.
pub async fn waiting(router: &Router, number: usize) {
    let series = format!(r#"kthena_router_fairness_queue_size{{model="{MODEL}",user_id="_all"}}"#);
    eventually(&format!("{number} wait"), || router.metric(&series).unwrap_or(0.0) == number as f64).await;
}

/// Waits until so many requests have come to the engine.
pub async fn arrived(engine: &Scripted, number: usize) {
    eventually(&format!("{number} are at the engine"), || engine.arrived().len() == number).await;
}

/// Takes the one place, so that whoever comes next waits.
pub async fn occupy(router: &Router, engine: &Scripted, headers: &[(&str, &str)]) -> Asked {
    let before = engine.arrived().len();
    let asked = ask(router, headers);
    arrived(engine, before + 1).await;
    asked
}

/// Has the engine answer one after the other until `number` more have come to it, and answers the last one too.
pub async fn serve(engine: &Scripted, number: usize) {
    let before = engine.arrived().len();
    for more in 1..=number {
        engine.proceed();
        arrived(engine, before + more).await;
    }
    engine.proceed();
}

/// One header of the requests that came to the engine, in their order, after the first `skipped`.
pub fn order_of(engine: &Scripted, header: &str, skipped: usize) -> Vec<String> {
    let prefix = format!("{header}: ");
    let of = |head: &str| head.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("-").to_owned();
    engine.arrived().iter().skip(skipped).map(|request| of(&request.head)).collect()
}

/// Status and error code of an answer.
pub async fn outcome(asked: Asked) -> (u16, String) {
    let answer = asked.await.unwrap().unwrap();
    let value: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    (answer.status().as_u16(), value["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// A time-out that no test waits for.
pub const LONG: Duration = Duration::from_secs(600);
