//! What goes wrong, and for how long it may: gaps, clocks, pauses, an index that does not listen.

use super::*;
use crate::mirror::status::OwnerState;

fn id() -> EndpointId {
    EndpointId::new("ns", "a", 1, 0)
}

impl Rig {
    /// A second later the lease is renewed and the list is read again.
    fn renewed(&mut self) {
        self.wait(1);
        self.lease_end = self.server_ms + LEASE;
        self.refresh();
    }

    /// So many refreshes without a renewed lease; after which one it lapsed.
    fn lapsed_within(&mut self, refreshes: u32, seconds: u64) -> Option<u32> {
        self.log.clear();
        (1..=refreshes).find(|_| {
            self.wait(seconds);
            self.refresh();
            std::mem::take(&mut self.log).contains(&"lapse".to_owned())
        })
    }

    fn state(&self) -> OwnerState {
        self.mirror.status(self.now)[0].state
    }
}

#[test]
fn what_the_index_does_not_take_is_loaded_again_and_again_but_ever_more_seldom() {
    let mut rig = Rig::synced(2);
    rig.delta(1, 3);
    rig.did(&["change 3"]);
    rig.step(Input::NotTaken(NAME.into()));
    // Of one round everything may be refused.
    rig.step(Input::NotTaken(NAME.into()));
    rig.delta(1, 4);
    rig.did(&[]);
    assert_eq!(rig.state(), OwnerState::Resyncing);
    let mut waits = Vec::new();
    for load in 2..12 {
        let due = rig.mirror.due().unwrap();
        waits.push(due - rig.now);
        rig.now = due;
        rig.step(Input::Tick);
        rig.arrive(1, 4);
        rig.did(&["resync", &format!("load {load}"), "change 1,2,3,4"]);
        rig.step(Input::NotTaken(NAME.into()));
    }
    assert_eq!((waits[0], waits[9]), (Duration::from_millis(50), Duration::from_secs(5)));
    // One that is taken and stays ends it.
    rig.now = rig.mirror.due().unwrap();
    rig.step(Input::Tick);
    rig.arrive(1, 4);
    rig.head = Ok(head(1, 4));
    rig.renewed();
    assert_eq!(rig.state(), OwnerState::Synced);
    rig.step(Input::NotTaken(NAME.into()));
    assert_eq!(rig.mirror.due().unwrap() - rig.now, Duration::from_millis(50));
}

#[test]
fn a_gap_that_cannot_be_closed_is_not_believed_for_ever() {
    let mut rig = Rig::synced(2);
    rig.delta(1, 4);
    rig.miss();
    rig.log.clear();
    // What the head says is of the content that is not here.
    let partial = Head { completeness: Completeness::Partial, ..head(1, 4) };
    rig.head = Ok(partial);
    let mut lapsed_after = None;
    for second in 1..15 {
        rig.renewed();
        assert!(!rig.log.contains(&"partial".to_owned()));
        if rig.log.contains(&"lapse".to_owned()) {
            lapsed_after.get_or_insert(second);
        }
        rig.log.clear();
        rig.miss();
    }
    assert_eq!(lapsed_after, Some(11));
    rig.wait(5);
    rig.step(Input::Tick);
    rig.arrive(1, 4);
    rig.log.clear();
    rig.renewed();
    rig.did(&["partial"]);
    assert_eq!(rig.lapsed_within(8, 1), None);
}

#[test]
fn a_gap_is_one_when_the_stream_was_read_past_it() {
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(1, 3));
    rig.last_id = StreamId { ms: rig.server_ms, seq: 9 };
    for _ in 0..5 {
        // The reader is slow.
        rig.renewed();
        rig.did(&[]);
    }
    rig.entry(Entry::Delta(delta(7, 1)));
    rig.renewed();
    rig.did(&["resync"]);
    assert_eq!(rig.mirror.status(rig.now)[0].gaps, 1);

    // A reader that gets nowhere is not waited for either.
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(1, 3));
    rig.last_id = StreamId { ms: rig.server_ms, seq: 9 };
    (0..11).for_each(|_| rig.renewed());
    rig.did(&[]);
    rig.renewed();
    rig.did(&["resync"]);

    // Nor is an entry that was cut off.
    let mut rig = Rig::synced(2);
    rig.head = Ok(head(1, 3));
    rig.last_id = StreamId { ms: rig.server_ms, seq: 9 };
    rig.renewed();
    rig.last_id = StreamId::START;
    rig.renewed();
    rig.did(&["resync"]);
}

#[test]
fn a_dead_owner_lapses_however_often_redis_comes_and_goes() {
    for pause in 3..20 {
        let mut rig = Rig::synced(2);
        let lapsed = rig.lapsed_within(20, pause).map(|refreshes| u64::from(refreshes) * pause);
        // The lease, one settling, and what a refresh comes late.
        let most = 10 + 5 + 2 * pause;
        assert!(lapsed.is_some_and(|after| after >= 10 && after <= most), "{pause}: {lapsed:?}");
    }
}

#[test]
fn a_live_owner_stays_however_often_redis_comes_and_goes() {
    let mut rig = Rig::synced(2);
    for _ in 0..20 {
        rig.wait(30);
        rig.refresh();
        rig.renewed();
    }
    rig.did(&[]);
}

#[test]
fn leases_that_a_restored_server_has_are_renewed_before_they_count() {
    let mut rig = Rig::synced(2);
    rig.wait(4);
    rig.lease_end -= 600_000;
    rig.refresh();
    rig.wait(1);
    rig.refresh();
    rig.did(&[]);
    rig.renewed();
    rig.did(&[]);
    // After that moment they do count.
    rig.lease_end -= 600_000;
    assert_eq!(rig.lapsed_within(1, 1), None);
    assert_eq!(rig.lapsed_within(3, 1), Some(2));
}

#[test]
fn without_redis_nobody_is_published_after_the_grace() {
    let mut rig = Rig::synced(2);
    rig.now += Duration::from_secs(59);
    rig.step(Input::Unreachable);
    assert!(rig.mirror.publishes(&id()));
    rig.now += Duration::from_secs(1);
    rig.step(Input::Unreachable);
    rig.did(&["partial"]);
    assert!(!rig.mirror.publishes(&id()));
    rig.now += Duration::from_secs(540);
    rig.step(Input::Tick);
    rig.did(&["lapse"]);
    assert_eq!((rig.mirror.publishes(&id()), rig.state()), (false, OwnerState::Lapsed));
    rig.server_ms += 600_000;
    rig.lease_end = rig.server_ms + LEASE;
    rig.refresh();
    rig.did(&["resync"]);
    assert!(rig.mirror.publishes(&id()));
}

#[test]
fn a_clock_that_is_set_back_gives_nobody_all_that_time() {
    let mut rig = Rig::synced(2);
    rig.renewed();
    rig.server_ms -= 900_000;
    let lapsed = rig.lapsed_within(120, 1);
    assert!(lapsed.is_some_and(|after| (55..=61).contains(&after)), "{lapsed:?}");

    // Nor does it while writers may renew first.
    let mut rig = Rig::synced(2);
    rig.wait(30);
    rig.refresh();
    rig.server_ms -= 900_000;
    let lapsed = rig.lapsed_within(120, 1);
    assert!(lapsed.is_some_and(|after| (55..=61).contains(&after)), "{lapsed:?}");

    // Who renews stays.
    let mut rig = Rig::synced(2);
    rig.server_ms -= 900_000;
    (0..120).for_each(|_| rig.renewed());
    rig.did(&[]);
}

#[test]
fn an_owner_that_is_missing_when_the_clock_is_set_back_goes_in_its_time() {
    let mut rig = Rig::synced(2);
    rig.refresh_with(Vec::new());
    rig.server_ms -= 900_000;
    rig.wait(1);
    rig.refresh_with(Vec::new());
    rig.did(&[]);
    (0..63).for_each(|_| {
        rig.wait(1);
        rig.refresh_with(Vec::new());
    });
    rig.did(&["lapse"]);
}

#[test]
fn a_clock_that_is_set_forward_is_a_pause() {
    let mut rig = Rig::synced(2);
    rig.server_ms += 3_600_000;
    rig.wait(1);
    rig.refresh();
    rig.did(&[]);
    rig.renewed();
    assert_eq!(rig.lapsed_within(9, 1), None);
    assert_eq!(rig.lapsed_within(1, 1), Some(1));

    let mut rig = Rig::synced(2);
    rig.server_ms += 3_600_000;
    rig.wait(1);
    rig.refresh();
    // Nobody renews.
    assert_eq!(rig.lapsed_within(10, 1), Some(5));
}

#[test]
fn few_owners_are_loaded_at_a_time() {
    let mut rig = Rig::new();
    let listed = |number: u64, blocks: u64| {
        let id = EndpointId::new("ns", format!("a{number}"), 1, 0);
        let name: Arc<str> = format!("ns/a{number}:1#0").into();
        let head = Head { blocks, ..head(number, 0) };
        Listed { name, id, lease_end: rig.lease_end, head: Ok(head), slot: Some(OwnerSlot(number as u32)) }
    };
    let large = 200_000;
    let mut owners: Vec<Listed> = (1..=100).map(|number| listed(number, 10)).collect();
    owners.extend((101..=103).map(|number| listed(number, large)));
    let refresh = Refresh {
        now_ms: rig.server_ms,
        store: Some("s".into()),
        last_id: None,
        tailed: None,
        owners,
        malformed: 0,
    };
    let mut input = Input::Refreshed(refresh);
    let mut seen: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
    while seen.len() < 103 {
        let actions = rig.mirror.step(rig.now, input);
        let names = actions.iter().find_map(|action| match action {
            Action::Resync(names) => Some(names.clone()),
            _ => None,
        });
        let names = names.unwrap();
        assert!(names.len() <= 64, "{}", names.len());
        let numbers: Vec<u64> = names.iter().map(|name| name[4..name.len() - 4].parse().unwrap()).collect();
        assert!(numbers.iter().filter(|number| **number > 100).count() <= 1);
        seen.extend(&numbers);
        let loaded = |(name, number): (&Arc<str>, u64)| {
            let head = Head { blocks: if number > 100 { large } else { 10 }, ..head(number, 0) };
            (Arc::clone(name), Ok(Loaded { head, blocks: Blocks::default(), deltas: Vec::new() }))
        };
        input = Input::Loaded(names.iter().zip(numbers).map(loaded).collect());
    }
    rig.mirror.step(rig.now, input);
    assert!(rig.mirror.first_synced());
}

#[test]
fn after_starting_over_everything_is_read_again() {
    let mut rig = Rig::synced(2);
    let whose = rig.mirror.start_over();
    assert_eq!(whose.iter().map(|whose| whose.slot).collect::<Vec<_>>(), [OwnerSlot(3)]);
    assert!(rig.mirror.first_synced() && !rig.mirror.publishes(&id()));
    rig.delta(1, 3);
    rig.did(&[]);
    rig.head = Ok(head(1, 3));
    rig.refresh();
    rig.did(&["resync"]);
    rig.arrive(1, 3);
    rig.did(&["load 1", "change 1,2,3"]);
}
