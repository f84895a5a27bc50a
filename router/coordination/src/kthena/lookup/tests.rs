//! Lookups against a real server, on good days and on bad ones.

use super::*;
use crate::breaker::BreakerState;
use crate::testing::{Proxy, TestCluster, TestServer, Weather, connected, settings_of};

const PATIENT: LookupOptions = LookupOptions {
    budget: Duration::from_secs(5),
    breaker: BreakerLimits {
        failures: 5,
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(5),
    },
};

const A: QueryOwner<'static> = QueryOwner { pod: "a", namespace: "ns", started_at: Some(1000) };
const B: QueryOwner<'static> = QueryOwner { pod: "b", namespace: "ns", started_at: Some(1000) };
const C: QueryOwner<'static> = QueryOwner { pod: "c", namespace: "ns", started_at: None };

async fn fill(redis: &Redis, model: &str, owner: &str, hashes: &[u64], written: &str) {
    let mut pipe = redis::pipe();
    hashes.iter().for_each(|hash| {
        pipe.cmd("HSET").arg(key::kthena_block(model, *hash)).arg(owner).arg(written);
    });
    let answers = redis.pipeline(&pipe, Duration::from_secs(5)).await.unwrap();
    assert!(answers.iter().all(|answer| refusal(answer).is_none()));
}

async fn ask(
    lookup: &KthenaLookup,
    models: &[&str],
    hashes: &[u64],
    owners: &[QueryOwner<'_>],
) -> Result<Vec<u32>, QueryError> {
    lookup.leading_blocks(BlockQuery { models, hashes, owners }).await
}

/// Asks until the answer is good; panics after 20 s.
async fn until_well(lookup: &KthenaLookup) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while ask(lookup, &["m"], &[1], &[A]).await.is_err() {
        assert!(Instant::now() < deadline, "{lookup:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_worked_example() {
    let server = TestServer::start().await;
    // Tokens 0..=39 in blocks of 16, with keys and fields exactly as they are documented.
    let hashes = [6_473_494_984_593_326_032, 3_036_027_678_049_585_822, 6_854_313_229_097_116_608];
    server.ask(&["HSET", "matrix:kv:block:m1@6473494984593326032", "a.ns", "1001", "b.ns", "1001"]).await;
    server.ask(&["HSET", "matrix:kv:block:m1@3036027678049585822", "a.ns", "1001"]).await;
    let lookup = KthenaLookup::new(server.redis().await, PATIENT);
    assert_eq!(ask(&lookup, &["m1"], &hashes, &[B, A, C]).await, Ok(vec![1, 2, 0]));
    let stats = lookup.stats();
    assert_eq!((stats.lookups, stats.hits, stats.breaker), (1, 1, BreakerState::Closed));
    assert_eq!(stats.durations.iter().sum::<u64>(), 1);
}

#[tokio::test]
async fn freshness() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let lookup = KthenaLookup::new(redis.clone(), PATIENT);
    let cases = [
        ("999", Some(1000), 0),
        ("1000", Some(1000), 0),
        ("1001", Some(1000), 1),
        ("+1000", Some(1000), 0),
        ("-5", Some(1000), 0),
        ("1000", None, 1),
        ("1000", Some(0), 1),
        ("", Some(1000), 1),
        ("1000.5", Some(1000), 1),
        (" 1000", Some(1000), 1),
        ("soon", Some(1000), 1),
        ("99999999999999999999", Some(u64::MAX), 1),
        ("9223372036854775807", Some(u64::MAX), 0),
    ];
    for (written, started_at, wanted) in cases {
        fill(&redis, "m", "a.ns", &[7], written).await;
        let owner = QueryOwner { started_at, ..A };
        assert_eq!(ask(&lookup, &["m"], &[7], &[owner]).await, Ok(vec![wanted]), "{written} {started_at:?}");
    }
}

#[tokio::test]
async fn windows_holes_repetitions_and_names() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let lookup = KthenaLookup::new(redis.clone(), PATIENT);
    let hashes: Vec<u64> = (0..400).collect();
    fill(&redis, "m", "a.ns", &hashes, "2000").await;
    fill(&redis, "m", "b.ns", &hashes[..200], "2000").await;
    fill(&redis, "m", "b.ns", &hashes[201..], "2000").await;
    let before = server.calls("hmget").await;
    assert_eq!(ask(&lookup, &["m"], &hashes, &[A, B, C]).await, Ok(vec![400, 200, 0]));
    assert_eq!(server.calls("hmget").await - before, 400);
    // Nobody holds the first block: one small window, then the next name.
    fill(&redis, "alias", "b.ns", &[5000, 5001], "2000").await;
    let missing: Vec<u64> = (5000..5400).collect();
    let before = server.calls("hmget").await;
    assert_eq!(ask(&lookup, &["m", "alias", "m"], &missing, &[A, B]).await, Ok(vec![0, 2]));
    assert_eq!(server.calls("hmget").await - before, 64);
    // The same content again is the same entry.
    assert_eq!(ask(&lookup, &["m"], &[1, 1, 2, 1], &[A]).await, Ok(vec![4]));
    assert_eq!(ask(&lookup, &["m"], &[], &[A]).await, Ok(vec![0]));
    assert_eq!(ask(&lookup, &["m"], &[1], &[]).await, Ok(vec![]));
    // Foreign keys under a block's name.
    server.ask(&["SET", "matrix:kv:block:m@9000", "x"]).await;
    assert_eq!(ask(&lookup, &["m"], &[1, 9000, 2], &[A]).await, Ok(vec![1]));
    assert_eq!(lookup.stats().wrong_type, 1);
    assert_eq!(lookup.stats().refused, 0);
}

#[tokio::test]
async fn a_paused_server_costs_a_few_budgets_and_then_nothing() {
    let server = TestServer::start().await;
    let lookup = KthenaLookup::new(server.redis().await, LookupOptions::default());
    until_well(&lookup).await;
    server.pause();
    let (mut longest, begun) = (Duration::ZERO, Instant::now());
    for _ in 0..1000 {
        let asked = Instant::now();
        ask(&lookup, &["m"], &[1], &[A]).await.unwrap_err();
        longest = longest.max(asked.elapsed());
    }
    // Five failures of 5 ms open the breaker; the rest is a machine that does other things too.
    assert!(
        longest < Duration::from_millis(100) && begun.elapsed() < Duration::from_millis(500),
        "{longest:?}"
    );
    let stats = lookup.stats();
    assert_eq!(stats.timeouts + stats.unreachable, 5);
    assert_eq!((stats.skipped, stats.openings), (995, 1));
    assert_ne!(stats.breaker, BreakerState::Closed);
    server.resume();
    until_well(&lookup).await;
    assert_eq!(lookup.stats().breaker, BreakerState::Closed);
}

#[tokio::test]
async fn a_slow_or_lost_network_opens_the_breaker_until_it_is_fair_again() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let lookup = KthenaLookup::new(connected(settings_of(proxy.node())).await, LookupOptions::default());
    for weather in [Weather::Slow(Duration::from_millis(200)), Weather::BlackHole, Weather::Cut] {
        until_well(&lookup).await;
        proxy.set(weather);
        let openings = lookup.stats().openings;
        let begun = Instant::now();
        for _ in 0..200 {
            ask(&lookup, &["m"], &[1], &[A]).await.unwrap_err();
        }
        assert!(begun.elapsed() < Duration::from_millis(300), "{weather:?}: {:?}", begun.elapsed());
        assert_eq!(lookup.stats().openings, openings + 1, "{weather:?}");
        proxy.set(Weather::Fair);
    }
    until_well(&lookup).await;
}

#[tokio::test]
async fn a_server_that_refuses_is_left_alone_too() {
    let server = TestServer::start().await;
    let lookup = KthenaLookup::new(server.redis().await, LookupOptions::default());
    until_well(&lookup).await;
    server.ask(&["ACL", "SETUSER", "default", "-hmget"]).await;
    for _ in 0..5 {
        assert_eq!(ask(&lookup, &["m"], &[1], &[A]).await, Err(QueryError::Refused));
    }
    assert_eq!(ask(&lookup, &["m"], &[1], &[A]).await, Err(QueryError::Unreachable));
    assert_eq!(lookup.stats().last_refusal, Some(Refusal::NoAuth));
    server.ask(&["ACL", "SETUSER", "default", "+hmget"]).await;
    until_well(&lookup).await;
}

#[tokio::test]
async fn blocks_of_a_cluster() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    let lookup = KthenaLookup::new(redis.clone(), PATIENT);
    let hashes: Vec<u64> = (0..300).collect();
    fill(&redis, "m", "a.ns", &hashes, "2000").await;
    fill(&redis, "m", "b.ns", &hashes[..77], "2000").await;
    assert_eq!(ask(&lookup, &["m"], &hashes, &[A, B]).await, Ok(vec![300, 77]));
    let slot = cluster.slot(&key::kthena_block("m", 50)).await;
    let from = cluster.master_of(slot).await;
    cluster.move_slot(slot, from, (from + 1) % 3).await;
    assert_eq!(ask(&lookup, &["m"], &hashes, &[A, B]).await, Ok(vec![300, 77]));
    assert_eq!(lookup.stats().refused, 0);
}
