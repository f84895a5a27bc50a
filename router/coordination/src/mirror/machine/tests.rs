//! One test for each rule: what was read and the time in, actions out.

use kvasir_core::{BlockHash, HeldOn};

use super::*;
use crate::delta::Reason;

mod troubles;

const NAME: &str = "ns/a:1#0";
const LEASE: u64 = 10_000;

/// A mirror with its time, the server's time, and what it did in short words.
struct Rig {
    mirror: StreamMirror,
    now: Instant,
    server_ms: u64,
    lease_end: u64,
    head: Result<Head, HeadFault>,
    slot: Option<OwnerSlot>,
    store: &'static str,
    last_id: StreamId,
    log: Vec<String>,
}

fn head(epoch: u64, seq: u64) -> Head {
    Head {
        epoch: Epoch(epoch),
        seq,
        floor: 0,
        floor_id: StreamId::START,
        generation: 1,
        chunks: 1,
        blocks: 0,
        model: ModelName::from("m"),
        block_size: None,
        completeness: Completeness::Exact,
        adapters: Vec::new(),
    }
}

fn delta(epoch: u64, seq: u64) -> Delta {
    let change = BlockChange { block: BlockHash(seq), on: HeldOn::Gpu, held: true };
    Delta { epoch: Epoch(epoch), seq, completeness: Completeness::Exact, changes: vec![change] }
}

impl Rig {
    fn new() -> Self {
        let patience = Patience {
            refresh: Duration::from_secs(1),
            grace: Duration::from_secs(60),
            settle: Duration::from_secs(5),
            stale: Duration::from_secs(10),
        };
        Self {
            mirror: StreamMirror::new(patience),
            now: Instant::now(),
            server_ms: 1_000_000,
            lease_end: 1_000_000 + LEASE,
            head: Ok(head(1, 0)),
            slot: Some(OwnerSlot(3)),
            store: "s",
            last_id: StreamId::START,
            log: Vec::new(),
        }
    }

    /// Epoch 1 is here, up to this delta.
    fn synced(seq: u64) -> Self {
        let mut rig = Self::new();
        rig.head = Ok(head(1, seq));
        rig.refresh();
        rig.arrive(1, seq);
        rig.log.clear();
        rig
    }

    fn step(&mut self, input: Input) {
        for action in self.mirror.step(self.now, input) {
            self.log.push(match action {
                Action::Load(_, content) => format!("load {}", content.life),
                Action::Change(_, changes) => {
                    let blocks: Vec<String> =
                        changes.iter().map(|change| change.block.0.to_string()).collect();
                    format!("change {}", blocks.join(","))
                }
                Action::SetCompleteness(_, completeness) => completeness.as_str().into(),
                Action::Lapse(_) => "lapse".into(),
                Action::Resync(_) => "resync".into(),
                Action::Refresh => "refresh".into(),
                Action::Rewind(to) => format!("rewind {to}"),
            });
        }
    }

    fn listed(&self) -> Listed {
        Listed {
            name: NAME.into(),
            id: EndpointId::new("ns", "a", 1, 0),
            lease_end: self.lease_end,
            head: self.head.clone(),
            slot: self.head.as_ref().ok().and(self.slot),
        }
    }

    fn refresh_with(&mut self, owners: Vec<Listed>) {
        let refresh = Refresh {
            now_ms: self.server_ms,
            store: Some(self.store.into()),
            last_id: Some(self.last_id),
            tailed: self.mirror.tailed(),
            owners,
            malformed: 0,
        };
        self.step(Input::Refreshed(refresh));
    }

    fn refresh(&mut self) {
        self.refresh_with(vec![self.listed()]);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.server_ms += 1000 * seconds;
    }

    fn entry(&mut self, entry: Entry) {
        let id = StreamId { ms: self.server_ms, seq: self.last_id.seq + 1 };
        self.last_id = id;
        self.step(Input::Entries(vec![(id, entry)]));
    }

    fn delta(&mut self, epoch: u64, seq: u64) {
        self.entry(Entry::Delta(delta(epoch, seq)));
    }

    fn published(&mut self, epoch: u64, reason: Reason) {
        self.entry(Entry::Published { owner: NAME.into(), epoch: Epoch(epoch), reason });
    }

    /// The resync ends with an epoch whose deltas up to this one are read.
    fn arrive(&mut self, epoch: u64, seq: u64) {
        let deltas = (1..=seq).map(|seq| delta(epoch, seq)).collect();
        let loaded = Loaded { head: head(epoch, seq), blocks: Blocks::default(), deltas };
        self.step(Input::Loaded(vec![(NAME.into(), Ok(loaded))]));
    }

    fn miss(&mut self) {
        self.step(Input::Loaded(vec![(NAME.into(), Err(LoadFault::ChunkMissing))]));
    }

    #[track_caller]
    fn did(&mut self, words: &[&str]) {
        assert_eq!(std::mem::take(&mut self.log), words);
    }
}

#[test]
fn the_first_refresh_loads_who_is_wanted() {
    let mut rig = Rig::new();
    assert!(!rig.mirror.first_synced());
    rig.head = Ok(head(1, 2));
    rig.refresh();
    rig.did(&["rewind 0-0", "resync"]);
    assert!(!rig.mirror.first_synced());
    // What comes meanwhile is entered after it, each number once.
    rig.delta(1, 2);
    rig.delta(1, 3);
    rig.did(&[]);
    rig.arrive(1, 2);
    rig.did(&["load 1", "change 1,2", "change 3"]);
    assert!(rig.mirror.first_synced());
    rig.delta(1, 4);
    rig.did(&["change 4"]);
}

#[test]
fn without_redis_nobody_waits() {
    let mut rig = Rig::new();
    rig.step(Input::Unreachable);
    assert!(rig.mirror.first_synced());
    rig.refresh();
    rig.did(&["rewind 0-0", "resync"]);
}

#[test]
fn the_start_does_not_wait_long_for_what_cannot_be_read() {
    let mut rig = Rig::new();
    rig.refresh();
    rig.miss();
    assert!(!rig.mirror.first_synced());
    rig.wait(1);
    rig.step(Input::Tick);
    rig.miss();
    assert!(rig.mirror.first_synced());
}

#[test]
fn a_hole_is_loaded_again_and_repeats_are_nothing() {
    let mut rig = Rig::synced(2);
    rig.delta(1, 2);
    rig.delta(1, 1);
    rig.did(&[]);
    rig.delta(1, 4);
    rig.did(&["resync"]);
    rig.delta(1, 5);
    rig.arrive(1, 4);
    rig.did(&["load 2", "change 1,2,3,4", "change 5"]);
}

#[test]
fn what_a_head_twice_has_and_the_stream_does_not_bring_is_a_hole() {
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(1, 5));
    rig.refresh();
    rig.did(&[]);
    rig.wait(1);
    // It came in between.
    (3..=5).for_each(|seq| rig.delta(1, seq));
    rig.log.clear();
    rig.head = Ok(head(1, 7));
    rig.refresh();
    rig.did(&[]);
    rig.wait(1);
    rig.head = Ok(head(1, 9));
    rig.refresh();
    rig.did(&["resync"]);
}

#[test]
fn a_reset_empties_at_once_and_a_snapshot_keeps_what_is_there() {
    let mut rig = Rig::synced(2);
    rig.published(2, Reason::Snapshot);
    rig.did(&["resync"]);
    // It is published anew once more, while it is read.
    rig.published(3, Reason::Reset);
    rig.did(&["lapse"]);
    rig.arrive(2, 0);
    rig.did(&["resync"]);
    rig.delta(3, 1);
    rig.arrive(3, 0);
    rig.did(&["load 2", "change 1"]);
    // The word for what is here already.
    rig.published(3, Reason::Reset);
    rig.did(&[]);
}

#[test]
fn an_epoch_that_only_the_head_has_is_loaded_too() {
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(2, 0));
    rig.refresh();
    rig.did(&["resync"]);
    // Another one was published since; what was read is as good as the news.
    rig.arrive(3, 1);
    rig.did(&["load 2", "change 1"]);
    rig.delta(3, 2);
    rig.did(&["change 2"]);
}

#[test]
fn what_cannot_be_loaded_is_tried_later_and_not_believed_for_ever() {
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(2, 0));
    rig.refresh();
    rig.miss();
    rig.did(&["resync"]);
    let mut lapsed_after = None;
    for second in 1..15 {
        rig.wait(1);
        rig.lease_end = rig.server_ms + LEASE;
        rig.refresh();
        if rig.log.contains(&"lapse".to_owned()) {
            lapsed_after.get_or_insert(second);
        }
        if rig.log.contains(&"resync".to_owned()) {
            rig.miss();
        }
        rig.log.clear();
    }
    assert_eq!(lapsed_after, Some(11));
}

#[test]
fn a_lease_ends_by_the_servers_clock() {
    let mut rig = Rig::synced(2);
    // Our own time does not matter, as long as refreshes come.
    rig.now += Duration::from_millis(1900);
    rig.refresh();
    rig.did(&[]);
    for _ in 0..9 {
        rig.server_ms += 1000;
        rig.refresh();
    }
    rig.server_ms = rig.lease_end - 1;
    rig.refresh();
    rig.did(&[]);
    assert!(rig.mirror.publishes(&EndpointId::new("ns", "a", 1, 0)));
    rig.server_ms += 1;
    rig.refresh();
    rig.did(&["lapse"]);
    assert!(!rig.mirror.publishes(&EndpointId::new("ns", "a", 1, 0)));
    // Renewed: the same content is loaded again.
    rig.lease_end = rig.server_ms + LEASE;
    rig.refresh();
    rig.did(&["resync"]);
    rig.arrive(1, 2);
    rig.did(&["load 2", "change 1,2"]);
}

#[test]
fn after_a_pause_writers_may_renew_first() {
    let mut rig = Rig::synced(2);
    rig.step(Input::Unreachable);
    rig.wait(30);
    rig.refresh();
    rig.did(&[]);
    rig.wait(1);
    rig.lease_end = rig.server_ms + LEASE;
    rig.refresh();
    rig.did(&[]);
    // Another pause, and nobody renews.
    rig.wait(30);
    rig.refresh();
    rig.did(&[]);
    for _ in 0..4 {
        rig.wait(1);
        rig.refresh();
    }
    rig.did(&[]);
    rig.wait(1);
    rig.refresh();
    rig.did(&["lapse"]);
}

#[test]
fn a_lease_from_a_clock_that_was_ahead_is_capped() {
    let mut rig = Rig::synced(2);
    rig.lease_end = rig.server_ms + 3_600_000;
    rig.refresh();
    for _ in 0..59 {
        rig.wait(1);
        rig.refresh();
    }
    rig.did(&[]);
    rig.wait(1);
    rig.refresh();
    rig.did(&["lapse"]);
}

#[test]
fn cut_off_it_becomes_partial_and_then_nothing() {
    let mut rig = Rig::synced(2);
    rig.step(Input::Unreachable);
    let due = rig.mirror.due().unwrap();
    assert_eq!(due - rig.now, Duration::from_secs(60));
    rig.now = due;
    rig.step(Input::Tick);
    rig.did(&["partial"]);
    rig.now += Duration::from_secs(539);
    rig.step(Input::Unreachable);
    rig.did(&[]);
    rig.now += Duration::from_secs(1);
    rig.step(Input::Tick);
    rig.did(&["lapse"]);
    assert_eq!(rig.mirror.due(), None);
    rig.refresh();
    rig.did(&["resync"]);
}

#[test]
fn back_from_a_grace_everything_is_as_it_was() {
    let mut rig = Rig::synced(2);
    rig.now += Duration::from_secs(61);
    rig.step(Input::Tick);
    rig.did(&["partial"]);
    rig.head = Ok(head(1, 2));
    rig.refresh();
    rig.did(&["exact"]);
}

#[test]
fn an_emptied_store_is_given_time() {
    let mut rig = Rig::synced(2);
    rig.wait(1);
    rig.refresh();
    rig.store = "other";
    rig.last_id = StreamId { ms: 5, seq: 0 };
    rig.wait(1);
    rig.refresh_with(Vec::new());
    rig.did(&["rewind 5-0"]);
    // Nine seconds of lease were left at the last contact.
    rig.wait(9);
    rig.refresh_with(Vec::new());
    rig.did(&[]);
    rig.head = Ok(head(2, 0));
    rig.lease_end = rig.server_ms + LEASE;
    rig.refresh();
    rig.did(&["resync"]);
    rig.arrive(2, 0);
    rig.did(&["load 2"]);
    assert_eq!(rig.mirror.counts().0, 1);
    for _ in 0..14 {
        rig.wait(1);
        rig.refresh_with(Vec::new());
    }
    rig.did(&["lapse"]);
    assert!(rig.mirror.status(rig.now).is_empty());
}

#[test]
fn a_stream_that_went_back_is_read_from_there() {
    let mut rig = Rig::synced(2);
    rig.delta(1, 3);
    rig.log.clear();
    rig.last_id = StreamId { ms: 7, seq: 1 };
    rig.head = Ok(head(1, 2));
    rig.refresh();
    rig.did(&["rewind 7-1"]);
    rig.refresh();
    rig.did(&[]);
}

#[test]
fn nobody_elses_slot_is_written_to() {
    let mut rig = Rig::synced(2);
    rig.slot = None;
    rig.refresh();
    rig.delta(1, 3);
    rig.did(&[]);
    rig.slot = Some(OwnerSlot(4));
    rig.refresh();
    rig.did(&["resync"]);
    // The index refuses: the slot went to another endpoint meanwhile.
    rig.step(Input::Refused(NAME.into()));
    rig.did(&["refresh"]);
    rig.arrive(1, 3);
    rig.did(&[]);
}

#[test]
fn a_head_that_cannot_be_read_changes_nothing_while_the_lease_lasts() {
    let mut rig = Rig::synced(2);
    for (fault, state) in [
        (HeadFault::Absent, "Synced"),
        (HeadFault::Malformed("seq"), "Synced"),
        (HeadFault::Schema("2".into()), "OtherSchema"),
    ] {
        rig.head = Err(fault);
        rig.refresh();
        rig.did(&[]);
        assert_eq!(format!("{:?}", rig.mirror.status(rig.now)[0].state), state);
    }
    for _ in 0..10 {
        rig.did(&[]);
        rig.wait(1);
        rig.refresh();
    }
    rig.did(&["lapse"]);
}

#[test]
fn news_of_an_unknown_owner_ask_for_a_refresh() {
    let mut rig = Rig::new();
    rig.refresh_with(Vec::new());
    rig.log.clear();
    rig.published(1, Reason::Snapshot);
    rig.did(&["refresh"]);
    rig.delta(9, 1);
    rig.did(&[]);
}

#[test]
fn too_much_that_waits_is_a_hole() {
    let mut rig = Rig::new();
    rig.refresh();
    (1..=5000).for_each(|seq| rig.delta(1, seq));
    rig.log.clear();
    rig.arrive(1, 0);
    assert_eq!(rig.log.len(), 1 + 4096);
    rig.delta(1, 5001);
    assert_eq!(rig.log.last().unwrap(), "resync");
}
