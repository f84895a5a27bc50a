//! Mock engines for these cases: quick ones, asked directly or through a router.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use kvasir_core::{Completeness, OwnerSlot};
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::Settings;
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};

/// An engine whose answers are short and come at once.
pub fn quick() -> EngineConfig {
    EngineConfig {
        model: MODEL.to_owned(),
        prefill_us_per_token: 1.0,
        decode_us_per_token: 50.0,
        answer_tokens: 4,
        ..EngineConfig::default()
    }
}

/// Two of them, and what a router over them is told.
pub async fn pair(config: &EngineConfig) -> anyhow::Result<([Engine; 2], Settings)> {
    let engines = [Engine::start(config.clone()).await?, Engine::start(config.clone()).await?];
    let mut told = settings(&engines.each_ref().map(Engine::url))?;
    told.scrape_interval = Duration::from_millis(100);
    Ok((engines, told))
}

/// A completion of `prompt`, which is JSON.
pub fn completion(model: &str, prompt: &str) -> String {
    format!(r#"{{"model":"{model}","max_tokens":2,"prompt":{prompt}}}"#)
}

/// A prompt of `count` token ids, as JSON. Ids need no tokenizer, so that how busy the machine is decides nothing.
/// Prompts of other seeds share no block with it.
pub fn ids(seed: u32, count: u32) -> String {
    let ids: Vec<String> = (0..count).map(|number| (seed * 100_000 + number + 1).to_string()).collect();
    format!("[{}]", ids.join(","))
}

/// A text of `words` words, as JSON.
pub fn text(name: &str, words: usize) -> String {
    format!("\"{}\"", format!("{name} ").repeat(words))
}

/// Sends a completion and wants a 200.
pub async fn complete(to: SocketAddr, body: String) -> anyhow::Result<Response<Bytes>> {
    let answer = send(to, post("/v1/completions", body)?).await?;
    anyhow::ensure!(answer.status() == 200, "{}: {:?}", answer.status(), answer.body());
    Ok(answer)
}

/// Inference requests that an engine got.
pub fn served(engine: &Engine) -> usize {
    let requests = engine.requests();
    requests.iter().filter(|one| one.method == Method::POST && one.path.starts_with("/v1/")).count()
}

/// What an endpoint is called in headers and labels.
pub fn id_of(engine: &Engine) -> String {
    format!("default/{}", engine.address())
}

/// What the router knows of an engine's cache: how far, and how many blocks.
pub fn known(router: &Router, engine: &Engine) -> Option<(Completeness, usize)> {
    let slot = slot_of(router, engine)?;
    let stats = router.gateway.index.stats();
    stats.iter().find(|owner| owner.slot == slot).map(|owner| (owner.completeness, owner.blocks))
}

/// The engine's number in the index.
pub fn slot_of(router: &Router, engine: &Engine) -> Option<OwnerSlot> {
    let endpoints = router.gateway.state.endpoints();
    endpoints.iter().find(|endpoint| endpoint.url == engine.url()).map(|endpoint| endpoint.slot)
}

/// Waits until the router knows of at least `blocks` blocks of an engine, exactly.
pub async fn learned(router: &Router, engine: &Engine, blocks: usize) {
    eventually("the engine's blocks are known", || {
        known(router, engine).is_some_and(|(how, there)| how == Completeness::Exact && there >= blocks)
    })
    .await;
}
