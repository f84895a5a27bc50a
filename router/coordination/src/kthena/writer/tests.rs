//! What a writer leaves in a real server, read by the rules of kthena's own readers.

use std::collections::HashMap;

use super::*;
use crate::testing::{TestCluster, TestServer, connected};

fn names(model: &str, pod: &str) -> WriterNames {
    WriterNames { model: model.to_owned(), pod: pod.to_owned(), engine: KthenaEngine::Vllm }
}

fn int(bits: u64) -> EngineHash {
    EngineHash::Int { bits, negative: false }
}

/// Brings the store up to date; panics after 20 s.
async fn settle(writer: &mut KthenaWriter) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let done = writer.maintain().await.is_ok() && writer.flush().await == Ok(0);
        let WriterStats { pending, reconciling, standing_by, .. } = writer.stats();
        if done && pending == 0 && !reconciling && !standing_by {
            return;
        }
        assert!(Instant::now() < deadline, "{writer:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The contents that a pod is said to hold, found without the code under test.
async fn held(server: &TestServer, model: &str, pod: &str) -> Vec<u64> {
    let mut held = Vec::new();
    for name in server.ask(&["KEYS", "*"]).await {
        let prefix = format!("matrix:kv:block:{model}@");
        if let Some(hash) = name.strip_prefix(&prefix)
            && server.ask(&["HEXISTS", &name, pod]).await == ["1"]
        {
            held.push(hash.parse().unwrap());
        }
    }
    held.sort_unstable();
    held
}

#[tokio::test]
async fn entries_are_what_the_layout_says() {
    let server = TestServer::start().await;
    let mut writer = KthenaWriter::new(server.redis().await, names("m1", "a.ns"), WriterOptions::default());
    let hash = 6_473_494_984_593_326_032;
    writer.apply([
        KthenaChange::Gained(hash),
        KthenaChange::Mapped(int(11), hash),
        KthenaChange::Mapped(EngineHash::Int { bits: (-5_i64).cast_unsigned(), negative: true }, hash),
        KthenaChange::Mapped(int(u64::MAX), hash),
    ]);
    settle(&mut writer).await;
    let now: u64 = server.ask(&["TIME"]).await[0].parse().unwrap();
    let entry = server.ask(&["HGETALL", "matrix:kv:block:m1@6473494984593326032"]).await;
    let written: u64 = entry[1].parse().unwrap();
    assert_eq!((entry.len(), entry[0].as_str()), (2, "a.ns"));
    assert!(written <= now && now - written < 20);
    for name in ["11", "-5", "18446744073709551615"] {
        let name = format!("vllm:kv:block:a.ns@{name}");
        assert_eq!(server.ask(&["GET", &name]).await, ["6473494984593326032"]);
        let left: u64 = server.ask(&["TTL", &name]).await[0].parse().unwrap();
        assert!((86_300..=86_400).contains(&left), "{left}");
    }
    assert_eq!(server.ask(&["TTL", "matrix:kv:block:m1@6473494984593326032"]).await, ["-1"]);
    writer.apply([KthenaChange::Unmapped(int(11)), KthenaChange::Lost(hash), KthenaChange::Lost(4711)]);
    settle(&mut writer).await;
    assert_eq!(server.ask(&["EXISTS", "matrix:kv:block:m1@6473494984593326032"]).await, ["0"]);
    assert_eq!(server.ask(&["EXISTS", "vllm:kv:block:a.ns@11", "vllm:kv:block:a.ns@-5"]).await, ["1"]);
}

#[tokio::test]
async fn another_life_leaves_nothing_and_others_are_not_touched() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    // Names full of what a pattern would take for itself.
    let (model, pod) = ("org/[m]*?\\^-x", "p*.ns");
    let mut neighbours = Vec::new();
    // The mapping keys name no model: of a pod's writers one keeps them.
    let apart = WriterOptions { keeps_mapping: false, ..WriterOptions::default() };
    let whole = WriterOptions::default();
    for (model, pod, options) in
        [("org/m", "p*.ns", apart), (model, "pp.ns", whole), ("org/[m]*?\\^-xx", "p*.ns", apart)]
    {
        let mut writer = KthenaWriter::new(redis.clone(), names(model, pod), options);
        writer.apply((0..50).map(KthenaChange::Gained));
        if options.keeps_mapping {
            writer.apply((0..50).map(|hash| KthenaChange::Mapped(int(hash), hash)));
        }
        settle(&mut writer).await;
        neighbours.push((model, pod));
    }
    let mut first = KthenaWriter::new(redis.clone(), names(model, pod), WriterOptions::default());
    first.apply(
        (0..3000).flat_map(|hash| [KthenaChange::Gained(hash), KthenaChange::Mapped(int(hash + 100), hash)]),
    );
    settle(&mut first).await;
    first.release().await.unwrap();
    // Some are still held after the restart; the removals of the others were never seen.
    let mut second = KthenaWriter::new(redis, names(model, pod), WriterOptions::default());
    second.apply(
        (0..20).flat_map(|hash| [KthenaChange::Gained(hash), KthenaChange::Mapped(int(hash + 100), hash)]),
    );
    settle(&mut second).await;
    assert_eq!(held(&server, model, pod).await, (0..20).collect::<Vec<_>>());
    assert_eq!(second.stats().stale_removed, 2980 * 2);
    let mut adapter = KthenaWriter::new(second.redis.clone(), names("adapter", pod), apart);
    adapter.apply([KthenaChange::Gained(1)]);
    settle(&mut adapter).await;
    for (pattern, wanted) in [("vllm:kv:block:p\\*.ns@*", 20), ("vllm:kv:block:pp.ns@*", 50)] {
        assert_eq!(server.ask(&["KEYS", pattern]).await.len(), wanted, "{pattern}");
    }
    for (model, pod) in neighbours {
        assert_eq!(held(&server, model, pod).await, (0..50).collect::<Vec<_>>(), "{model} {pod}");
    }
    assert_eq!(server.calls("keys").await, 6, "only this test used KEYS");
}

#[tokio::test]
async fn clearing_a_pod_needs_no_search() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let mut writer = KthenaWriter::new(redis.clone(), names("m", "a.ns"), WriterOptions::default());
    writer.apply((0..20_000).map(KthenaChange::Gained));
    settle(&mut writer).await;
    let scans = server.calls("scan").await;
    writer.clear();
    writer.apply([KthenaChange::Gained(3)]);
    settle(&mut writer).await;
    assert_eq!(held(&server, "m", "a.ns").await, [3]);
    assert_eq!(server.calls("scan").await, scans);
}

#[tokio::test]
async fn a_store_that_comes_back_empty_is_filled_again() {
    let mut server = TestServer::start().await;
    let mut writer = KthenaWriter::new(server.redis().await, names("m", "a.ns"), WriterOptions::default());
    writer.apply((0..1200).map(KthenaChange::Gained));
    settle(&mut writer).await;
    server.kill();
    writer.apply([KthenaChange::Lost(0), KthenaChange::Gained(5000)]);
    writer.flush().await.unwrap_err();
    server.restart().await;
    settle(&mut writer).await;
    let wanted: Vec<u64> = (1..1200).chain([5000]).collect();
    assert_eq!(held(&server, "m", "a.ns").await, wanted);
    // Emptied behind an unbroken connection: the writer's mark is gone too.
    server.ask(&["FLUSHALL"]).await;
    writer.lease.doubt();
    settle(&mut writer).await;
    assert_eq!(held(&server, "m", "a.ns").await, wanted);
    assert_eq!(writer.stats().rewrites, 2);
}

/// A replica that becomes the master may lack a removal that its master acknowledged.
#[tokio::test]
async fn a_removed_block_that_comes_back_with_another_connection_is_removed_again() {
    let server = TestServer::start().await;
    let mut writer = KthenaWriter::new(server.redis().await, names("m", "a.ns"), WriterOptions::default());
    writer
        .apply((0..50).flat_map(|hash| [KthenaChange::Gained(hash), KthenaChange::Mapped(int(hash), hash)]));
    settle(&mut writer).await;
    writer.apply([KthenaChange::Lost(7), KthenaChange::Unmapped(int(7))]);
    settle(&mut writer).await;
    server.ask(&["HSET", "matrix:kv:block:m@7", "a.ns", "1"]).await;
    server.ask(&["SET", "vllm:kv:block:a.ns@7", "7"]).await;
    let reconnects = writer.redis.status().reconnects;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while writer.redis.status().reconnects == reconnects {
        assert!(Instant::now() < deadline, "{:?}", writer.redis);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    settle(&mut writer).await;
    let wanted: Vec<u64> = (0..50).filter(|hash| *hash != 7).collect();
    assert_eq!(held(&server, "m", "a.ns").await, wanted);
    assert_eq!(server.ask(&["EXISTS", "vllm:kv:block:a.ns@7"]).await, ["0"]);
}

#[tokio::test]
async fn of_two_writers_one_stands_by_until_the_other_is_gone() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let writer = || KthenaWriter::new(redis.clone(), names("m", "a.ns"), WriterOptions::default());
    let (mut first, mut second) = (writer(), writer());
    first.apply((0..10).map(KthenaChange::Gained));
    settle(&mut first).await;
    second.apply((5..15).map(KthenaChange::Gained));
    for _ in 0..3 {
        second.maintain().await.unwrap();
        assert_eq!(second.flush().await, Ok(0));
        first.maintain().await.unwrap();
    }
    let stats = second.stats();
    assert_eq!((stats.standing_by, stats.reconciling, stats.pending, stats.written), (true, false, 10, 0));
    assert_eq!(held(&server, "m", "a.ns").await, (0..10).collect::<Vec<_>>());
    // The first one dies: nobody renews its lease.
    let lease = key::kthena_writer_lease("m", "a.ns");
    let left: u64 = server.ask(&["PTTL", &lease]).await[0].parse().unwrap();
    assert!(left <= 6000, "{left} ms");
    settle(&mut second).await;
    assert_eq!(held(&server, "m", "a.ns").await, (5..15).collect::<Vec<_>>());
    // It was only slow. What it holds is written when it is its turn again.
    first.apply([KthenaChange::Lost(0)]);
    assert_eq!(first.flush().await, Ok(0));
    first.maintain().await.unwrap();
    assert!(first.stats().standing_by && first.stats().pending > 0);
    assert_eq!(held(&server, "m", "a.ns").await, (5..15).collect::<Vec<_>>());
    second.release().await.unwrap();
    settle(&mut first).await;
    assert_eq!(held(&server, "m", "a.ns").await, (1..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_store_still_takes_removals() {
    let server = TestServer::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let mut writer = KthenaWriter::new(server.redis().await, names("m", "a.ns"), WriterOptions::default());
    writer.apply((0..10).map(KthenaChange::Gained));
    settle(&mut writer).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    writer.lease.doubt();
    writer.apply((0..9).map(KthenaChange::Lost));
    settle(&mut writer).await;
    assert_eq!(held(&server, "m", "a.ns").await, [9]);
}

#[tokio::test]
async fn a_full_store_is_written_when_there_is_room_again() {
    let server = TestServer::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let mut writer = KthenaWriter::new(server.redis().await, names("m", "a.ns"), WriterOptions::default());
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    writer.apply((0..700).map(KthenaChange::Gained));
    assert_eq!(writer.flush().await, Err(StoreError::Refused(Refusal::OutOfMemory)));
    assert_eq!((writer.stats().pending, writer.stats().failures), (700, 1));
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    server.ask(&["SET", "matrix:kv:block:m@3", "somebody else's"]).await;
    settle(&mut writer).await;
    assert_eq!(held(&server, "m", "a.ns").await.len(), 699);
    assert_eq!(writer.stats().wrong_type, 1);
}

#[tokio::test]
async fn old_entries_get_a_new_time() {
    let server = TestServer::start().await;
    let options = WriterOptions { refresh_after: Duration::from_secs(1), ..WriterOptions::default() };
    let mut writer = KthenaWriter::new(server.redis().await, names("m", "a.ns"), options);
    writer.apply((0..10).map(KthenaChange::Gained));
    settle(&mut writer).await;
    let written = async || -> HashMap<u64, u64> {
        let mut times = HashMap::new();
        for hash in 0..10 {
            let time = server.ask(&["HGET", &key::kthena_block("m", hash), "a.ns"]).await;
            times.insert(hash, time[0].parse().unwrap());
        }
        times
    };
    let first = written().await;
    let begun: u64 = *first.values().max().unwrap();
    server.wait_for(&["TIME"], |time| time[0].parse::<u64>().unwrap() > begun + 1).await;
    writer.aged = None;
    settle(&mut writer).await;
    let second = written().await;
    assert!(first.iter().all(|(hash, time)| second[hash] > *time), "{first:?} {second:?}");
}

#[tokio::test]
async fn every_master_of_a_cluster_is_gone_through() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    let mut first = KthenaWriter::new(redis.clone(), names("m", "a.ns"), WriterOptions::default());
    first.apply((0..900).map(KthenaChange::Gained));
    settle(&mut first).await;
    first.release().await.unwrap();
    let mut second = KthenaWriter::new(redis, names("m", "a.ns"), WriterOptions::default());
    second.apply([KthenaChange::Gained(1)]);
    settle(&mut second).await;
    assert_eq!(second.stats().stale_removed, 899);
    let mut left = Vec::new();
    for server in &cluster.masters {
        left.extend(server.ask(&["KEYS", "matrix:*"]).await);
    }
    assert_eq!(left, ["matrix:kv:block:m@1"]);
}
