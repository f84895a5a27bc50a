//! Events on the wire: order, numbers, replay, loss, restart.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::timeout;
use zeromq::{DealerSocket, SubSocket};

use super::*;
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::event::Event;
use crate::fault::Fault;

const PATIENCE: Duration = Duration::from_secs(10);

struct Rig {
    config: EventsConfig,
    ports: EventPorts,
    publisher: Publisher,
    /// Batches, in all.
    sent: Cell<u64>,
}

impl Rig {
    async fn new(config: EventsConfig) -> Self {
        let ports = EventPorts::reserve(&config).expect("free ports");
        let publisher = Publisher::start(&config, EngineKind::Vllm, &ports).await.expect("starts");
        Self { config, ports, publisher, sent: Cell::new(0) }
    }

    fn send(&self, hash: u64) {
        self.sent.set(self.sent.get() + 1);
        self.publisher.outlet().send(Batch { at: 1.0, events: vec![Event::Removed(hash)] });
    }

    /// Waits until so many batches have their number.
    async fn published(&self, batches: u64) {
        let outlet = self.publisher.outlet();
        timeout(PATIENCE, async {
            while outlet.published() < batches {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("publishes");
    }

    async fn replay(&self, start: u64) -> Vec<Vec<Bytes>> {
        let mut dealer = DealerSocket::new();
        let address = self.ports.replay().expect("has replay");
        dealer.connect(&format!("tcp://{address}")).await.expect("connects");
        let mut request = ZmqMessage::from(Bytes::new());
        request.push_back(Bytes::copy_from_slice(&start.to_be_bytes()));
        dealer.send(request).await.expect("sends");
        let mut replies = Vec::new();
        loop {
            let reply = timeout(PATIENCE, dealer.recv()).await.expect("answers").expect("reads").into_vec();
            let is_end = reply.iter().any(|frame| frame[..] == END_OF_REPLAY);
            replies.push(reply);
            if is_end {
                return replies;
            }
        }
    }
}

fn number(frame: &Bytes) -> u64 {
    u64::from_be_bytes(frame[..].try_into().expect("8 bytes"))
}

#[tokio::test]
async fn replay_gives_the_batches_from_the_asked_one_then_the_end() {
    let rig = Rig::new(EventsConfig { replay_buffer: 3, ..EventsConfig::default() }).await;
    (0..5).for_each(|hash| rig.send(hash));
    rig.published(5).await;
    let replies = rig.replay(0).await;
    let numbers: Vec<u64> = replies[..3].iter().map(|reply| number(&reply[2])).collect();
    assert_eq!(numbers, [2, 3, 4], "the buffer is bounded");
    assert!(replies.iter().all(|reply| reply.len() == 4 && reply[0].is_empty()));
    assert_eq!(&replies[0][1][..], rig.config.topic.as_bytes());
    assert_eq!(&replies[3][1..], [Bytes::new(), Bytes::from_static(&END_OF_REPLAY), Bytes::new()]);
    assert_eq!(rig.replay(4).await.len(), 2);
    assert_eq!(rig.replay(99).await.len(), 1, "the end alone");
    rig.publisher.stop().await;
}

#[tokio::test]
async fn the_older_replay_carries_no_topic() {
    let rig = Rig::new(EventsConfig { encoding: Encoding::Array, ..EventsConfig::default() }).await;
    rig.send(1);
    rig.published(1).await;
    let replies = rig.replay(0).await;
    assert_eq!(replies[0].len(), 3);
    assert_eq!(number(&replies[0][1]), 0);
    assert_eq!(replies[1], [Bytes::new(), Bytes::from_static(&END_OF_REPLAY), Bytes::new()]);
    rig.publisher.stop().await;
}

#[tokio::test]
async fn a_replay_request_of_another_form_gets_no_answer() {
    let rig = Rig::new(EventsConfig::default()).await;
    let mut dealer = DealerSocket::new();
    dealer.connect(&format!("tcp://{}", rig.ports.replay().expect("replay"))).await.expect("connects");
    dealer.send(ZmqMessage::from(Bytes::copy_from_slice(&7u64.to_be_bytes()))).await.expect("sends");
    let mut request = ZmqMessage::from(Bytes::new());
    request.push_back(Bytes::copy_from_slice(&0u64.to_be_bytes()));
    dealer.send(request).await.expect("sends");
    let reply = timeout(PATIENCE, dealer.recv()).await.expect("answers").expect("reads");
    assert_eq!(
        reply.get(2).map(|frame| &frame[..]),
        Some(&END_OF_REPLAY[..]),
        "the first answer is to the second"
    );
    rig.publisher.stop().await;
}

/// Subscribes, and sends until the subscription works; gives the first message.
async fn subscribe(rig: &Rig, topic: &str) -> (SubSocket, ZmqMessage) {
    let mut subscriber = SubSocket::new();
    subscriber.subscribe(topic).await.expect("subscribes");
    let address = rig.ports.publisher().expect("bound");
    subscriber.connect(&format!("tcp://{address}")).await.expect("connects");
    let first = timeout(PATIENCE, async {
        loop {
            rig.send(0);
            if let Ok(message) = timeout(Duration::from_millis(20), subscriber.recv()).await {
                return message.expect("reads");
            }
        }
    })
    .await
    .expect("receives");
    (subscriber, first)
}

/// Numbers of four batches as a subscriber gets them, counted from the first of them, and that one's number.
async fn disturbed(rig: &Rig, disturbance: Disturbance) -> (Vec<u64>, u64) {
    let (mut subscriber, first) = subscribe(rig, "kv-").await;
    assert_eq!(first.get(0).map(|topic| &topic[..]), Some(&b"kv-events"[..]));
    // Batches of the warm-up may be under way before these.
    let base = rig.sent.get();
    rig.publisher.outlet().disturb(disturbance).await;
    (0..5).for_each(|hash| rig.send(hash));
    let mut numbers = Vec::new();
    while numbers.last() != Some(&(base + 4)) {
        let message = timeout(PATIENCE, subscriber.recv()).await.expect("receives").expect("reads");
        numbers.push(number(message.get(1).expect("a number")));
    }
    numbers.retain(|number| (base..base + 4).contains(number));
    (numbers.into_iter().map(|number| number - base).collect(), base)
}

#[tokio::test]
async fn subscribers_get_every_batch_in_order_but_those_that_are_to_be_lost() {
    let rig = Rig::new(EventsConfig::default()).await;
    let (numbers, base) = disturbed(&rig, Disturbance::Lose { batches: 2, replayable: true }).await;
    assert_eq!(numbers, [2, 3], "two are lost, the numbers go on");
    let replayed: Vec<u64> = rig.replay(base).await.iter().map(|reply| number(&reply[2])).collect();
    assert_eq!(replayed[..2], [base, base + 1], "replay has what was lost");
    rig.publisher.stop().await;
}

#[tokio::test]
async fn batches_come_twice_or_in_another_order_where_that_is_ordered() {
    for (disturbance, expected) in [
        (Disturbance::None, vec![0, 1, 2, 3]),
        (Disturbance::Duplicate { batches: 3 }, vec![0, 0, 1, 1, 2, 2, 3]),
        (Disturbance::Reorder { pairs: 1 }, vec![1, 0, 2, 3]),
        (Disturbance::Reorder { pairs: 2 }, vec![1, 0, 3, 2]),
    ] {
        let rig = Rig::new(EventsConfig::default()).await;
        let (numbers, base) = disturbed(&rig, disturbance).await;
        assert_eq!(numbers, expected, "{disturbance:?}");
        let replayed: Vec<u64> = rig.replay(base).await.iter().map(|reply| number(&reply[2])).collect();
        assert_eq!(replayed[..4], [base, base + 1, base + 2, base + 3], "replay is in order");
        rig.publisher.stop().await;
    }
}

#[tokio::test]
async fn an_engine_connects_to_a_subscriber_that_has_bound() {
    let mut subscriber = SubSocket::new();
    subscriber.subscribe("kv@pod").await.expect("subscribes");
    let bound = subscriber.bind("tcp://127.0.0.1:0").await.expect("binds").to_string();
    let config = EventsConfig {
        endpoint: EventsEndpoint::Connect(bound.clone()),
        topic: "kv@pod@m".to_owned(),
        ..EventsConfig::default()
    };
    let rig = Rig::new(config).await;
    let message = timeout(PATIENCE, async {
        loop {
            rig.send(1);
            if let Ok(message) = timeout(Duration::from_millis(20), subscriber.recv()).await {
                return message.expect("reads");
            }
        }
    })
    .await
    .expect("receives");
    assert_eq!(message.get(0).map(|topic| &topic[..]), Some(&b"kv@pod@m"[..]));
    rig.publisher.stop().await;
}

#[tokio::test]
async fn a_restart_counts_from_zero_on_the_same_ports() {
    let engine = Engine::start(EngineConfig::default()).await.expect("starts");
    let before = engine.kv_events();
    engine.set_fault(Fault::DropEvents { batches: 1, replayable: false }).await;
    engine.restart().await.expect("restarts");
    assert_eq!(engine.kv_events(), before);
    assert_eq!(engine.stats().event_batches, 0);
    let mut dealer = DealerSocket::new();
    let replay = before.and_then(|kv| kv.replay).expect("has replay");
    dealer.connect(&replay).await.expect("the port is bound again");
    engine.stop().await;
}
