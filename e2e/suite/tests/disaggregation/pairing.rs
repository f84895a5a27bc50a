//! Who can be paired at all: missing roles, engines that are drained or overloaded, and what becomes of a request then.

use std::cell::Cell;

use bytes::Bytes;
use http::Response;
use http::header::RETRY_AFTER;
use kvasir_mock_engine::{ConnectorKind, Engine, EngineConfig, Fault, Role};
use kvasir_settings::Settings;
use kvasir_settings::resolved::PdFallback;
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use tokio::task::JoinHandle;

use crate::placement::served;
use crate::site::{COMPLETIONS, Site, Sketch, completion, ids, is_whole, requests, streamed};

fn code(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    value["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// Wants a 503 that says when to come back, without any engine asked.
async fn is_unavailable(site: &Site) -> anyhow::Result<()> {
    let answer = site.ask(COMPLETIONS, completion(1, 40)).await?;
    assert_eq!((answer.status().as_u16(), code(answer.body())), (503, "no_endpoint".to_owned()));
    assert!(answer.headers().contains_key(RETRY_AFTER));
    site.is_clean().await;
    assert!(site.groups.iter().all(|group| group.fabric.exchanges().is_empty()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_decode_engine_the_model_is_unavailable() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        is_unavailable(&Sketch::of(connector, 1).each(2, 0).build().await?).await?;
    }
    Ok(())
}

fn falls_back(settings: &mut Settings) {
    settings.limits.pd_fallback = PdFallback::Aggregated;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_prefill_engine_a_decode_engine_does_all_only_where_that_is_asked_for() -> anyhow::Result<()>
{
    for connector in ConnectorKind::ALL {
        let lenient = || Sketch::of(connector, 1).each(0, 2).parts(|part| part.serves_whole = true);
        is_unavailable(&lenient().build().await?).await?;
        let site = lenient().router(falls_back).build().await?;
        for body in [completion(1, 40), streamed(2, 5)] {
            assert!(is_whole(site.answer(COMPLETIONS, body.clone()).await?.body()), "{connector}");
            let bodies = site.groups[0].decodes.iter().flat_map(requests).map(|request| request.body);
            let whole = bodies.last().expect("was asked");
            assert!(
                !String::from_utf8_lossy(&whole).contains("kv_transfer_params"),
                "{connector}: {whole:?}"
            );
            assert!(!String::from_utf8_lossy(&whole).contains("bootstrap"), "{connector}: {whole:?}");
        }
        site.is_clean().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_prefill_engine_fails_a_decode_engine_does_all_where_that_is_asked_for()
-> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for (fault, off) in
            [(Fault::RefuseConnections, 503), (Fault::Status { code: 503, body: "{}".to_owned() }, 503)]
        {
            let lenient = || Sketch::of(connector, 1).parts(|part| part.serves_whole = true);
            let site = lenient().build().await?;
            site.groups[0].spoil_prefill(fault.clone()).await;
            let answer = site.ask(COMPLETIONS, completion(1, 40)).await?;
            assert_eq!(answer.status(), off, "{connector} {fault:?}: {:?}", answer.body());
            site.is_clean().await;
            let site = lenient().router(falls_back).build().await?;
            site.groups[0].spoil_prefill(fault.clone()).await;
            let answer = site.ask(COMPLETIONS, completion(2, 40)).await?;
            assert_eq!(answer.status(), 200, "{connector} {fault:?}: {:?}", answer.body());
            assert!(is_whole(answer.body()));
            site.is_clean().await;
        }
    }
    Ok(())
}

/// Drains the engine by hand, or ends that.
async fn drain(site: &Site, engine: &Engine, ends: bool) -> anyhow::Result<()> {
    let order = if ends { "undrain" } else { "drain" };
    let path = format!("/endpoints/{order}?endpoint={}", engine.url());
    let answer = send(site.router.admin, post(&path, "")?).await?;
    anyhow::ensure!(answer.status() == 200, "{:?}", answer.body());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_prefill_engine_gets_nothing_new() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Lmcache, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 1).each(2, 2).build().await?;
        let [drained, other] = &site.groups[0].prefills[..] else { anyhow::bail!("two engines") };
        drain(&site, drained, false).await?;
        for seed in 0..12 {
            assert!(is_whole(site.answer(COMPLETIONS, completion(seed, 40)).await?.body()));
        }
        assert_eq!((served(&site, drained), served(&site, other)), (0, 12), "{connector}");
        drain(&site, drained, true).await?;
        drain(&site, other, false).await?;
        for seed in 20..26 {
            assert!(is_whole(site.answer(COMPLETIONS, completion(seed, 40)).await?.body()));
        }
        assert_eq!((served(&site, drained), served(&site, other)), (6, 12), "{connector}");
        site.is_clean().await;
    }
    Ok(())
}

fn filters(settings: &mut Settings) {
    settings.scheduler.filters = vec!["least-request".to_owned()];
    settings.scheduler.args.least_request.max_waiting_requests = 3;
}

/// So slow that a queue forms.
fn crawls(config: &mut EngineConfig) {
    (config.max_running, config.prefill_us_per_token, config.decode_us_per_token) = (1, 1e9, 1e9);
}

type Asked = JoinHandle<anyhow::Result<Response<Bytes>>>;

/// Asks an engine directly, six times, and waits until the router has seen its queue.
async fn crowd(site: &Site, engine: &Engine, fields: &str) -> anyhow::Result<Vec<Asked>> {
    let mut crowd = Vec::new();
    for seed in 0..6 {
        let body = format!(r#"{{"prompt":{}{fields}}}"#, ids(500 + seed, 40));
        crowd.push(tokio::spawn(send(engine.address(), post(COMPLETIONS, body)?)));
    }
    eventually("the router sees the queue", || {
        let endpoints = site.router.gateway.state.endpoints();
        let seen = endpoints.iter().find(|one| one.url == engine.url()).and_then(|one| one.load.sample);
        seen.is_some_and(|sample| sample.waiting >= 4)
    })
    .await;
    Ok(crowd)
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_prefill_engine_is_overloaded_the_answer_is_429() -> anyhow::Result<()> {
    let sketch = Sketch::of(ConnectorKind::Http, 1).router(filters).engines_that(Role::Prefill, crawls);
    let site = sketch.build().await?;
    let crowd = crowd(&site, &site.groups[0].prefills[0], r#","max_tokens":1"#).await?;
    let answer = site.ask(COMPLETIONS, completion(1, 40)).await?;
    assert_eq!(answer.status(), 429, "{:?}", answer.body());
    assert!(answer.headers().contains_key(RETRY_AFTER));
    assert!(site.exchanges(Role::Decode).is_empty());
    crowd.iter().for_each(JoinHandle::abort);
    site.is_clean().await;
    Ok(())
}

/// PD-07.
#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_decode_engine_is_filtered() -> anyhow::Result<()> {
    let first = Cell::new(true);
    let sketch = Sketch::of(ConnectorKind::Http, 1)
        .each(1, 2)
        .router(filters)
        .parts(|part| part.serves_whole = true)
        .engines_that(Role::Decode, move |config| {
            if first.replace(false) {
                crawls(config);
            }
        });
    let site = sketch.build().await?;
    let [full, free] = &site.groups[0].decodes[..] else { anyhow::bail!("two engines") };
    let crowd = crowd(&site, full, "").await?;
    for seed in 0..8 {
        assert!(is_whole(site.answer(COMPLETIONS, completion(seed, 40)).await?.body()));
    }
    let decodes = site.exchanges(Role::Decode);
    assert_eq!(decodes.len(), 8);
    assert!(decodes.iter().all(|one| one.engine == free.address()));
    crowd.iter().for_each(JoinHandle::abort);
    site.is_clean().await;
    Ok(())
}
