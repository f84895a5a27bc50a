//! Replicas that tell each other of use through a real server.

mod shares;

use std::collections::BTreeMap;

use kvasir_core::{SystemClock, UsageKey, UsageShare};

use super::*;
use crate::testing::{Proxy, TestCluster, TestServer, Weather, connected, settings_of};

const WINDOW: Duration = Duration::from_secs(300);

/// A board whose own use the test sets.
#[derive(Default)]
struct Board {
    window: Mutex<Option<Duration>>,
    settled: Mutex<Vec<UsageShare>>,
    running: Mutex<Vec<UsageShare>>,
    peers: Mutex<BTreeMap<u64, (u64, u32)>>,
}

impl Board {
    fn used(&self, user: u64, cost: u64) {
        self.settled.lock().push(share(user, cost));
    }

    fn runs(&self, running: &[(u64, u64)]) {
        *self.running.lock() = running.iter().map(|(user, cost)| share(*user, *cost)).collect();
    }

    fn heard(&self) -> Vec<(u64, u64, u32)> {
        self.peers.lock().iter().map(|(user, (cost, requests))| (*user, *cost, *requests)).collect()
    }
}

impl UsageBoard for Board {
    fn window(&self) -> Duration {
        self.window.lock().unwrap_or(WINDOW)
    }

    fn take_settled(&self) -> Vec<UsageShare> {
        std::mem::take(&mut self.settled.lock())
    }

    fn running(&self) -> Vec<UsageShare> {
        self.running.lock().clone()
    }

    fn set_peers(&self, totals: &[UsageShare]) {
        *self.peers.lock() = totals.iter().map(|share| (share.key.0, (share.cost, share.requests))).collect();
    }
}

fn share(user: u64, cost: u64) -> UsageShare {
    UsageShare { key: UsageKey(user), cost, requests: 1 }
}

/// A clock that the test moves.
struct TestClock(Mutex<Instant>);

impl TestClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now())))
    }

    fn pass(&self, seconds: u64) {
        self.pass_time(Duration::from_secs(seconds));
    }

    fn pass_time(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

fn replica(redis: &Redis, name: &str, clock: &Arc<TestClock>) -> (Arc<Board>, Exchange) {
    let board = Arc::<Board>::default();
    let options = UsageOptions { replica: name.to_owned(), ..UsageOptions::new(None) };
    let exchange = Exchange::new(redis.clone(), Arc::clone(&board) as _, options, Arc::clone(clock) as _);
    (board, exchange)
}

fn replica_of(window: Duration, redis: &Redis, clock: &Arc<TestClock>) -> (Arc<Board>, Exchange) {
    let board = Arc::<Board>::default();
    *board.window.lock() = Some(window);
    let exchange = Exchange::new(
        redis.clone(),
        Arc::clone(&board) as _,
        UsageOptions::new(None),
        Arc::clone(clock) as _,
    );
    (board, exchange)
}

async fn rounds(count: usize, exchanges: &mut [&mut Exchange]) {
    for _ in 0..count {
        for exchange in &mut *exchanges {
            exchange.exchange().await;
        }
    }
}

fn status(exchange: &Exchange) -> UsageStatus {
    exchange.progress().lock().status(Instant::now())
}

#[tokio::test]
async fn replicas_hear_the_sum_of_the_others() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    let (c, mut tell_c) = replica(&redis, "c", &clock);
    a.used(1, 100);
    a.used(2, 7);
    b.used(1, 50);
    b.runs(&[(3, 9)]);
    // Who begins hears of the others' names with the second exchange, and what they used with the third.
    rounds(3, &mut [&mut tell_a, &mut tell_b, &mut tell_c]).await;
    assert_eq!(a.heard(), [(1, 50, 1), (3, 9, 1)]);
    assert_eq!(b.heard(), [(1, 100, 1), (2, 7, 1)]);
    assert_eq!(c.heard(), [(1, 150, 2), (2, 7, 1), (3, 9, 1)]);
    // Once met, use is known after the next exchange of each; and telling again changes nothing.
    b.runs(&[]);
    b.used(3, 4);
    rounds(1, &mut [&mut tell_b, &mut tell_a]).await;
    assert_eq!(a.heard(), [(1, 50, 1), (3, 4, 1)]);
    rounds(5, &mut [&mut tell_a, &mut tell_b, &mut tell_c]).await;
    assert_eq!(c.heard(), [(1, 150, 2), (2, 7, 1), (3, 4, 1)]);
    let stats = status(&tell_c);
    assert_eq!((stats.peers, stats.failures, stats.ignored, stats.untold), (2, 0, 0, 0));
    let keys = server.ask(&["KEYS", "*"]).await;
    assert!(keys.iter().all(|key| key.starts_with("kvasir:1:{usage}:")), "{keys:?}");
    for key in keys {
        let left: i64 = server.ask(&["PTTL", &key]).await.concat().parse().unwrap();
        assert!(left > 0 && left <= 310_000, "{key}: {left}");
    }
}

#[tokio::test]
async fn use_moves_with_the_window() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    a.used(1, 100);
    rounds(2, &mut [&mut tell_a, &mut tell_b]).await;
    for cost in [20, 3] {
        clock.pass(100);
        a.used(1, cost);
        rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    }
    assert_eq!(b.heard(), [(1, 123, 3)]);
    // What was added to a segment just before it ended is read, too.
    a.used(1, 1000);
    tell_a.exchange().await;
    clock.pass(5);
    rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 1123, 4)]);
    clock.pass(101);
    rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 1023, 3)]);
    clock.pass(100);
    rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 1003, 2)]);
    clock.pass(110);
    rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    assert!(b.heard().is_empty());
}

#[tokio::test]
async fn use_outlives_its_replica_and_a_restarted_one_is_another() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    a.used(1, 100);
    a.runs(&[(1, 5)]);
    rounds(2, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 105, 2)]);
    // It dies: what ran is believed a while, what was used for the window.
    drop(tell_a);
    server.ask(&["DEL", "kvasir:1:{usage}:running:a"]).await;
    tell_b.exchange().await;
    assert_eq!(b.heard(), [(1, 100, 1)]);
    let (again, mut tell_again) = replica(&redis, "a2", &clock);
    again.used(1, 1);
    rounds(2, &mut [&mut tell_again, &mut tell_b]).await;
    assert_eq!(again.heard(), [(1, 100, 1)], "its former life");
    assert_eq!(b.heard(), [(1, 101, 2)]);
    clock.pass(306);
    rounds(1, &mut [&mut tell_again, &mut tell_b]).await;
    assert!(again.heard().is_empty() && b.heard().is_empty());
}

#[tokio::test]
async fn who_was_silent_before_it_was_met_is_that_much_older() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    a.used(1, 100);
    tell_a.exchange().await;
    // As after 290 seconds of silence.
    server.ask(&["PEXPIRE", "kvasir:1:{usage}:head:a", "20000"]).await;
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    rounds(2, &mut [&mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 100, 1)]);
    clock.pass(16);
    tell_b.exchange().await;
    assert!(b.heard().is_empty());
}

#[tokio::test]
async fn an_emptied_store_is_filled_again_and_nothing_counts_twice() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    for cost in 1..=20 {
        a.used(1, cost);
        rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
        clock.pass(5);
    }
    assert_eq!(b.heard(), [(1, 210, 20)]);
    server.ask(&["FLUSHALL"]).await;
    rounds(1, &mut [&mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 210, 20)], "what was heard is known");
    rounds(5, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!(b.heard(), [(1, 210, 20)]);
    let (c, mut tell_c) = replica(&redis, "c", &clock);
    rounds(2, &mut [&mut tell_c]).await;
    assert_eq!(c.heard(), [(1, 210, 20)]);
    assert_eq!(status(&tell_a).failures + status(&tell_b).failures, 0);
}

#[tokio::test]
async fn lost_answers_and_outages_count_nothing_twice() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let proxy = Proxy::start(server.port()).await;
    let (a, mut tell_a) = replica(&connected(settings_of(proxy.node())).await, "a", &clock);
    let (b, mut tell_b) = replica(&server.redis().await, "b", &clock);
    let mut used = 0;
    rounds(2, &mut [&mut tell_a, &mut tell_b]).await;
    for weather in [Weather::BlackHole, Weather::Cut, Weather::BlackHole] {
        for weather in [Weather::Fair, weather] {
            proxy.set(weather);
            a.used(1, 10);
            b.used(2, 1);
            used += 1;
            rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
            clock.pass(1);
        }
        proxy.set(Weather::Fair);
        let begun = Instant::now();
        while b.heard() != [(1, 10 * used, used as u32)] || a.heard() != [(2, used, used as u32)] {
            assert!(begun.elapsed() < Duration::from_secs(20), "{weather:?} {:?} {:?}", a.heard(), b.heard());
            rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
        }
        rounds(3, &mut [&mut tell_a, &mut tell_b]).await;
        assert_eq!(b.heard(), [(1, 10 * used, used as u32)], "{weather:?}");
    }
    assert!(status(&tell_a).failures >= 2);
}

#[tokio::test]
async fn without_a_store_own_use_is_all_there_is() {
    let clock = TestClock::new();
    let mut server = TestServer::start().await;
    let redis = server.redis().await;
    server.kill();
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    for _ in 0..500 {
        a.used(1, 1);
        clock.pass(1);
        tell_a.exchange().await;
    }
    assert!(a.heard().is_empty() && status(&tell_a).failures == 500);
    // It comes, and hears of the last window.
    server.restart().await;
    let redis = server.redis().await;
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    let begun = Instant::now();
    while b.heard().first().is_none_or(|(_, cost, _)| *cost < 300) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} {:?}", b.heard(), status(&tell_a));
        rounds(1, &mut [&mut tell_a, &mut tell_b]).await;
    }
    rounds(10, &mut [&mut tell_a, &mut tell_b]).await;
    let (_, cost, _) = b.heard()[0];
    assert!((300..=305).contains(&cost), "{cost}");
}

#[tokio::test]
async fn what_others_wrote_does_no_harm() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    b.used(1, 5);
    rounds(2, &mut [&mut tell_b, &mut tell_a]).await;
    server.ask(&["SET", "kvasir:1:{usage}:head:b", "\u{2}garbage"]).await;
    server.ask(&["SET", "kvasir:1:{usage}:running:b", "garbage"]).await;
    tell_a.exchange().await;
    assert_eq!((a.heard(), status(&tell_a).ignored), (vec![(1, 5, 1)], 2));
    // A replica with another window is not understood, and is no failure.
    let (c, mut tell_c) = replica_of(Duration::from_secs(3600), &redis, &clock);
    c.used(1, 1000);
    rounds(3, &mut [&mut tell_c, &mut tell_a]).await;
    assert_eq!((a.heard(), c.heard()), (vec![(1, 5, 1)], vec![]));
    assert!(status(&tell_a).ignored > 2 && status(&tell_a).failures == 0);
}

#[tokio::test]
async fn it_works_on_a_cluster() {
    let (cluster, clock) = (TestCluster::start(3).await, TestClock::new());
    let redis = connected(cluster.settings()).await;
    let (a, mut tell_a) = replica(&redis, "a", &clock);
    let (b, mut tell_b) = replica(&redis, "b", &clock);
    a.used(1, 3);
    b.runs(&[(2, 4)]);
    rounds(3, &mut [&mut tell_a, &mut tell_b]).await;
    assert_eq!((a.heard(), b.heard()), (vec![(2, 4, 1)], vec![(1, 3, 1)]));
    assert_eq!((status(&tell_a).failures, status(&tell_b).failures), (0, 0));
}

#[tokio::test]
async fn two_running_replicas_see_the_same_soon() {
    let server = TestServer::start().await;
    let boards: [Arc<Board>; 2] = Default::default();
    let stop = CancellationToken::new();
    let redis = server.redis().await;
    let running: Vec<UsageExchange> = boards
        .iter()
        .map(|board| {
            let (board, clock) = (Arc::clone(board) as Arc<dyn UsageBoard>, Arc::new(SystemClock));
            UsageExchange::start(redis.clone(), board, UsageOptions::new(None), clock, stop.clone())
        })
        .collect();
    let heard = async |board: &Board, cost: u64| {
        let begun = Instant::now();
        while board.heard().first().map(|(_, cost, _)| *cost) != Some(cost) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{running:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        begun.elapsed()
    };
    let mut waits = Vec::new();
    for round in 1..=10 {
        boards[0].used(1, 10);
        waits.push(heard(&boards[1], 10 * round).await);
    }
    waits.sort_unstable();
    assert!(waits[8] < Duration::from_millis(250), "all but one: {waits:?}");
    boards[0].used(1, 1);
    boards[0].runs(&[(5, 5)]);
    stop.cancel();
    for exchange in &running {
        exchange.finished().await;
    }
    assert!(boards[1].heard().is_empty());
    // The last use was told, and a newcomer knows of it; what ran is over.
    let clock = Arc::new(TestClock(Mutex::new(Instant::now())));
    let (c, mut tell_c) = replica(&redis, "c", &clock);
    rounds(2, &mut [&mut tell_c]).await;
    assert_eq!(c.heard(), [(1, 101, 11)]);
}
