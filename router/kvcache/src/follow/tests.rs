//! The follower against real sockets: an engine made of a publisher and a replay socket in this process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{CacheScope, Completeness, ModelName, OwnerSlot, SystemClock};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::machine::Options;
use super::subscribe::Subscription;
use super::{EventTap, FollowSetup, KvEventsSource, Link, SavedState};
use crate::event::Batch;
use crate::index::{Index, SavedOwner};

/// Longest wait for a condition; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an engine keeps for replay: number, payload.
type Buffer = Arc<Mutex<Vec<(u64, Bytes)>>>;

/// A publisher with a replay socket, as vLLM has them.
struct Engine {
    publisher: PubSocket,
    buffer: Buffer,
    endpoint: String,
    replay: String,
    next: u64,
    /// Which life it is: in the payload, as the time stamp is.
    life: u32,
    with_topic: bool,
    _replays: AbortOnDropHandle<()>,
}

impl Engine {
    async fn start(life: u32, endpoint: &str, replay: &str, with_topic: bool) -> Self {
        let mut publisher = PubSocket::new();
        let endpoint = publisher.bind(endpoint).await.unwrap().to_string();
        let mut router = RouterSocket::new();
        let replay = router.bind(replay).await.unwrap().to_string();
        let buffer = Buffer::default();
        let kept = Arc::clone(&buffer);
        let replays = tokio::spawn(async move {
            while let Ok(request) = router.recv().await {
                let frames = request.into_vec();
                let [peer, empty, from] = &frames[..] else { panic!("{frames:?}") };
                assert!(empty.is_empty());
                let from = u64::from_be_bytes(from[..].try_into().unwrap());
                let answers: Vec<_> = kept.lock().iter().filter(|(seq, _)| *seq >= from).cloned().collect();
                let end = (u64::MAX, Bytes::new());
                for (seq, payload) in answers.into_iter().chain([end]) {
                    let mut message = ZmqMessage::from(peer.clone());
                    message.push_back(Bytes::new());
                    if with_topic {
                        message.push_back(Bytes::from_static(b"kv-events"));
                    }
                    message.push_back(Bytes::copy_from_slice(&seq.to_be_bytes()));
                    message.push_back(payload);
                    let _ = router.send(message).await;
                }
            }
        });
        let _replays = AbortOnDropHandle::new(replays);
        Self { publisher, buffer, endpoint, replay, next: 0, life, with_topic, _replays }
    }

    async fn local(life: u32) -> Self {
        Self::start(life, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", true).await
    }

    /// Keeps a batch that stores prompt `number`; publishes it unless it gets lost.
    async fn publish(&mut self, lost: bool) {
        let seq = self.next;
        self.next += 1;
        let prompt = prompt(self.life, seq);
        let event = ("BlockStored", [seq + 1], None::<u64>, prompt, 16, None::<u64>);
        let payload = Bytes::from(rmp_serde::to_vec(&(f64::from(self.life), [event], 0)).unwrap());
        self.buffer.lock().push((seq, payload.clone()));
        if !lost {
            let mut message = ZmqMessage::from(Bytes::from_static(b"kv-events"));
            message.push_back(Bytes::copy_from_slice(&seq.to_be_bytes()));
            message.push_back(payload);
            self.publisher.send(message).await.unwrap();
        }
    }

    fn source(&self) -> KvEventsSource {
        KvEventsSource {
            endpoint: self.endpoint.clone(),
            replay: Some(self.replay.clone()),
            topic: "kv-".into(),
            bind: false,
            rank: Some(0),
        }
    }

    /// A new life on the same ports.
    async fn restart(self) -> Self {
        let (life, endpoint, replay) = (self.life + 1, self.endpoint.clone(), self.replay.clone());
        let with_topic = self.with_topic;
        let Self { publisher, _replays, .. } = self;
        publisher.close().await;
        drop(_replays);
        until("the ports are free", async || {
            let port = |endpoint: &str| endpoint.trim_start_matches("tcp://").to_owned();
            std::net::TcpListener::bind(port(&endpoint)).is_ok()
                && std::net::TcpListener::bind(port(&replay)).is_ok()
        })
        .await;
        Self::start(life, &endpoint, &replay, with_topic).await
    }
}

fn prompt(life: u32, seq: u64) -> Vec<u32> {
    vec![life * 100_000 + seq as u32; 16]
}

/// A followed owner 0.
struct Followed {
    index: Arc<Index>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Followed {
    fn start(source: KvEventsSource) -> Self {
        Self::start_with(source, FollowSetup::default())
    }

    fn start_with(source: KvEventsSource, setup: FollowSetup) -> Self {
        let index = Arc::new(Index::default());
        index.register(OwnerSlot(0), &ModelName::from("m"), source.to_string()).unwrap();
        let stop = CancellationToken::new();
        let options = Options {
            has_replay: source.replay.is_some(),
            probe_after: Duration::from_millis(300),
            retry_after: Duration::from_millis(100),
            ..Options::default()
        };
        let clock = Arc::new(SystemClock);
        let task = Subscription::new(Arc::clone(&index), OwnerSlot(0), source, clock, setup, options);
        let task = task.spawn(stop.clone());
        Self { index, stop, task }
    }

    fn holds(&self, life: u32, seq: u64) -> bool {
        let chain = crate::hash::chain(
            &CacheScope::default(),
            kvasir_core::BlockSize::DEFAULT,
            &prompt(life, seq),
            None,
        );
        let mut hits = [kvasir_core::PrefixHit::default()];
        kvasir_core::BlockIndex::walk(
            &*self.index,
            &ModelName::from("m"),
            &[chain],
            &[OwnerSlot(0)],
            &mut hits,
        );
        hits[0].tokens == 16
    }

    fn stats(&self) -> crate::index::OwnerStats {
        self.index.stats().remove(0)
    }

    fn is(&self, completeness: Completeness, life: u32, seqs: std::ops::Range<u64>) -> bool {
        let stats = self.stats();
        stats.completeness == completeness
            && stats.follower.link == Link::Following
            && stats.blocks as u64 == seqs.end - seqs.start
            && seqs.into_iter().all(|seq| self.holds(life, seq))
    }

    async fn becomes(&self, completeness: Completeness, life: u32, seqs: std::ops::Range<u64>) {
        let what = format!("{completeness:?} with {seqs:?} of life {life}");
        until(&what, async || self.is(completeness, life, seqs.clone())).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Stops as an agent that is replaced does: what it knew goes through bytes.
    async fn leave(self) -> SavedOwner {
        let bytes = self.index.save(OwnerSlot(0)).unwrap().to_bytes();
        self.end().await;
        SavedOwner::from_bytes(&bytes).unwrap()
    }
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "not reached: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_start_and_a_gap_end_exact() {
    for with_topic in [true, false] {
        let mut engine = Engine::start(1, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", with_topic).await;
        for _ in 0..3 {
            engine.publish(false).await;
        }
        let followed = Followed::start(engine.source());
        followed.becomes(Completeness::Exact, 1, 0..3).await;
        // Live batches are heard by now, or fetched when a later one shows the gap.
        engine.publish(false).await;
        followed.becomes(Completeness::Exact, 1, 0..4).await;
        engine.publish(true).await;
        engine.publish(true).await;
        engine.publish(false).await;
        followed.becomes(Completeness::Exact, 1, 0..7).await;
        followed.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_last_batch_is_found_by_the_probe() {
    let mut engine = Engine::local(1).await;
    engine.publish(false).await;
    let followed = Followed::start(engine.source());
    followed.becomes(Completeness::Exact, 1, 0..1).await;
    engine.publish(true).await;
    followed.becomes(Completeness::Exact, 1, 0..2).await;
    followed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_passed_the_old_number_is_noticed() {
    let mut engine = Engine::local(1).await;
    for _ in 0..4 {
        engine.publish(false).await;
    }
    let followed = Followed::start(engine.source());
    followed.becomes(Completeness::Exact, 1, 0..4).await;
    let mut engine = engine.restart().await;
    for _ in 0..9 {
        engine.publish(true).await;
    }
    followed.becomes(Completeness::Exact, 2, 0..9).await;
    assert!(followed.stats().follower.epoch >= 1 && !followed.holds(1, 0));
    engine.publish(false).await;
    followed.becomes(Completeness::Exact, 2, 0..10).await;
    followed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_was_exceeded_leaves_it_partial() {
    let mut engine = Engine::local(1).await;
    for _ in 0..3 {
        engine.publish(false).await;
    }
    let followed = Followed::start(engine.source());
    followed.becomes(Completeness::Exact, 1, 0..3).await;
    for _ in 0..5 {
        let seq = engine.next;
        engine.buffer.lock().retain(|(kept, _)| *kept + 2 > seq);
        engine.publish(true).await;
        engine.buffer.lock().retain(|(kept, _)| *kept + 2 > seq);
    }
    followed.becomes(Completeness::Partial, 1, 6..8).await;
    followed.end().await;
}

/// A tap that writes down what it sees.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl EventTap for Notes {
    fn applied(&self, batch: &Batch) {
        self.0.lock().push(format!("{}/{}", batch.ts, batch.seq));
    }

    fn reset(&self) {
        self.0.lock().push("reset".into());
    }

    fn restored(&self) {
        self.0.lock().push("restored".into());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_goes_on_where_the_old_one_was() {
    let mut engine = Engine::local(1).await;
    for _ in 0..6 {
        engine.publish(false).await;
    }
    let notes = Arc::new(Notes::default());
    let setup = || FollowSetup { tap: Some(notes.clone()), resume_from: None };
    let followed = Followed::start_with(engine.source(), setup());
    followed.becomes(Completeness::Exact, 1, 0..6).await;
    assert_eq!(notes.take(), ["1/0", "1/1", "1/2", "1/3", "1/4", "1/5"]);
    let first = followed.index.progress(OwnerSlot(0)).unwrap().first_batch;
    assert_eq!(first.map(|first| (first.seq, first.ts)), Some((0, 1.0)));
    let saved = followed.leave().await;
    assert_eq!((saved.blocks(), saved.last_batch().seq), (6, 5));
    // Meanwhile two more, and the engine keeps its last three batches only.
    engine.publish(true).await;
    engine.publish(true).await;
    engine.buffer.lock().drain(..5);
    let setup = FollowSetup { resume_from: Some(saved), ..setup() };
    let followed = Followed::start_with(engine.source(), setup);
    followed.becomes(Completeness::Exact, 1, 0..8).await;
    assert_eq!(followed.stats().follower.saved, SavedState::Taken);
    assert_eq!(notes.take(), ["restored", "1/6", "1/7"]);
    let progress = followed.index.progress(OwnerSlot(0)).unwrap();
    assert_eq!((progress.first_batch, progress.last_batch.unwrap().seq), (first, 7));
    engine.publish(false).await;
    followed.becomes(Completeness::Exact, 1, 0..9).await;
    followed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_state_of_another_life_or_of_a_lost_past_is_not_taken() {
    let mut engine = Engine::local(1).await;
    for _ in 0..4 {
        engine.publish(false).await;
    }
    let followed = Followed::start(engine.source());
    followed.becomes(Completeness::Exact, 1, 0..4).await;
    let saved = followed.leave().await;
    // The same engine, whose buffer no longer reaches back.
    engine.publish(true).await;
    engine.publish(true).await;
    engine.buffer.lock().drain(..4);
    let setup = || FollowSetup { tap: None, resume_from: Some(saved.clone()) };
    let followed = Followed::start_with(engine.source(), setup());
    followed.becomes(Completeness::Partial, 1, 4..6).await;
    assert_eq!(followed.stats().follower.saved, SavedState::Dropped);
    followed.end().await;
    // Another engine, with less and with more behind it than was saved.
    let mut engine = engine.restart().await;
    for published in [2, 6] {
        while engine.next < published {
            engine.publish(true).await;
        }
        let followed = Followed::start_with(engine.source(), setup());
        followed.becomes(Completeness::Exact, 2, 0..published).await;
        assert!((0..4).all(|seq| !followed.holds(1, seq)));
        assert_eq!(followed.stats().follower.saved, SavedState::Dropped);
        followed.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tap_is_told_of_a_restart_in_its_place() {
    let mut engine = Engine::local(1).await;
    engine.publish(false).await;
    let notes = Arc::new(Notes::default());
    let setup = FollowSetup { tap: Some(notes.clone()), resume_from: None };
    let followed = Followed::start_with(engine.source(), setup);
    followed.becomes(Completeness::Exact, 1, 0..1).await;
    let mut engine = engine.restart().await;
    engine.publish(true).await;
    followed.becomes(Completeness::Exact, 2, 0..1).await;
    assert_eq!(notes.take(), ["1/0", "reset", "2/0"]);
    followed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_comes_later_is_waited_for_and_stopping_ends_the_task() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", free.local_addr().unwrap());
    drop(free);
    let source = KvEventsSource { endpoint: endpoint.clone(), ..KvEventsSource::default() };
    let followed = Followed::start(source);
    assert_eq!(followed.stats().completeness, Completeness::Approximate);
    let mut engine = Engine::start(1, &endpoint, "tcp://127.0.0.1:0", true).await;
    until("connected", async || followed.stats().follower.link == Link::Following).await;
    assert_eq!(followed.stats().completeness, Completeness::Partial);
    // Without a replay socket only what is heard counts; the subscription takes a moment to arrive.
    let heard = async {
        while followed.stats().last_seq.is_none() {
            engine.publish(false).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, heard).await.is_ok());
    let index = Arc::clone(&followed.index);
    followed.end().await;
    assert_eq!(index.follower_status(OwnerSlot(0)).unwrap().link, Link::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_may_connect_to_us() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", free.local_addr().unwrap());
    drop(free);
    let mut engine = Engine::local(1).await;
    let source = KvEventsSource { endpoint: endpoint.clone(), bind: true, ..engine.source() };
    let followed = Followed::start(source);
    engine.publisher.connect(&endpoint).await.unwrap();
    engine.publish(true).await;
    until("heard or fetched", async || followed.is(Completeness::Exact, 1, 0..1)).await;
    engine.publish(false).await;
    followed.becomes(Completeness::Exact, 1, 0..2).await;
    followed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_prefixes() {
    // KVE-14: which of these the subscription takes.
    let topics = ["", "kv-events", "kv@10.0.0.1:8000@m", "kv-events-extra"];
    for (wanted, taken) in [("kv-events", vec![1, 3]), ("", vec![0, 1, 2, 3])] {
        let mut publisher = PubSocket::new();
        let endpoint = publisher.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
        let source = KvEventsSource { endpoint, topic: wanted.into(), ..KvEventsSource::default() };
        let followed = Followed::start(source);
        // One block for each topic, sent again and again until the last topic that is taken was heard.
        let mut seq = 0u64;
        let send = async {
            while followed.stats().blocks < taken.len() {
                for (number, topic) in topics.iter().enumerate() {
                    let number = number as u64;
                    let event =
                        ("BlockStored", [number + 1], None::<u64>, prompt(1, number), 16, None::<u64>);
                    let mut message = ZmqMessage::from(Bytes::copy_from_slice(topic.as_bytes()));
                    message.push_back(Bytes::copy_from_slice(&seq.to_be_bytes()));
                    message.push_back(Bytes::from(rmp_serde::to_vec(&(seq as f64, [event])).unwrap()));
                    publisher.send(message).await.unwrap();
                    // Topics that are not taken leave no gap behind.
                    seq += u64::from(taken.contains(&(number as usize)));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, send).await.is_ok(), "{wanted:?}");
        let held: Vec<usize> = (0..4).filter(|number| followed.holds(1, *number as u64)).collect();
        assert_eq!(held, taken, "{wanted:?}");
        followed.end().await;
    }
}
