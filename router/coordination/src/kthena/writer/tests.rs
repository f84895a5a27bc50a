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
        if done && writer.stats().pending == 0 && !writer.stats().reconciling {
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
    drop(first);
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
    writer.checked = Some(Instant::now().checked_sub(CHECK_EVERY).unwrap());
    settle(&mut writer).await;
    assert_eq!(held(&server, "m", "a.ns").await, wanted);
    assert_eq!(writer.stats().rewrites, 2);
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
    writer.checked = None;
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
    drop(first);
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
