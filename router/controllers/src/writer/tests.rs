use std::collections::BTreeMap;

use kvasir_state::plan::ObjectName;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::*;
use crate::status::{Said, Status, Verdict};

/// What an API server makes of a patch.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mood {
    Keeps,
    /// Its definition of the kind has no status.
    Drops,
    /// Its definition of the kind lacks fields.
    KeepsConditions,
    Forbids,
    Conflicts,
    Fails,
    Hangs,
}

#[derive(Debug)]
struct Fake {
    objects: Mutex<BTreeMap<StatusKey, Value>>,
    mood: Mutex<Mood>,
    patches: Mutex<Vec<(Instant, Value)>>,
    gets: AtomicU64,
}

impl Fake {
    fn holding(names: &[&str]) -> Arc<Self> {
        let object = |name: &&str| {
            let object =
                json!({"metadata": {"name": name, "generation": 1, "uid": name, "resourceVersion": "5"}});
            (key(name), object)
        };
        Arc::new(Self {
            objects: Mutex::new(names.iter().map(object).collect()),
            mood: Mutex::new(Mood::Keeps),
            patches: Mutex::default(),
            gets: AtomicU64::new(0),
        })
    }

    fn patches(&self) -> usize {
        self.patches.lock().len()
    }

    fn says(&self, name: &str) -> Value {
        self.objects.lock()[&key(name)]["status"].clone()
    }

    fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        edit(self.objects.lock().get_mut(&key(name)).expect("there"));
    }
}

impl StatusApi for Arc<Fake> {
    async fn get(&self, kind: StatusKind, name: &ObjectName) -> Result<Value, Problem> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let mood = *self.mood.lock();
        match mood {
            Mood::Hangs => std::future::pending().await,
            Mood::Fails => Err(Problem::Unavailable("down".to_owned())),
            _ => self.objects.lock().get(&(kind, name.clone())).cloned().ok_or(Problem::Missing),
        }
    }

    async fn patch(&self, kind: StatusKind, name: &ObjectName, patch: &Value) -> Result<Value, Problem> {
        self.patches.lock().push((Instant::now(), patch.clone()));
        let mut objects = self.objects.lock();
        let object = objects.get_mut(&(kind, name.clone())).ok_or(Problem::Missing)?;
        match *self.mood.lock() {
            Mood::Keeps => object["status"] = patch["status"].clone(),
            Mood::KeepsConditions => {
                object["status"] = json!({"conditions": patch["status"]["conditions"]});
            }
            Mood::Forbids => return Err(Problem::Forbidden("no".to_owned())),
            Mood::Conflicts => return Err(Problem::Conflict),
            Mood::Drops | Mood::Fails | Mood::Hangs => {}
        }
        Ok(object.clone())
    }
}

fn key(name: &str) -> StatusKey {
    (StatusKind::ModelRoute, ObjectName::new("n", name))
}

fn wants(name: &str, message: &str) -> Wanted {
    wants_at(name, message, 1)
}

fn wants_at(name: &str, message: &str, generation: i64) -> Wanted {
    let said = Said::Conditions(vec![Verdict::holds("Accepted", "Accepted", message)]);
    let (kind, object) = key(name);
    let status = Status { kind, name: object, generation: Some(generation), said };
    Wanted { status: Arc::new(status), uid: Some(name.to_owned()), seen: true }
}

struct Bench {
    api: Arc<Fake>,
    outbox: Arc<Outbox>,
    leadership: Leadership,
    lead: watch::Sender<bool>,
    counts: Arc<WriterCounts>,
}

const RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);

/// A writer at work, leading.
fn bench(names: &[&str]) -> Bench {
    let (lead, leadership) = Leadership::by_hand();
    leadership.set(&lead, true);
    let (api, outbox, counts) = (Fake::holding(names), Arc::default(), Arc::default());
    let bench = Bench { api, outbox, leadership, lead, counts };
    let writer = Writer::new(
        Arc::clone(&bench.api),
        Arc::clone(&bench.outbox),
        bench.leadership.clone(),
        "ours".to_owned(),
        Pace::new(RATE, NonZeroU32::MIN),
        Arc::clone(&bench.counts),
    );
    tokio::spawn(writer.run());
    bench
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

impl Bench {
    fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_written_with_the_version_that_was_read() {
    let bench = bench(&["a"]);
    bench.outbox.put([wants("a", "words")]);
    seconds(1).await;
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "words");
    assert_eq!(bench.api.patches.lock()[0].1["metadata"], json!({"resourceVersion": "5"}));
    // Said already: no write, whatever a watch that is behind believes.
    bench.outbox.put([wants("a", "words")]);
    seconds(400).await;
    assert_eq!(bench.api.patches(), 1);
    assert_eq!((bench.counts.written.load(Ordering::Relaxed), bench.failed()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn many_statuses_are_written_at_a_bounded_rate() {
    let names: Vec<String> = (0..200).map(|number| format!("r{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bench = bench(&names);
    bench.outbox.put(names.iter().map(|name| wants(name, "words")));
    seconds(10).await;
    let patches = bench.api.patches.lock();
    assert_eq!(patches.len(), 200);
    let took = patches[199].0 - patches[0].0;
    assert!(took >= Duration::from_millis(199 * 20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_writes() {
    let bench = bench(&["a"]);
    bench.leadership.set(&bench.lead, false);
    bench.outbox.put([wants("a", "words")]);
    seconds(10).await;
    assert_eq!((bench.api.gets.load(Ordering::Relaxed), bench.outbox.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_dropped_is_tried_now_and_then_and_with_the_next_generation() {
    let bench = bench(&["a"]);
    *bench.api.mood.lock() = Mood::Drops;
    for round in 0..29 {
        bench.outbox.put([wants("a", &format!("words {round}"))]);
        seconds(10).await;
    }
    assert_eq!((bench.api.patches(), bench.failed()), (1, 1));
    bench.api.edit("a", |object| object["metadata"]["generation"] = 2.into());
    bench.outbox.put([wants_at("a", "words", 2)]);
    seconds(10).await;
    assert_eq!(bench.api.patches(), 2);
    // Somebody installs a definition that has a status.
    *bench.api.mood.lock() = Mood::Keeps;
    seconds(200).await;
    bench.outbox.put([wants_at("a", "words", 2)]);
    seconds(10).await;
    assert_eq!(bench.api.patches(), 2, "it is early yet");
    seconds(100).await;
    bench.outbox.put([wants_at("a", "words", 2)]);
    seconds(10).await;
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "words");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_kept_in_part_is_repeated_now_and_then() {
    let bench = bench(&["a"]);
    *bench.api.mood.lock() = Mood::KeepsConditions;
    for _ in 0..29 {
        bench.outbox.put([wants("a", "words")]);
        seconds(10).await;
    }
    assert_eq!(bench.api.patches(), 1);
    bench.outbox.put([wants("a", "other words")]);
    seconds(10).await;
    assert_eq!(bench.api.patches(), 2);
    *bench.api.mood.lock() = Mood::Keeps;
    seconds(300).await;
    bench.outbox.put([wants("a", "other words")]);
    seconds(10).await;
    assert_eq!(bench.api.says("a")["observedGeneration"], 1, "all of it is kept now");
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_is_not_written() {
    let bench = bench(&["a", "b"]);
    bench.outbox.put([wants("a", "first")]);
    seconds(2).await;
    // It changes to and fro before the next write is due; the first words stand.
    bench.outbox.put([wants("a", "second"), wants("b", "words")]);
    bench.outbox.settle(&[key("a")]);
    seconds(100).await;
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "first");
    assert_eq!((bench.api.patches(), bench.outbox.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_quarrel_becomes_slow() {
    let bench = bench(&["a"]);
    // Somebody takes it back ten times a second for an hour.
    for _ in 0..36_000 {
        bench.api.edit("a", |object| object["status"] = json!({}));
        bench.outbox.put([wants("a", "words")]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let patches = bench.api.patches();
    assert!((10..30).contains(&patches), "{patches} writes in an hour");
    // A word of our own that changes is not held back for that.
    bench.outbox.clear();
    bench.outbox.put([wants("a", "other words")]);
    seconds(2).await;
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "other words");
}

#[tokio::test(start_paused = true)]
async fn a_word_that_flaps_is_written_once_a_second_at_most() {
    let bench = bench(&["a"]);
    for round in 0..600 {
        bench.outbox.put([wants("a", &format!("words {round}"))]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    seconds(2).await;
    let patches = bench.api.patches();
    assert!((28..=32).contains(&patches), "{patches} writes in 30 seconds");
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "words 599");
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_tried_now_and_then() {
    let bench = bench(&["a"]);
    *bench.api.mood.lock() = Mood::Forbids;
    for _ in 0..3600 {
        bench.outbox.put([wants("a", "words")]);
        seconds(1).await;
    }
    let patches = bench.api.patches();
    assert!((11..=13).contains(&patches), "{patches} tries in an hour");
    *bench.api.mood.lock() = Mood::Keeps;
    seconds(300).await;
    bench.outbox.put([wants("a", "words")]);
    seconds(2).await;
    assert_eq!(bench.api.says("a")["conditions"][0]["message"], "words");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_waits_for_the_next_event() {
    let bench = bench(&["a"]);
    *bench.api.mood.lock() = Mood::Conflicts;
    bench.outbox.put([wants("a", "words")]);
    seconds(1000).await;
    assert_eq!((bench.api.patches(), bench.failed(), bench.outbox.len()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changed_or_went_is_left_for_the_next_event() {
    let bench = bench(&["a", "b"]);
    bench.outbox.put([wants_at("a", "words", 7), wants("gone", "words")]);
    let stranger = Wanted { uid: Some("another".to_owned()), ..wants("b", "words") };
    bench.outbox.put([stranger]);
    seconds(1000).await;
    assert_eq!((bench.api.patches(), bench.failed(), bench.outbox.len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_with_problems_is_asked_a_few_times() {
    for mood in [Mood::Fails, Mood::Hangs] {
        let bench = bench(&["a", "b"]);
        *bench.api.mood.lock() = mood;
        bench.outbox.put([wants("a", "words"), wants("b", "words")]);
        seconds(1000).await;
        assert_eq!((bench.api.gets.load(Ordering::Relaxed), bench.outbox.len()), (10, 0), "{mood:?}");
        *bench.api.mood.lock() = Mood::Keeps;
        bench.outbox.put([wants("a", "words")]);
        seconds(20).await;
        assert_eq!(bench.api.patches(), 1, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_not_asked_for_again_and_again() {
    let bench = bench(&["a"]);
    let unseen = || Wanted { seen: false, ..wants("a", "it cannot be read") };
    for _ in 0..20 {
        bench.outbox.put([unseen()]);
        seconds(100).await;
    }
    assert_eq!((bench.api.patches(), bench.api.gets.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn the_pace_allows_a_burst_after_a_pause() {
    let begin = Instant::now();
    let mut pace = Pace::new(RATE, NonZeroU32::MIN.saturating_add(2));
    let at: Vec<u128> = (0..5).map(|_| (pace.next(begin) - begin).as_millis()).collect();
    assert_eq!(at, [0, 0, 0, 20, 40]);
    let later = begin + Duration::from_secs(10);
    let at: Vec<u128> = (0..4).map(|_| (pace.next(later) - later).as_millis()).collect();
    assert_eq!(at, [0, 0, 0, 20]);
}
