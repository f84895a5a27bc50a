//! kthena's layout both ways: what others wrote is routed on, and what our agent writes satisfies others' rules.
//!
//! Hashes and keys are made here from the layout's description, not by the code under test.

use std::collections::BTreeMap;
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
            router.metric("kvasir_coordination_mode{mode=\"query\"}") == Some(1.0)
        })
        .await;
        for seed in 1..=8 {
            let by = complete(router.inference, seed).await.unwrap();
            assert_eq!(by, id_of(&engines[(seed as usize + 1) % 2]), "prompt {seed}, {mode:?}");
        }
        assert_eq!(router.metric("kvasir_query_lookups_total{result=\"hit\"}"), Some(8.0));
    }
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
        let mut wanted: BTreeMap<u32, u32> = BTreeMap::new();
        let begun = Instant::now();
        loop {
            let mut right = true;
            for seed in 1..=(round + 1) * 4 {
                let mut found = 0;
                for key in keys(seed) {
                    let answer = redis.ask(&["HGET", &key, "127.0.0.1.default"]).await;
                    let Some(Ok(written)) = answer.first().map(|text| text.parse::<u64>()) else { break };
                    let now: u64 = redis.ask(&["TIME"]).await[0].parse().unwrap();
                    assert!(written <= now && now - written < 60, "{written} at {now}");
                    found += 16;
                }
                // The last token is reused by nobody; the block before it may well be there.
                right &= found == truth(&engine, seed);
                wanted.insert(seed, found);
            }
            if right {
                break;
            }
            assert!(begun.elapsed().as_secs() < 20, "never the truth: {wanted:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(round == 0 || wanted.values().any(|found| *found == 0), "nothing was evicted: {wanted:?}");
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
    assert_eq!(complete(router.inference, 1).await.unwrap(), id_of(&engines[1]));
    redis.pause();
    for _ in 0..30 {
        complete(router.inference, 1).await.unwrap();
    }
    let skipped = router.metric("kvasir_query_lookups_total{result=\"skipped\"}").unwrap_or_default();
    assert!(skipped >= 15.0, "{skipped} lookups were skipped");
    redis.resume();
    let mut by = String::new();
    let begun = Instant::now();
    while by != id_of(&engines[1]) {
        assert!(begun.elapsed().as_secs() < 20, "the store is not asked again");
        by = complete(router.inference, 1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
