//! kthena's layout both ways: what others wrote is routed on, and what our agent writes satisfies others' rules.
//!
//! Hashes and keys are made here from the layout's description, not by the code under test.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kvasir_agent::Layout;
use kvasir_coordination::testing::TestServer;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::{CoordinationMode, Settings};
use kvasir_suite::router::{MODEL, Router, settings};
use sha2::{Digest, Sha256};

use crate::fleet::{Agent, complete, id_of, ids, quick, truth, until};

/// SHA-256 over the ids as big-endian 32-bit numbers, its first eight bytes without the top bit.
fn block_hash(ids: &[u32]) -> u64 {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_be_bytes()).collect();
    let digest = Sha256::digest(&bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first) & 0x7fff_ffff_ffff_ffff
}

fn keys(seed: u32) -> Vec<String> {
    ids(seed).chunks_exact(16).map(|ids| format!("matrix:kv:block:{MODEL}@{}", block_hash(ids))).collect()
}

/// Pods are told apart by their name alone in this layout, so the engines are on two addresses.
async fn engines() -> [Engine; 2] {
    let on = |host: [u8; 4]| EngineConfig { listen: SocketAddr::from((host, 0)), events: None, ..quick() };
    [Engine::start(on([127, 0, 0, 1])).await.unwrap(), Engine::start(on([127, 0, 0, 2])).await.unwrap()]
}

fn asking(engines: &[Engine], redis: &TestServer, mode: Option<CoordinationMode>) -> Settings {
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let mut settings = settings(&urls).unwrap();
    settings.redis = Some(redis.settings());
    settings.coordination = mode;
    settings.scheduler.scorers = vec![("kvcache-aware".to_owned(), 1.0)];
    settings
}

/// With time enough for a lookup, however busy the machine is.
fn patient(mut settings: Settings) -> Settings {
    settings.scheduler.args.kvcache_aware.query_budget = Duration::from_secs(2);
    settings.scheduler.gather_deadline = Duration::from_secs(3);
    settings
}

#[test]
fn the_hash_of_this_test_is_the_layouts() {
    let first: Vec<u32> = (0..16).collect();
    assert_eq!(block_hash(&first), 6_473_494_984_593_326_032);
    assert_eq!(block_hash(&[65_536, 131_072, 262_144]), 8_449_045_214_337_056_412);
}

/// A store that kthena's sidecars filled, before we came.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_kthenas_layout_is_routed_on() {
    let redis = TestServer::start().await;
    let engines = engines().await;
    // Entries that are older than a day are garbage, and collected.
    let now = redis.ask(&["TIME"]).await.swap_remove(0);
    for (number, pod) in ["127.0.0.1.default", "127.0.0.2.default"].iter().enumerate() {
        for seed in 0..4 {
            for key in keys(1 + seed * 2 + number as u32) {
                redis.ask(&["HSET", &key, pod, &now]).await;
            }
        }
    }
    for mode in [Some(CoordinationMode::Query), None] {
        let router = Router::start(patient(asking(&engines, &redis, mode))).await.unwrap();
        until("the layout is asked", || {
            router.metric("kvasir_query_breaker_state{state=\"closed\"}") == Some(1.0)
        })
        .await;
        let name = mode.map_or("per_owner", CoordinationMode::as_str);
        assert_eq!(router.metric(&format!("kvasir_coordination_mode{{mode=\"{name}\"}}")), Some(1.0));
        for seed in 1..=8 {
            let by = complete(router.inference, seed).await.unwrap();
            assert_eq!(by, id_of(&engines[(seed as usize + 1) % 2]), "prompt {seed}, {mode:?}");
        }
        assert_eq!(router.metric("kvasir_query_lookups_total{result=\"hit\"}"), Some(8.0));
    }
}

/// Tokens of a prompt that the layout has for the pod, up to the first block that it has not.
async fn written(redis: &TestServer, seed: u32) -> u32 {
    let mut found = 0;
    for key in keys(seed) {
        let answer = redis.ask(&["HGET", &key, "127.0.0.1.default"]).await;
        let Some(Ok(stamp)) = answer.first().map(|text| text.parse::<u64>()) else { break };
        let now: u64 = redis.ask(&["TIME"]).await[0].parse().unwrap();
        assert!(stamp <= now && now - stamp < 60, "{stamp} at {now}");
        found += 16;
    }
    found
}

/// Waits until the layout has exactly what the engine holds of these prompts.
async fn until_written(redis: &TestServer, engine: &Engine, seeds: std::ops::RangeInclusive<u32>) {
    let begun = Instant::now();
    loop {
        let mut wrong = Vec::new();
        for seed in seeds.clone() {
            let (found, held) = (written(redis, seed).await, truth(engine, seed));
            // The last token is reused by nobody; the block before it may well be there.
            if found != held {
                wrong.push((seed, found, held));
            }
        }
        if wrong.is_empty() {
            return;
        }
        assert!(begun.elapsed().as_secs() < 60, "never the truth: {wrong:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Two agents of one pod: one writes, the other stands by, and takes over when the first is gone.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_agents_in_that_layout_one_writes() {
    let redis = TestServer::start().await;
    let engine = Engine::start(quick()).await.unwrap();
    let first = Agent::start(&engine, redis.settings(), Layout::Kthena).await;
    for seed in 1..=4 {
        complete(engine.address(), seed).await.unwrap();
    }
    until_written(&redis, &engine, 1..=4).await;
    let second = Agent::start(&engine, redis.settings(), Layout::Kthena).await;
    complete(engine.address(), 5).await.unwrap();
    until_written(&redis, &engine, 1..=5).await;
    let writes = async || redis.calls("hset").await + redis.calls("hdel").await;
    // What the second one does at its start is over once two looks a second apart are the same.
    let begun = Instant::now();
    let mut before = writes().await;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = writes().await;
        if std::mem::replace(&mut before, now) == now {
            break;
        }
        assert!(begun.elapsed().as_secs() < 30, "they write for ever, while nothing changes");
    }
    first.kill();
    assert!(engine.reset_prefix_cache());
    complete(engine.address(), 6).await.unwrap();
    until_written(&redis, &engine, 1..=6).await;
    assert_eq!((written(&redis, 1).await, written(&redis, 6).await), (0, 320));
    second.stop().await;
}

/// What dead pods left is removed, also by a router that never reads it.
#[tokio::test(flavor = "multi_thread")]
async fn old_entries_are_removed_with_a_mirror_too() {
    let redis = TestServer::start().await;
    redis.ask(&["HSET", "matrix:kv:block:m@1", "gone.default", "1"]).await;
    let engines = engines().await;
    let _router = Router::start(asking(&engines, &redis, Some(CoordinationMode::Mirror))).await.unwrap();
    redis.wait_for(&["EXISTS", "matrix:kv:block:m@1"], |answer| answer == ["0"]).await;
}

/// What our agent writes, read as the layout's readers do: every full block of the engine is there and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_writes_is_the_engines_truth_in_that_layout() {
    let redis = TestServer::start().await;
    let engine = Engine::start(EngineConfig { kv_blocks: 60, ..quick() }).await.unwrap();
    let agent = Agent::start(&engine, redis.settings(), Layout::Kthena).await;
    for round in 0..3 {
        for seed in 1..=4 {
            complete(engine.address(), round * 4 + seed).await.unwrap();
        }
        let seeds = 1..=(round + 1) * 4;
        until_written(&redis, &engine, seeds.clone()).await;
        let evicted = seeds.filter(|seed| truth(&engine, *seed) == 0).count();
        assert!(round == 0 || evicted > 0, "nothing was evicted");
    }
    let mappings = redis.ask(&["KEYS", "vllm:kv:block:127.0.0.1.default@*"]).await;
    let blocks = redis.ask(&["KEYS", &format!("matrix:kv:block:{MODEL}@*")]).await;
    assert!(
        !mappings.is_empty() && mappings.len() >= blocks.len(),
        "{} for {}",
        mappings.len(),
        blocks.len()
    );
    let ttl: i64 = redis.ask(&["TTL", &mappings[0]]).await[0].parse().unwrap();
    assert!((86_000..=86_400).contains(&ttl), "{ttl} s");
    drop(agent);
}

/// RED-04: a store that hangs costs requests its budget a few times, and then nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_costs_little_and_only_at_first() {
    let redis = TestServer::start().await;
    let engines = engines().await;
    let now = redis.ask(&["TIME"]).await.swap_remove(0);
    for key in keys(1) {
        redis.ask(&["HSET", &key, "127.0.0.2.default", &now]).await;
    }
    let router = Router::start(asking(&engines, &redis, Some(CoordinationMode::Query))).await.unwrap();
    until_asked(&router, &engines[1]).await;
    redis.pause();
    for _ in 0..30 {
        complete(router.inference, 1).await.unwrap();
    }
    let skipped = router.metric("kvasir_query_lookups_total{result=\"skipped\"}").unwrap_or_default();
    assert!(skipped >= 15.0, "{skipped} lookups were skipped");
    redis.resume();
    until_asked(&router, &engines[1]).await;
}

/// Waits until a request goes where the store says. A lookup within 5 ms is no certainty on a busy machine.
async fn until_asked(router: &Router, holder: &Engine) {
    let begun = Instant::now();
    while complete(router.inference, 1).await.unwrap() != id_of(holder) {
        assert!(begun.elapsed().as_secs() < 20, "the store is not asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
