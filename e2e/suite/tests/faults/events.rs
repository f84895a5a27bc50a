//! KV events over real sockets: a router that starts late, a cache that is cleared, an engine that sleeps or restarts.

use std::time::Duration;

use kvasir_core::Completeness;
use kvasir_mock_engine::{Engine, EngineConfig, EventsConfig, Fault};
use kvasir_suite::eventually;
use kvasir_suite::paths::{Paths, Reply, answer};
use kvasir_suite::router::{MODEL, Router, settings};

use crate::fleet::{complete, completion, id_of, ids, known, learned, pair, quick, slot_of};

/// The endpoint that answered.
fn by(answer: &http::Response<bytes::Bytes>) -> &str {
    answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// KVE-06: what was published before the router was there is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_starts_late_knows_what_engines_hold() -> anyhow::Result<()> {
    let (engines, settings) = pair(&quick()).await?;
    for (number, engine) in (0..).zip(&engines) {
        for part in 0..3 {
            complete(engine.address(), completion(MODEL, &ids(number * 10 + part, 300))).await?;
        }
    }
    for _restart in 0..2 {
        let router = Router::start(settings.clone()).await?;
        for (number, engine) in (0..).zip(&engines) {
            learned(&router, engine, 10).await;
            let prompt = completion(MODEL, &ids(number * 10 + 1, 300));
            assert_eq!(by(&complete(router.inference, prompt).await?), id_of(engine));
        }
        router.stop().await?;
    }
    Ok(())
}

/// KVE-06: where nothing can be asked for, the knowledge is called partial, and what is removed later is harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_out_of_reach_is_said_to_be_partial() -> anyhow::Result<()> {
    let events = EventsConfig { replay: false, ..EventsConfig::default() };
    let engine = Engine::start(EngineConfig { events: Some(events), kv_blocks: 40, ..quick() }).await?;
    complete(engine.address(), completion(MODEL, &ids(9, 300))).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    // Small enough a cache that each of these throws out what came before.
    for number in 0..4 {
        complete(router.inference, completion(MODEL, &ids(number, 300))).await?;
    }
    let partial = format!(
        "kvasir_index_blocks{{model=\"{MODEL}\",endpoint=\"{}\",completeness=\"partial\"}}",
        id_of(&engine)
    );
    eventually("it is told as partial", || router.metric(&partial).is_some_and(|blocks| blocks > 0.0)).await;
    let slot = slot_of(&router, &engine);
    eventually("unknown blocks were removed", || {
        let stats = router.gateway.index.stats();
        stats.iter().any(|owner| Some(owner.slot) == slot && owner.unknown_removals > 0)
    })
    .await;
    Ok(())
}

/// KVE-08: a cleared cache is forgotten; the other engine's copy of the same blocks stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleared_cache_is_forgotten_and_only_that_one() -> anyhow::Result<()> {
    let ([cleared, kept], settings) = pair(&quick()).await?;
    let router = Router::start(settings).await?;
    let prompt = completion(MODEL, &ids(1, 600));
    for engine in [&cleared, &kept] {
        complete(engine.address(), prompt.clone()).await?;
        learned(&router, engine, 20).await;
    }
    let before = known(&router, &kept);
    assert!(cleared.reset_prefix_cache());
    // Like vLLM, the engine publishes the clear with its next batch.
    complete(cleared.address(), completion(MODEL, &ids(2, 40))).await?;
    eventually("the cleared cache is forgotten", || {
        known(&router, &cleared).is_some_and(|(_, blocks)| blocks < 10)
    })
    .await;
    assert_eq!(known(&router, &kept), before);
    assert_eq!(by(&complete(router.inference, prompt).await?), id_of(&kept));
    Ok(())
}

/// A vLLM metrics page that says whether the engine sleeps.
fn page(asleep: bool) -> Reply {
    let (awake, weights) = if asleep { (0, 1) } else { (1, 0) };
    answer(
        "200 OK",
        "text/plain",
        &format!(
            "vllm:num_requests_running{{engine=\"0\"}} 0\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {awake}\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"weights_offloaded\"}} {weights}\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"discard_all\"}} 0\n"
        ),
    )
}

/// KVE-08, second run: no event, but the engine says that it sleeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_engine_is_passed_over_and_its_cache_forgotten() -> anyhow::Result<()> {
    let ok = answer("200 OK", "application/json", r#"{"id":"c","choices":[]}"#);
    let engines = [Paths::start().await?, Paths::start().await?];
    for engine in &engines {
        engine.tell("/v1/completions", ok.clone());
        engine.tell("/metrics", page(false));
    }
    let mut settings = settings(&engines.each_ref().map(Paths::url))?;
    settings.scrape_interval = Duration::from_millis(50);
    let router = Router::start(settings).await?;
    let prompt = completion(MODEL, &ids(1, 640));
    let holder = by(&complete(router.inference, prompt.clone()).await?).to_owned();
    let is_holder = |engine: &&Paths| holder == format!("default/{}", engine.address);
    let sleeper = engines.iter().find(is_holder).ok_or_else(|| anyhow::anyhow!("{holder}?"))?;
    let held = || {
        let endpoints = router.gateway.state.endpoints();
        let slot =
            endpoints.iter().find(|endpoint| endpoint.url == sleeper.url()).map(|endpoint| endpoint.slot);
        let stats = router.gateway.index.stats();
        stats
            .iter()
            .filter(|owner| Some(owner.slot) == slot)
            .map(|owner| owner.predicted_blocks)
            .sum::<usize>()
    };
    eventually("its placement is remembered", || held() == 40).await;
    sleeper.tell("/metrics", page(true));
    eventually("its cache is forgotten", || held() == 0).await;
    for _ in 0..5 {
        assert_ne!(by(&complete(router.inference, prompt.clone()).await?), holder);
    }
    let resets = format!("kvasir_index_resets_total{{model=\"{MODEL}\",endpoint=\"{holder}\"}}");
    let scrapes = sleeper.asked("/metrics");
    eventually("it is scraped several times", || sleeper.asked("/metrics") > scrapes + 4).await;
    assert_eq!(router.metric(&resets), Some(1.0), "falling asleep is one reset, however long it sleeps");
    sleeper.tell("/metrics", page(false));
    let awake = || router.gateway.state.endpoints().iter().all(|endpoint| endpoint.available);
    eventually("it is in service again", awake).await;
    Ok(())
}

/// STL-03: an engine that restarts in place counts from 0 again; what it held is gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_restarts_in_place_starts_empty() -> anyhow::Result<()> {
    let ([restarts, other], settings) = pair(&quick()).await?;
    let router = Router::start(settings).await?;
    let prompt = completion(MODEL, &ids(3, 600));
    for _ in 0..3 {
        complete(restarts.address(), prompt.clone()).await?;
    }
    learned(&router, &restarts, 20).await;
    complete(other.address(), prompt.clone()).await?;
    learned(&router, &other, 20).await;
    restarts.restart().await?;
    // Its first batch after the restart has a number that was seen before.
    complete(restarts.address(), completion(MODEL, &ids(4, 40))).await?;
    eventually("the old blocks are forgotten", || {
        known(&router, &restarts)
            .is_some_and(|(how, blocks)| how == Completeness::Exact && (1..10).contains(&blocks))
    })
    .await;
    let resets = format!("kvasir_index_resets_total{{model=\"{MODEL}\",endpoint=\"{}\"}}", id_of(&restarts));
    assert!(router.metric(&resets) >= Some(1.0));
    assert_eq!(by(&complete(router.inference, prompt).await?), id_of(&other));
    Ok(())
}

/// KVE-04: lost batches are fetched, in order and once; where they cannot be, everything is forgotten and counted.
#[tokio::test(flavor = "multi_thread")]
async fn lost_batches_are_fetched_or_everything_is_forgotten() -> anyhow::Result<()> {
    for replayable in [true, false] {
        let engine = Engine::start(quick()).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        complete(engine.address(), completion(MODEL, &ids(5, 300))).await?;
        learned(&router, &engine, 10).await;
        engine.set_fault(Fault::DropEvents { batches: 1, replayable }).await;
        complete(engine.address(), completion(MODEL, &ids(6, 300))).await?;
        complete(engine.address(), completion(MODEL, &ids(7, 300))).await?;
        let series = |family: &str| {
            let labels = format!("{{model=\"{MODEL}\",endpoint=\"{}\"}}", id_of(&engine));
            router.metric(&format!("{family}{labels}")).unwrap_or(0.0)
        };
        if replayable {
            eventually("the gap is repaired", || series("kvasir_index_repairs_total") >= 1.0).await;
            eventually("all is known", || {
                let there = engine.stats().cached_blocks;
                known(&router, &engine)
                    .is_some_and(|(how, blocks)| how == Completeness::Exact && blocks == there)
            })
            .await;
        } else {
            eventually("what was known is forgotten", || series("kvasir_index_resets_total") >= 1.0).await;
            eventually("it is called partial", || {
                known(&router, &engine).is_some_and(|(how, _)| how == Completeness::Partial)
            })
            .await;
        }
        assert!(series("kvasir_index_gaps_total") >= 1.0);
    }
    Ok(())
}
