//! Passes over a real server's keys.

use super::*;
use crate::testing::{TestCluster, TestServer, connected};

/// Steps until a pass is complete.
async fn pass(garbage: &mut Collector) -> usize {
    for steps in 1..10_000 {
        match garbage.step().await.unwrap() {
            GarbageProgress::Finished => return steps,
            GarbageProgress::Working => {}
            GarbageProgress::NotDue => panic!("not due after {steps} steps"),
        }
    }
    panic!("the pass does not end");
}

/// Blocks 0.. with an old entry each, every other one with a fresh entry besides.
async fn fill(redis: &Redis, keys: u64, now: u64) {
    for first in (0..keys).step_by(5000) {
        let mut pipe = redis::pipe();
        for hash in first..(first + 5000).min(keys) {
            let command = pipe
                .cmd("HSET")
                .arg(key::kthena_block("m", hash))
                .arg("old.ns")
                .arg(now - 86_401 - hash % 99);
            if hash % 2 == 0 {
                command.arg("fresh.ns").arg(now - 86_000);
            }
        }
        redis.pipeline(&pipe, Duration::from_secs(10)).await.unwrap();
    }
}

#[tokio::test]
async fn fifty_thousand_keys_in_steps_that_end() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let now: u64 = server.ask(&["TIME"]).await[0].parse().unwrap();
    fill(&redis, 50_000, now).await;
    server
        .ask(&[
            "HSET",
            "matrix:kv:block:m@77777",
            "a.ns",
            "never",
            "b.ns",
            "",
            "c.ns",
            "99999999999999999999",
        ])
        .await;
    server.ask(&["SET", "matrix:kv:block:m@88888", "a string"]).await;
    server.ask(&["HSET", "foreign", "a.ns", "1"]).await;
    let options = GarbageOptions { step: Duration::from_millis(20), ..GarbageOptions::default() };
    let mut garbage = Collector::new(redis.clone(), options);
    let steps = pass(&mut garbage).await;
    assert!(steps > 1, "it is done in steps");
    let stats = garbage.stats();
    assert_eq!((stats.removed, stats.passes, stats.failures), (50_000, 1, 0));
    assert!(stats.keys >= 50_002, "{stats:?}");
    let left: usize = server.ask(&["DBSIZE"]).await[0].parse().unwrap();
    assert_eq!(left, 25_000 + 3 + 1, "the fresh halves, three odd keys, and the note of the pass");
    assert_eq!(server.ask(&["HGETALL", &key::kthena_block("m", 4)]).await[0], "fresh.ns");
    assert_eq!(server.ask(&["HLEN", "matrix:kv:block:m@77777"]).await, ["3"]);
    assert_eq!(server.calls("keys").await, 0);
    assert_eq!(garbage.step().await, Ok(GarbageProgress::NotDue));
    // Another router sees that there was a pass.
    assert_eq!(Collector::new(redis, options).step().await, Ok(GarbageProgress::NotDue));
}

#[tokio::test]
async fn one_router_at_a_time_and_a_dead_one_does_not_block_for_long() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let now: u64 = server.ask(&["TIME"]).await[0].parse().unwrap();
    fill(&redis, 20_000, now).await;
    let options = GarbageOptions { step: Duration::ZERO, ..GarbageOptions::default() };
    let (mut first, mut second) = (Collector::new(redis.clone(), options), Collector::new(redis, options));
    assert_eq!(first.step().await, Ok(GarbageProgress::Working));
    assert_eq!(second.step().await, Ok(GarbageProgress::NotDue));
    assert_eq!(first.step().await, Ok(GarbageProgress::Working));
    // The lock of a dead router ends by itself; a router that was only slow finds out and leaves it to the other.
    let ttl: i64 = server.ask(&["PTTL", key::GARBAGE_LOCK]).await[0].parse().unwrap();
    assert!((1..=30_000).contains(&ttl), "{ttl}");
    server.ask(&["DEL", key::GARBAGE_LOCK]).await;
    assert_eq!(second.step().await, Ok(GarbageProgress::Working));
    assert_eq!(first.step().await, Ok(GarbageProgress::NotDue));
    pass(&mut second).await;
    assert_eq!(server.ask(&["EXISTS", key::GARBAGE_LOCK]).await, ["0"]);
    assert_eq!(first.stats().removed + second.stats().removed, 20_000);
}

#[tokio::test]
async fn a_block_stored_again_meanwhile_is_kept() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    server.ask(&["HSET", "matrix:kv:block:m@1", "a.ns", "5", "b.ns", "6"]).await;
    let mut remove = redis::cmd("EVAL");
    remove.arg(REMOVE).arg(1).arg("matrix:kv:block:m@1").arg("a.ns").arg("5").arg("b.ns").arg("4");
    assert_eq!(redis.query::<u64>(&remove, Duration::from_secs(5)).await, Ok(1));
    assert_eq!(server.ask(&["HGETALL", "matrix:kv:block:m@1"]).await, ["b.ns", "6"]);
}

#[tokio::test]
async fn a_pass_goes_on_after_a_failure_and_covers_a_cluster() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    let now: u64 = cluster.masters[0].ask(&["TIME"]).await[0].parse().unwrap();
    fill(&redis, 6000, now).await;
    let options = GarbageOptions { step: Duration::ZERO, ..GarbageOptions::default() };
    let mut garbage = Collector::new(redis.clone(), options);
    assert_eq!(garbage.step().await, Ok(GarbageProgress::Working));
    for server in &cluster.masters {
        server.ask(&["ACL", "SETUSER", "default", "-scan"]).await;
    }
    garbage.step().await.unwrap_err();
    for server in &cluster.masters {
        server.ask(&["ACL", "SETUSER", "default", "+scan"]).await;
    }
    pass(&mut garbage).await;
    assert_eq!((garbage.stats().removed, garbage.stats().failures), (6000, 1));
}
