//! The connection against real servers on their bad days.

use std::time::{Duration, Instant};

use kvasir_settings::redis::{RedisSettings, RedisTls, RedisTopology, Secret};
use redis::{Value, cmd};

use super::*;
use crate::testing::{
    Certificates, Proxy, TestCluster, TestSentinel, TestServer, Weather, connected, settings_of,
};

const LIMIT: Duration = Duration::from_secs(5);

fn set(key: &str, value: &str) -> Cmd {
    cmd("SET").arg(key).arg(value).take()
}

fn get(key: &str) -> Cmd {
    cmd("GET").arg(key).take()
}

/// Asks until the answer is as wanted; panics with the last one after 20 s.
async fn until<T: fmt::Debug>(mut ask: impl AsyncFnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "never as wanted, last {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_first_call_waits_for_the_first_connection_and_a_server_that_starts_later_is_found() {
    let mut server = TestServer::start().await;
    let redis = Redis::new(server.settings()).unwrap();
    redis.query::<()>(&set("a", "1"), LIMIT).await.unwrap();
    assert_eq!(redis.query::<Option<String>>(&get("a"), LIMIT).await, Ok(Some("1".to_owned())));
    server.kill();
    let late = Redis::new(server.settings()).unwrap();
    assert_eq!(late.query::<Option<String>>(&get("a"), LIMIT).await, Err(StoreError::Unreachable));
    assert!(!late.status().connected && late.status().last_error.is_some());
    let restarted = Instant::now();
    server.restart().await;
    tokio::time::timeout(LIMIT, late.connected()).await.unwrap();
    assert!(restarted.elapsed() < Duration::from_secs(4));
    let answer = until(async || late.query::<Option<String>>(&get("a"), LIMIT).await, Result::is_ok).await;
    assert_eq!(answer, Ok(None), "the server came back empty");
    until(async || redis.query::<Option<String>>(&get("a"), LIMIT).await, Result::is_ok).await.unwrap();
    assert_eq!(redis.status().reconnects, 1);
}

#[tokio::test]
async fn a_paused_server_holds_nobody_beyond_the_limit() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    server.pause();
    let limit = Duration::from_millis(20);
    let begun = Instant::now();
    assert_eq!(redis.query::<Value>(&get("a"), limit).await, Err(StoreError::TimedOut));
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    // The connection is given up once a ping is not answered; from then on nothing waits at all.
    until(
        async || redis.query::<Value>(&get("a"), limit).await,
        |answer| *answer == Err(StoreError::Unreachable),
    )
    .await
    .unwrap_err();
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(redis.query::<Value>(&get("a"), limit).await, Err(StoreError::Unreachable));
    }
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    server.resume();
    until(async || redis.query::<Value>(&get("a"), LIMIT).await, Result::is_ok).await.unwrap();
}

#[tokio::test]
async fn a_slow_server_keeps_its_connection() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let redis = connected(settings_of(proxy.node())).await;
    proxy.set(Weather::Slow(Duration::from_millis(200)));
    for _ in 0..5 {
        let answer = redis.query::<Value>(&get("a"), Duration::from_millis(5)).await;
        assert_eq!(answer, Err(StoreError::TimedOut));
    }
    assert_eq!(redis.query::<Option<String>>(&get("a"), LIMIT).await, Ok(None));
    assert_eq!(redis.status().reconnects, 0);
}

#[tokio::test]
async fn cut_and_swallowed_connections_are_made_anew() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let redis = connected(settings_of(proxy.node())).await;
    for bad in [Weather::Cut, Weather::BlackHole] {
        proxy.set(bad);
        let limit = Duration::from_millis(50);
        let answer = until(
            async || redis.query::<Value>(&get("a"), limit).await,
            |answer| *answer == Err(StoreError::Unreachable),
        );
        answer.await.unwrap_err();
        proxy.set(Weather::Fair);
        until(async || redis.query::<Value>(&get("a"), LIMIT).await, Result::is_ok).await.unwrap();
    }
    assert_eq!(redis.status().reconnects, 2);
}

#[tokio::test]
async fn a_pipeline_answers_for_each_command() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let mut pipe = redis::pipe();
    pipe.add_command(set("a", "1")).add_command(cmd("HGETALL").arg("a").take()).add_command(get("a"));
    let values = redis.pipeline(&pipe, LIMIT).await.unwrap();
    assert_eq!(values.len(), 3);
    assert_eq!(values.iter().map(refusal).collect::<Vec<_>>(), [None, Some(Refusal::WrongType), None]);
    let mut pipe = redis::pipe();
    pipe.atomic().add_command(set("a", "2")).add_command(get("a"));
    let values = redis.pipeline(&pipe, LIMIT).await.unwrap();
    assert_eq!(values, [Value::Okay, Value::BulkString(b"2".to_vec())]);
    assert_eq!(redis.pipeline(&redis::pipe(), LIMIT).await, Ok(Vec::new()));
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let server = TestServer::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let redis = server.redis().await;
    let refused = |refusal| Err::<Value, _>(StoreError::Refused(refusal));
    redis.query::<()>(&set("a", "1"), LIMIT).await.unwrap();
    let wrong_type = cmd("HGET").arg("a").arg("b").take();
    assert_eq!(redis.query::<Value>(&wrong_type, LIMIT).await, refused(Refusal::WrongType));
    let no_script = cmd("EVALSHA").arg("0".repeat(40)).arg(0).take();
    assert_eq!(redis.query::<Value>(&no_script, LIMIT).await, refused(Refusal::NoScript));
    assert_eq!(redis.query::<u64>(&cmd("PING"), LIMIT).await, Err(StoreError::Refused(Refusal::Other)));
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(redis.query::<Value>(&set("a", "2"), LIMIT).await, refused(Refusal::OutOfMemory));
    let script = cmd("EVAL").arg("return redis.call('SET', KEYS[1], 1)").arg(1).arg("a").take();
    assert_eq!(redis.query::<Value>(&script, LIMIT).await, refused(Refusal::OutOfMemory));
    assert_eq!(redis.query::<Option<String>>(&get("a"), LIMIT).await, Ok(Some("1".to_owned())));
    assert_eq!(redis.status().reconnects, 0);
}

#[tokio::test]
async fn users_passwords_and_databases() {
    let server = TestServer::start().await;
    server
        .ask(&["ACL", "SETUSER", "kv", "on", ">deep-secret", "~matrix:*", "+@read", "+@write", "+select"])
        .await;
    let settings = |username: Option<&str>, password: Option<&str>, database| RedisSettings {
        username: username.map(str::to_owned),
        password: password.map(Secret::new),
        database,
        ..server.settings()
    };
    let redis = connected(settings(Some("kv"), Some("deep-secret"), 3)).await;
    redis.query::<()>(&set("matrix:a", "1"), LIMIT).await.unwrap();
    let refused = Err(StoreError::Refused(Refusal::NoAuth));
    assert_eq!(redis.query::<()>(&set("other", "1"), LIMIT).await, refused);
    assert_eq!(server.ask(&["INFO", "keyspace"]).await.concat().matches("db3:keys=1").count(), 1);
    server.ask(&["ACL", "SETUSER", "default", ">wanted"]).await;
    server.ask(&["CONFIG", "SET", "requirepass", "wanted"]).await;
    for (username, password) in [(None, None), (None, Some("nope-secret")), (Some("kv"), Some("nope-secret"))]
    {
        let redis = Redis::new(settings(username, password, 0)).unwrap();
        assert_eq!(redis.query::<()>(&set("a", "1"), LIMIT).await, refused, "{username:?}");
        let said = format!("{redis:?} {:?}", redis.status());
        assert!(!redis.status().connected && !said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn a_loading_server_is_said_to_be_loading() {
    let mut server = TestServer::start().await;
    let mut pipe = redis::pipe();
    (0..200).for_each(|number| {
        pipe.add_command(set(&format!("k{number}"), &"x".repeat(2000)));
    });
    server.redis().await.pipeline(&pipe, LIMIT).await.unwrap();
    assert_eq!(server.ask(&["SAVE"]).await, ["OK"]);
    let settings = server.settings();
    // 200 keys at 10 ms each.
    server
        .restart_with(&["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"])
        .await;
    let redis = Redis::new(settings).unwrap();
    let refused = Err(StoreError::Refused(Refusal::Loading));
    assert_eq!(redis.query::<Option<String>>(&get("k1"), LIMIT).await, refused);
    let answer = until(async || redis.query::<Option<String>>(&get("k1"), LIMIT).await, Result::is_ok).await;
    assert_eq!(answer.unwrap().map(|text| text.len()), Some(2000));
}

#[tokio::test]
async fn a_dedicated_connection_blocks_nobody_and_goes_with_the_main_one() {
    let mut server = TestServer::start().await;
    let redis = server.redis().await;
    let mut dedicated = redis.dedicated().await.unwrap();
    let blocking = cmd("XREAD").arg("BLOCK").arg(20_000).arg("STREAMS").arg("s").arg("$").take();
    let reader =
        tokio::spawn(async move { dedicated.query::<Value>(&blocking, Duration::from_secs(30)).await });
    server.wait_for(&["INFO", "clients"], |parts| parts.concat().contains("blocked_clients:1")).await;
    redis.query::<()>(&set("a", "1"), Duration::from_secs(1)).await.unwrap();
    let add = cmd("XADD").arg("s").arg("*").arg("f").arg("v").take();
    redis.query::<String>(&add, LIMIT).await.unwrap();
    assert!(matches!(reader.await.unwrap(), Ok(Value::Array(_))));
    let mut dedicated = redis.dedicated().await.unwrap();
    server.restart().await;
    until(async || redis.query::<Value>(&get("a"), LIMIT).await, Result::is_ok).await.unwrap();
    assert_eq!(dedicated.query::<Value>(&get("a"), LIMIT).await, Err(StoreError::Unreachable));
    redis.dedicated().await.unwrap().query::<Value>(&get("a"), LIMIT).await.unwrap();
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let certificates = Certificates::make();
    let server = TestServer::start_tls(certificates.clone()).await;
    let redis = server.redis().await;
    redis.query::<()>(&set("a", "1"), LIMIT).await.unwrap();
    let plain = Redis::new(settings_of(server.node())).unwrap();
    plain.query::<Value>(&get("a"), LIMIT).await.unwrap_err();
    let stranger = Certificates::make();
    let wrong = RedisTls { ca_file: Some(stranger.authority), client: Some(certificates.client.clone()) };
    let redis = Redis::new(RedisSettings { tls: Some(wrong), ..server.settings() }).unwrap();
    redis.query::<Value>(&get("a"), LIMIT).await.unwrap_err();
    let nobody = RedisTls { ca_file: Some(certificates.authority.clone()), client: None };
    let redis = Redis::new(RedisSettings { tls: Some(nobody), ..server.settings() }).unwrap();
    redis.query::<Value>(&get("a"), LIMIT).await.unwrap_err();
}

#[test]
fn unusable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, garbage) = (folder.path().join("missing.pem"), folder.path().join("garbage.pem"));
    std::fs::write(&garbage, "no certificate").unwrap();
    let node = RedisNode { host: "localhost".to_owned(), port: 1 };
    for path in [missing, garbage] {
        let tls = Some(RedisTls { ca_file: Some(path.clone()), client: None });
        let error = Redis::new(RedisSettings { tls, ..settings_of(node.clone()) }).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("name a PEM file"), "{error}");
    }
    let nowhere = RedisSettings { topology: RedisTopology::Cluster(Vec::new()), ..settings_of(node) };
    assert!(Redis::new(nowhere).unwrap_err().to_string().contains("name at least one host"));
}

#[tokio::test]
async fn sentinel_leads_to_the_master_and_to_the_next_one() {
    let mut sentinel = TestSentinel::start().await;
    let redis = connected(sentinel.settings()).await;
    redis.query::<()>(&set("a", "1"), LIMIT).await.unwrap();
    sentinel.servers[1].wait_for(&["GET", "a"], |parts| parts == ["1"]).await;
    // The master is demoted but lives on: its connection must be left although it still answers.
    sentinel.fail_over().await;
    sentinel.wait_for_master(sentinel.servers[1].port()).await;
    // What is written before the demotion reaches the old master may be lost, as ever with Sentinel.
    let write_and_read = async || {
        let written = redis.query::<()>(&set("a", "2"), LIMIT).await;
        (written, sentinel.servers[1].ask(&["GET", "a"]).await)
    };
    until(write_and_read, |(written, read)| written.is_ok() && read == &["2"]).await.0.unwrap();
    let old = &sentinel.servers[0];
    old.wait_for(&["INFO", "replication"], |parts| parts.concat().contains("master_link_status:up")).await;
    old.wait_for(&["GET", "a"], |parts| parts == ["2"]).await;
    // The new master dies.
    sentinel.servers[1].kill();
    until(async || redis.query::<()>(&set("a", "3"), LIMIT).await, Result::is_ok).await.unwrap();
    assert_eq!(sentinel.servers[0].ask(&["GET", "a"]).await, ["3"]);
}

#[tokio::test]
async fn a_cluster_is_one_store() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    assert!(redis.is_cluster());
    assert_eq!(redis.nodes(LIMIT).await.unwrap().len(), 3);
    assert!(matches!(redis.dedicated().await, Err(StoreError::Refused(_))));
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    let mut pipe = redis::pipe();
    pipe.cmd("PING");
    keys.iter().for_each(|key| {
        pipe.add_command(set(key, key));
    });
    let values = redis.pipeline(&pipe, LIMIT).await.unwrap();
    assert_eq!((values.len(), values.iter().filter_map(refusal).count()), (201, 0));
    let read = async |redis: &Redis| {
        let mut pipe = redis::pipe();
        keys.iter().for_each(|key| {
            pipe.add_command(get(key));
        });
        let values = redis.pipeline(&pipe, LIMIT).await?;
        Ok::<_, StoreError>(values.into_iter().map(|value| redis::from_redis_value::<String>(value).unwrap()))
    };
    assert!(read(&redis).await.unwrap().eq(keys.iter().cloned()), "answers are in the order of the commands");
    let slot = cluster.slot(&keys[0]).await;
    let from = cluster.master_of(slot).await;
    cluster.move_slot(slot, from, (from + 1) % 3).await;
    assert!(read(&redis).await.unwrap().eq(keys.iter().cloned()), "the moved slot is followed");
    redis.query::<()>(&set(&keys[0], "moved"), LIMIT).await.unwrap();
    assert_eq!(cluster.masters[(from + 1) % 3].ask(&["GET", &keys[0]]).await, ["moved"]);
}

#[tokio::test]
async fn a_paused_master_of_a_cluster_holds_up_only_its_own_keys() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    let (mut alive, mut held) = (None, None);
    for number in 0..100 {
        let key = format!("key{number}");
        let place = if cluster.slot(&key).await < 16_384 / 3 { &mut held } else { &mut alive };
        place.get_or_insert(key);
    }
    let (alive, held) = (alive.unwrap(), held.unwrap());
    cluster.masters[0].pause();
    let begun = Instant::now();
    let limit = Duration::from_millis(30);
    redis.query::<Value>(&get(&held), limit).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
    for _ in 0..50 {
        redis.query::<Value>(&get(&alive), Duration::from_secs(1)).await.unwrap();
    }
    cluster.masters[0].resume();
    until(async || redis.query::<Value>(&get(&held), LIMIT).await, Result::is_ok).await.unwrap();
}

/// The replica that takes over is connected to for the first time, and may lack what its master acknowledged.
#[tokio::test]
async fn a_replica_that_takes_over_in_a_cluster_counts_as_a_reconnect() {
    let mut cluster = TestCluster::start(3).await;
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let arguments =
        ["--cluster-enabled", "yes", "--cluster-port", bus.as_str(), "--cluster-node-timeout", "2000"];
    let replica = TestServer::start_with(&arguments).await;
    let id = cluster.masters[0].ask(&["CLUSTER", "MYID"]).await.concat();
    cluster.masters[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &replica.port().to_string(), &bus]).await;
    replica.wait_for(&["CLUSTER", "REPLICATE", &id], |parts| parts == ["OK"]).await;
    replica
        .wait_for(&["INFO", "replication"], |parts| parts.concat().contains("master_link_status:up"))
        .await;
    let redis = connected(cluster.settings()).await;
    let key =
        (0..).map(|number| format!("key{number}")).find(|key| slots::slot_of(key.as_bytes()) < 5000).unwrap();
    redis.query::<()>(&set(&key, "1"), LIMIT).await.unwrap();
    assert_eq!(redis.status().reconnects, 0);
    cluster.masters[0].kill();
    replica.wait_for(&["CLUSTER", "FAILOVER", "TAKEOVER"], |parts| parts == ["OK"]).await;
    until(async || redis.query::<()>(&set(&key, "2"), LIMIT).await, Result::is_ok).await.unwrap();
    until(async || redis.status().reconnects, |reconnects| *reconnects > 0).await;
    assert_eq!(replica.ask(&["GET", &key]).await, ["2"]);
}
