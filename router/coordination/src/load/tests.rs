//! Replicas that tell each other through a real server.

use std::time::Instant;

use kvasir_core::{EndpointId, SharedLoad, SystemClock};

use super::*;
use crate::key;
use crate::testing::{Proxy, TestCluster, TestServer, Weather, connected, settings_of};

/// A board whose own load the test sets.
#[derive(Default)]
struct Board {
    own: Mutex<Vec<(EndpointId, SharedLoad)>>,
    peers: Mutex<Vec<(EndpointId, SharedLoad)>>,
}

impl Board {
    fn set(&self, loads: &[(usize, u32)]) {
        *self.own.lock() = loads.iter().map(|(pod, in_flight)| (endpoint(*pod), load(*in_flight))).collect();
    }

    fn peers(&self) -> Vec<(EndpointId, SharedLoad)> {
        let mut peers = self.peers.lock().clone();
        peers.sort_by(|a, b| a.0.cmp(&b.0));
        peers
    }
}

impl LoadBoard for Board {
    fn own(&self) -> Vec<(EndpointId, SharedLoad)> {
        self.own.lock().clone()
    }

    fn endpoints(&self) -> Vec<EndpointId> {
        (0..3).map(endpoint).chain([EndpointId::new("ns", "pod2", 8000, 1)]).collect()
    }

    fn set_peers(&self, loads: &[(EndpointId, SharedLoad)]) {
        *self.peers.lock() = loads.to_vec();
    }
}

fn endpoint(pod: usize) -> EndpointId {
    EndpointId::new("ns", format!("pod{pod}"), 8000, 0)
}

fn load(in_flight: u32) -> SharedLoad {
    SharedLoad { in_flight, prefill_tokens: u64::from(in_flight) * 100, decoding: in_flight / 2 }
}

fn replica(redis: &Redis, name: &str, mode: SharedLoadMode) -> (Arc<Board>, Exchange) {
    replica_by(redis, name, mode, Arc::new(SystemClock))
}

fn replica_by(
    redis: &Redis,
    name: &str,
    mode: SharedLoadMode,
    clock: Arc<dyn Clock>,
) -> (Arc<Board>, Exchange) {
    let board = Arc::new(Board::default());
    let options = LoadOptions { replica: name.to_owned(), ..LoadOptions::new(mode, None) };
    (Arc::clone(&board), Exchange::new(redis.clone(), board, options, clock))
}

/// A clock that the test moves.
struct TestClock(Mutex<Instant>);

impl Clock for TestClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

/// What kthena's counters tell of others: no more than how many.
fn counted(in_flight: u32) -> SharedLoad {
    SharedLoad { in_flight, prefill_tokens: 0, decoding: in_flight }
}

fn status(exchange: &Exchange) -> LoadStatus {
    exchange.progress().lock().status(Instant::now())
}

#[tokio::test]
async fn replicas_hear_the_sum_of_the_others() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Auto);
    let (b, mut tell_b) = replica(&redis, "b", SharedLoadMode::Auto);
    let (c, mut tell_c) = replica(&redis, "c", SharedLoadMode::Native);
    a.set(&[(0, 4), (1, 1)]);
    b.set(&[(0, 2)]);
    for _ in 0..3 {
        tell_a.exchange().await;
        tell_b.exchange().await;
        tell_c.exchange().await;
    }
    assert_eq!(a.peers(), [(endpoint(0), load(2))]);
    assert_eq!(b.peers(), [(endpoint(0), load(4)), (endpoint(1), load(1))]);
    assert_eq!(c.peers(), [(endpoint(0), load(6)), (endpoint(1), load(1))]);
    let stats = status(&tell_c);
    assert_eq!((stats.layout, stats.peers, stats.exchanges, stats.failures), (Some("native"), 2, 3, 0));
    // Another schema says nothing that we understand.
    server.ask(&["SET", "kvasir:1:{load}:b", "\u{2}garbage"]).await;
    tell_c.exchange().await;
    assert_eq!((c.peers(), status(&tell_c).ignored), (a.own(), 1));
    // One that stops says so.
    tell_a.withdraw().await.unwrap();
    tell_b.exchange().await;
    tell_c.exchange().await;
    tell_c.exchange().await;
    assert_eq!(c.peers(), [(endpoint(0), load(2))]);
}

#[tokio::test]
async fn a_dead_replica_is_forgotten_after_its_lease() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Native);
    let (b, mut tell_b) = replica(&redis, "b", SharedLoadMode::Native);
    b.set(&[(1, 9)]);
    tell_b.exchange().await;
    let died = Instant::now();
    tell_a.exchange().await;
    tell_a.exchange().await;
    assert_eq!(a.peers(), [(endpoint(1), load(9))]);
    while !a.peers().is_empty() {
        tell_a.exchange().await;
        assert!(died.elapsed() < Duration::from_secs(10), "{:?}", status(&tell_a));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(died.elapsed() > Duration::from_millis(1500), "{:?}", died.elapsed());
    assert_eq!(status(&tell_a).peers, 0);
    assert_eq!(server.ask(&["EXISTS", "kvasir:1:{load}:b"]).await, ["0"]);
}

#[tokio::test]
async fn a_replica_that_is_cut_off_stops_believing() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let behind = connected(settings_of(proxy.node())).await;
    let a = Arc::new(Board::default());
    let (options, stop) =
        (LoadOptions::new(SharedLoadMode::Native, Some("a".to_owned())), CancellationToken::new());
    let own_vector = key::load_vector(&options.replica);
    let board = Arc::clone(&a) as Arc<dyn LoadBoard>;
    let tell_a = LoadExchange::start(behind, board, options, Arc::new(SystemClock), stop.clone());
    let (b, mut tell_b) = replica(&server.redis().await, "b", SharedLoadMode::Native);
    b.set(&[(1, 9)]);
    while a.peers().is_empty() {
        tell_b.exchange().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for weather in [Weather::BlackHole, Weather::Cut] {
        proxy.set(weather);
        let cut = Instant::now();
        while !a.peers().is_empty() {
            tell_b.exchange().await;
            assert!(cut.elapsed() < Duration::from_secs(4), "{weather:?} {tell_a:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(cut.elapsed() > Duration::from_millis(1500), "{weather:?}: {:?}", cut.elapsed());
        proxy.set(Weather::Fair);
        while a.peers().is_empty() {
            tell_b.exchange().await;
            assert!(cut.elapsed() < Duration::from_secs(20), "{weather:?} {tell_a:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stop.cancel();
    tell_a.finished().await;
    assert!(a.peers().is_empty());
    assert_eq!(server.ask(&["EXISTS", &own_vector]).await, ["0"], "it took back what it told");
}

#[tokio::test]
async fn kthenas_counters_are_joined_where_they_are() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    server.ask(&["HSET", "kthena:on-flight-requests", "ns/pod0", "5", "ns/pod2", "3", "other/x", "7"]).await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Auto);
    a.set(&[(0, 2), (1, 1)]);
    tell_a.exchange().await;
    assert_eq!(status(&tell_a).layout, Some("kthena"));
    let total = async |pod: &str| server.ask(&["HGET", "kthena:on-flight-requests", pod]).await.concat();
    assert_eq!([total("ns/pod0").await, total("ns/pod1").await, total("ns/pod2").await], ["7", "1", "3"]);
    let second_rank = EndpointId::new("ns", "pod2", 8000, 1);
    let wanted = [(endpoint(0), counted(5)), (endpoint(2), counted(2)), (second_rank, counted(1))];
    assert_eq!(a.peers(), wanted);
    // Telling the same again changes nothing; less in flight counts down.
    tell_a.exchange().await;
    assert_eq!(total("ns/pod0").await, "7");
    a.set(&[(0, 1)]);
    tell_a.exchange().await;
    assert_eq!([total("ns/pod0").await, total("ns/pod1").await], ["6", "(nil)"], "nothing is no counter");
    // Somebody counts down twice, removes a field, or writes nonsense.
    server.ask(&["HSET", "kthena:on-flight-requests", "ns/pod1", "-3", "ns/pod2", "many"]).await;
    server.ask(&["HDEL", "kthena:on-flight-requests", "ns/pod0"]).await;
    a.set(&[(0, 1), (2, 4)]);
    tell_a.exchange().await;
    assert_eq!([total("ns/pod0").await, total("ns/pod1").await, total("ns/pod2").await], ["1", "(nil)", "4"]);
    assert_eq!((a.peers(), status(&tell_a).healed), (Vec::new(), 2));
    tell_a.withdraw().await.unwrap();
    assert_eq!(
        [total("ns/pod0").await, total("ns/pod2").await, total("other/x").await],
        ["(nil)", "(nil)", "7"]
    );
    assert_eq!(server.ask(&["KEYS", "kvasir:*"]).await, [""; 0]);
}

#[tokio::test]
async fn what_is_found_out_is_found_out_again_and_replicas_never_lose_each_other() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let clock = Arc::new(TestClock(Mutex::new(Instant::now())));
    let shared = || Arc::clone(&clock) as Arc<dyn Clock>;
    let (a, mut tell_a) = replica_by(&redis, "a", SharedLoadMode::Auto, shared());
    a.set(&[(0, 4)]);
    tell_a.exchange().await;
    // The second one starts when a router of kthena is here already.
    server.ask(&["HSET", "kthena:on-flight-requests", "ns/pod0", "5"]).await;
    let (b, mut tell_b) = replica_by(&redis, "b", SharedLoadMode::Auto, shared());
    b.set(&[(0, 2)]);
    let mut round = async |passed: u64| {
        *clock.0.lock() += Duration::from_secs(passed);
        for _ in 0..3 {
            tell_a.exchange().await;
            tell_b.exchange().await;
        }
        (status(&tell_a).layout, status(&tell_b).layout)
    };
    assert_eq!(round(0).await, (Some("native"), Some("kthena")));
    assert_eq!((a.peers(), b.peers()), (vec![(endpoint(0), load(2))], vec![(endpoint(0), counted(5))]));
    assert_eq!(round(10).await, (Some("kthena"), Some("kthena")));
    assert_eq!((a.peers(), b.peers()), (vec![(endpoint(0), counted(7))], vec![(endpoint(0), counted(9))]));
    let total = async || server.ask(&["HGET", "kthena:on-flight-requests", "ns/pod0"]).await.concat();
    assert_eq!(total().await, "11");
    // kthena's router has nothing in flight: what the replicas keep there for it is no reason to read it themselves.
    server.ask(&["HINCRBY", "kthena:on-flight-requests", "ns/pod0", "-5"]).await;
    assert_eq!(round(10).await, (Some("native"), Some("native")));
    assert_eq!((a.peers(), b.peers()), (vec![(endpoint(0), load(2))], vec![(endpoint(0), load(4))]));
    assert_eq!(total().await, "6");
    // It never has again.
    for _ in 1..6 {
        assert_eq!(round(10).await, (Some("native"), Some("native")));
    }
    assert_eq!(server.ask(&["KEYS", "*on-flight*"]).await, [""; 0], "no trace of anybody");
}

#[tokio::test]
async fn a_replica_that_uses_the_counters_alone_is_met_there() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Kthena);
    let (b, mut tell_b) = replica(&redis, "b", SharedLoadMode::Auto);
    a.set(&[(0, 4)]);
    b.set(&[(1, 3)]);
    for _ in 0..2 {
        tell_a.exchange().await;
        tell_b.exchange().await;
    }
    assert_eq!((a.peers(), b.peers()), (vec![(endpoint(1), counted(3))], vec![(endpoint(0), counted(4))]));
}

#[tokio::test]
async fn counters_that_may_not_be_read_do_not_keep_replicas_apart() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    server.ask(&["SET", "kthena:on-flight-requests", "somebody else's"]).await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Auto);
    let (b, mut tell_b) = replica(&redis, "b", SharedLoadMode::Auto);
    b.set(&[(1, 9)]);
    for _ in 0..2 {
        tell_b.exchange().await;
        tell_a.exchange().await;
    }
    assert_eq!((a.peers(), status(&tell_a).failures), (vec![(endpoint(1), load(9))], 0));
}

#[tokio::test]
async fn the_share_of_a_dead_replica_is_taken_back_by_another() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", SharedLoadMode::Kthena);
    let (b, mut tell_b) = replica(&redis, "b", SharedLoadMode::Kthena);
    a.set(&[(0, 2)]);
    b.set(&[(0, 3)]);
    tell_a.exchange().await;
    tell_b.exchange().await;
    assert_eq!(server.ask(&["HGET", "kthena:on-flight-requests", "ns/pod0"]).await, ["5"]);
    // The lease of the first ends.
    server.ask(&["ZADD", &key::kthena_replicas(), "1", "a"]).await;
    tell_b.exchange().await;
    tell_b.exchange().await;
    assert_eq!(server.ask(&["HGET", "kthena:on-flight-requests", "ns/pod0"]).await, ["3"]);
    assert!(b.peers().is_empty());
    // It was only slow, and comes back.
    tell_a.exchange().await;
    assert_eq!(server.ask(&["HGET", "kthena:on-flight-requests", "ns/pod0"]).await, ["5"]);
}

#[tokio::test]
async fn both_ways_work_on_a_cluster() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    for layout in [SharedLoadMode::Native, SharedLoadMode::Kthena] {
        let (a, mut tell_a) = replica(&redis, "a", layout);
        let (b, mut tell_b) = replica(&redis, "b", layout);
        b.set(&[(1, 9)]);
        for _ in 0..2 {
            tell_b.exchange().await;
            tell_a.exchange().await;
        }
        assert_eq!(
            a.peers().first().map(|(endpoint, load)| (endpoint.clone(), load.in_flight)),
            Some((endpoint(1), 9))
        );
        assert_eq!((status(&tell_a).failures, status(&tell_b).failures), (0, 0));
    }
}
