//! Leases: who writes, and how long the others believe it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Completeness, SystemClock};

use super::fleet::{Agent, Ahead, Router, endpoint, keys, quick_mirror, quick_publisher, until};
use crate::connection::Redis;
use crate::mirror::{MirrorOptions, OwnerState};
use crate::publish::PublisherState;
use crate::testing::{Proxy, TestServer, Weather, connected, settings_of};

async fn through(proxy: &Proxy) -> Redis {
    connected(settings_of(proxy.node())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_one_stands_by_and_takes_over() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let first = Agent::start(&redis, 1, quick_publisher());
    first.journal.store(0, 0..10);
    until(|| first.status(0).state == PublisherState::Following).await;
    let second = Agent::start(&redis, 1, quick_publisher());
    second.journal.store(0, 100..120);
    let router = Router::start(&redis, 1, quick_mirror());
    until(|| second.status(0).state == PublisherState::StandingBy).await;
    first.journal.store(0, 10..20);
    router.has(&first.journal, 0..1).await;
    assert_eq!(first.status(0).fenced, 0);
    // Killed, without a word.
    drop(first.publisher);
    let killed = Instant::now();
    router.has(&second.journal, 0..1).await;
    assert!(killed.elapsed() < Duration::from_millis(2500), "took over after {:?}", killed.elapsed());
    second.journal.store(0, 120..130);
    router.has(&second.journal, 0..1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_away_too_long_stands_back() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let first = Agent::start(&through(&proxy).await, 1, quick_publisher());
    first.journal.store(0, 0..10);
    until(|| first.status(0).state == PublisherState::Following).await;
    let redis = server.redis().await;
    let second = Agent::start(&redis, 1, quick_publisher());
    second.journal.store(0, 100..120);
    let router = Router::start(&redis, 1, quick_mirror());
    proxy.set(Weather::BlackHole);
    router.has(&second.journal, 0..1).await;
    proxy.set(Weather::Fair);
    first.journal.store(0, 10..20);
    until(|| first.status(0).fenced == 1 && first.status(0).state == PublisherState::StandingBy).await;
    second.journal.store(0, 120..130);
    router.has(&second.journal, 0..1).await;
    assert_eq!(second.status(0).fenced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agents_owner_lapses_after_its_lease() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    agent.journal.store(0, 0..10);
    agent.journal.store(1, 0..10);
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    drop(agent.publisher);
    let killed = Instant::now();
    until(|| router.index.known(0).lapses == 1 && router.index.known(1).lapses == 1).await;
    // The lease was renewed a quarter of it ago at most, and is looked at ten times a second.
    let lasted = killed.elapsed();
    assert!(lasted > Duration::from_millis(600) && lasted < Duration::from_millis(1600), "{lasted:?}");
    assert_eq!(router.state(0), Some(OwnerState::Lapsed));
    assert!(!router.mirror.publishes(&endpoint(0)));
    // The content is still there for the next agent's readers, and the next agent publishes its own.
    let again = Agent::with(&redis, agent.journal, quick_publisher(), Arc::new(SystemClock));
    router.has(&again.journal, 0..2).await;
    assert!(router.mirror.publishes(&endpoint(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_lapses_while_the_router_is_cut_off() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let agent = Agent::start(&server.redis().await, 1, quick_publisher());
    agent.journal.store(0, 0..10);
    let router = Router::start(&through(&proxy).await, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    proxy.set(Weather::Cut);
    until(|| !router.mirror.status().connected).await;
    agent.journal.store(0, 10..2000);
    // Twice the lease and more.
    until(|| router.mirror.status().last_contact_ms.is_some_and(|ms| ms > 2200)).await;
    let known = router.index.known(0);
    assert_eq!((known.lapses, known.sets.0.len()), (0, 10));
    proxy.set(Weather::Fair);
    router.has(&agent.journal, 0..1).await;
    let known = router.index.known(0);
    assert_eq!((known.lapses, known.completeness), (0, Some(Completeness::Exact)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_decays_after_the_grace() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let agent = Agent::start(&server.redis().await, 1, quick_publisher());
    agent.journal.store(0, 0..10);
    let options = MirrorOptions { grace: Duration::from_millis(250), ..quick_mirror() };
    let router = Router::start(&through(&proxy).await, 1, options);
    router.has(&agent.journal, 0..1).await;
    proxy.set(Weather::Cut);
    until(|| router.index.known(0).completeness == Some(Completeness::Partial)).await;
    assert_eq!(router.index.known(0).sets.0.len(), 10);
    until(|| router.index.known(0).lapses == 1).await;
    proxy.set(Weather::Fair);
    router.has(&agent.journal, 0..1).await;
    assert_eq!(router.index.known(0).completeness, Some(Completeness::Exact));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_clock_but_the_servers_decides() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let journal = Arc::new(super::fleet::Journal::default());
    journal.add(0);
    journal.store(0, 0..10);
    let hour = Duration::from_secs(3600);
    let agent = Agent::with(&redis, journal, quick_publisher(), Arc::new(Ahead(hour)));
    let behind = Router::start(&redis, 1, quick_mirror());
    let ahead = Router::with(&redis, 1, quick_mirror(), Arc::new(Ahead(2 * hour)));
    behind.has(&agent.journal, 0..1).await;
    ahead.has(&agent.journal, 0..1).await;
    // Longer than a lease, which is renewed again and again.
    let (stream, _) = keys(0);
    let owners = crate::key::owners(stream);
    let first: u64 = server.ask(&["ZSCORE", &owners, "ns/engine-0:8000#0"]).await[0].parse().unwrap();
    server
        .wait_for(&["ZSCORE", &owners, "ns/engine-0:8000#0"], |parts| {
            parts[0].parse::<u64>().is_ok_and(|lease| lease > first + 1200)
        })
        .await;
    agent.journal.store(0, 10..20);
    behind.has(&agent.journal, 0..1).await;
    ahead.has(&agent.journal, 0..1).await;
    assert_eq!((behind.index.known(0).lapses, ahead.index.known(0).lapses), (0, 0));
    let left = ahead.status(0).unwrap().lease_left_ms;
    assert!(left <= 1000, "{left}");
}
