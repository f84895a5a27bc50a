//! A journal and an index that are only sets, and agents and routers around them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{
    BlockChange, BlockHash, BlockSize, Clock, Completeness, EndpointId, EngineKind, HeldOn, MirrorSink,
    ModelName, OwnerChanges, OwnerContent, OwnerJournal, OwnerSlot, SystemClock,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::connection::Redis;
use crate::key;
use crate::mirror::{Mirror, MirrorOptions, MirroredOwner, OwnerState};
use crate::publish::{PublishedOwner, Publisher, PublisherOptions, PublisherStatus};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(15);

/// Blocks of one owner: GPU, other tiers.
pub(super) type Sets = (BTreeSet<u64>, BTreeSet<u64>);

/// A block hash that is as spread as a real one.
pub(super) fn hash(number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes())
}

pub(super) fn endpoint(number: u32) -> EndpointId {
    EndpointId::new("ns", format!("engine-{number}"), 8000, 0)
}

/// The journal of an agent's index.
#[derive(Default)]
pub(super) struct Journal(Mutex<BTreeMap<u32, Kept>>);

struct Kept {
    life: u64,
    completeness: Completeness,
    block_size: Option<BlockSize>,
    sets: Sets,
    most: usize,
    overflowed: bool,
    panics: bool,
    changes: HashMap<(u64, HeldOn), bool>,
}

impl Journal {
    pub(super) fn add(&self, owner: u32) {
        let kept = Kept {
            life: 1,
            completeness: Completeness::Exact,
            block_size: BlockSize::new(16),
            sets: Sets::default(),
            most: 0,
            overflowed: false,
            panics: false,
            changes: HashMap::new(),
        };
        self.0.lock().insert(owner, kept);
    }

    fn with<T>(&self, owner: u32, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(self.0.lock().get_mut(&owner).expect("the owner is there"))
    }

    pub(super) fn change(&self, owner: u32, block: u64, on: HeldOn, held: bool) {
        self.with(owner, |kept| {
            let set = if on == HeldOn::Gpu { &mut kept.sets.0 } else { &mut kept.sets.1 };
            if held {
                set.insert(block)
            } else {
                set.remove(&block)
            };
            if kept.changes.len() < kept.most || kept.changes.contains_key(&(block, on)) {
                kept.changes.insert((block, on), held);
            } else {
                kept.overflowed = true;
            }
        });
    }

    pub(super) fn store(&self, owner: u32, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.change(owner, hash(number), HeldOn::Gpu, true));
    }

    pub(super) fn evict(&self, owner: u32, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.change(owner, hash(number), HeldOn::Gpu, false));
    }

    /// The engine starts anew, empty.
    pub(super) fn restart_engine(&self, owner: u32) {
        self.with(owner, |kept| {
            kept.life += 1;
            kept.sets = Sets::default();
            kept.changes.clear();
            kept.overflowed = false;
        });
    }

    pub(super) fn panic_at_next_look(&self, owner: u32) {
        self.with(owner, |kept| kept.panics = true);
    }

    pub(super) fn set_completeness(&self, owner: u32, completeness: Completeness) {
        self.with(owner, |kept| kept.completeness = completeness);
    }

    pub(super) fn sets(&self, owner: u32) -> Sets {
        self.with(owner, |kept| kept.sets.clone())
    }
}

impl OwnerJournal for Journal {
    fn record(&self, slot: OwnerSlot, most_changes: usize) {
        self.with(slot.0, |kept| kept.most = most_changes);
    }

    fn take_changes(&self, slot: OwnerSlot) -> Option<OwnerChanges> {
        let mut owners = self.0.lock();
        let kept = owners.get_mut(&slot.0).filter(|kept| kept.most > 0)?;
        assert!(!std::mem::take(&mut kept.panics), "the test wants this");
        let overflowed = std::mem::take(&mut kept.overflowed);
        let changes = std::mem::take(&mut kept.changes);
        let change =
            |((block, on), held): ((u64, HeldOn), bool)| BlockChange { block: BlockHash(block), on, held };
        Some(OwnerChanges {
            life: kept.life,
            block_size: kept.block_size,
            completeness: kept.completeness,
            overflowed,
            changes: if overflowed { Vec::new() } else { changes.into_iter().map(change).collect() },
        })
    }

    fn content(&self, slot: OwnerSlot) -> Option<OwnerContent> {
        let mut owners = self.0.lock();
        let kept = owners.get_mut(&slot.0)?;
        kept.changes.clear();
        kept.overflowed = false;
        let blocks = |set: &BTreeSet<u64>| set.iter().map(|block| BlockHash(*block)).collect();
        Some(OwnerContent {
            life: kept.life,
            block_size: kept.block_size,
            completeness: kept.completeness,
            gpu: blocks(&kept.sets.0),
            other_tiers: blocks(&kept.sets.1),
        })
    }
}

/// A router's index, with a diary of what was said about each owner.
#[derive(Default)]
pub(super) struct Index(Mutex<BTreeMap<u32, Known>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) wanted: bool,
    pub(super) sets: Sets,
    pub(super) completeness: Option<Completeness>,
    pub(super) block_size: Option<BlockSize>,
    /// Whether the next change of it panics.
    pub(super) panics: bool,
    pub(super) loads: u32,
    pub(super) lapses: u32,
}

impl Index {
    pub(super) fn want(&self, owner: u32, wanted: bool) {
        let mut owners = self.0.lock();
        *owners.entry(owner).or_default() = Known { wanted, ..Known::default() };
    }

    pub(super) fn known(&self, owner: u32) -> Known {
        self.0.lock().get(&owner).cloned().unwrap_or_default()
    }

    /// Loses what it knows of an owner, as no mirror told it to.
    pub(super) fn forget(&self, owner: u32) {
        self.with(OwnerSlot(owner), |known| (known.sets, known.completeness) = (Sets::default(), None));
    }

    pub(super) fn panic_at_next_change(&self, owner: u32) {
        self.with(OwnerSlot(owner), |known| known.panics = true);
    }

    fn with(&self, slot: OwnerSlot, act: impl FnOnce(&mut Known)) {
        act(self.0.lock().get_mut(&slot.0).expect("only wanted owners are entered"));
    }
}

impl MirrorSink for Index {
    fn slot(&self, owner: &EndpointId, model: &ModelName) -> Option<OwnerSlot> {
        let number: u32 = owner.pod.strip_prefix("engine-")?.parse().ok()?;
        let wanted = self.0.lock().get(&number).is_some_and(|known| known.wanted);
        (wanted && model.as_str() == "m").then_some(OwnerSlot(number))
    }

    fn load(&self, slot: OwnerSlot, content: OwnerContent) -> bool {
        self.with(slot, |known| {
            let set = |blocks: Vec<BlockHash>| blocks.into_iter().map(|block| block.0).collect();
            known.sets = (set(content.gpu), set(content.other_tiers));
            known.completeness = Some(content.completeness);
            known.block_size = content.block_size;
            known.loads += 1;
        });
        true
    }

    fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) -> bool {
        let mut taken = false;
        self.with(slot, |known| {
            assert!(!std::mem::take(&mut known.panics), "the test wants this");
            taken = known.completeness.is_some();
            if !taken {
                return;
            }
            for change in changes {
                let set = if change.on == HeldOn::Gpu { &mut known.sets.0 } else { &mut known.sets.1 };
                if change.held {
                    set.insert(change.block.0)
                } else {
                    set.remove(&change.block.0)
                };
            }
        });
        taken
    }

    fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness) {
        self.with(slot, |known| known.completeness = Some(completeness));
    }

    fn lapse(&self, slot: OwnerSlot) {
        self.with(slot, |known| {
            known.sets = Sets::default();
            known.completeness = None;
            known.lapses += 1;
        });
    }
}

/// A clock that is wrong by a fixed time.
pub(super) struct Ahead(pub(super) Duration);

impl Clock for Ahead {
    fn now(&self) -> Instant {
        Instant::now() + self.0
    }
}

/// One agent.
pub(super) struct Agent {
    pub(super) journal: Arc<Journal>,
    pub(super) publisher: Publisher,
    pub(super) stop: CancellationToken,
}

/// Leases of a second, and everything else in proportion.
pub(super) fn quick_publisher() -> PublisherOptions {
    PublisherOptions {
        lease: Duration::from_secs(1),
        spread: Duration::from_millis(100),
        longest_back_off: Duration::from_millis(200),
        fold_after: Duration::from_millis(300),
        call_limit: Duration::from_secs(1),
        ..PublisherOptions::default()
    }
}

pub(super) fn quick_mirror() -> MirrorOptions {
    MirrorOptions {
        refresh: Duration::from_millis(100),
        settle: Duration::from_millis(800),
        stale: Duration::from_secs(1),
        call_limit: Duration::from_secs(1),
        ..MirrorOptions::default()
    }
}

impl Agent {
    /// Publishes owners `0..owners` of a new journal.
    pub(super) fn start(redis: &Redis, owners: u32, options: PublisherOptions) -> Self {
        let journal = Arc::new(Journal::default());
        (0..owners).for_each(|owner| journal.add(owner));
        Self::with(redis, journal, options, Arc::new(SystemClock))
    }

    /// Publishes all owners of a journal.
    pub(super) fn with(
        redis: &Redis,
        journal: Arc<Journal>,
        options: PublisherOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let stop = CancellationToken::new();
        let owner = |number: &u32| PublishedOwner {
            id: endpoint(*number),
            slot: OwnerSlot(*number),
            model: ModelName::from("m"),
            engine: EngineKind::Vllm,
            adapters: vec!["lora".into()],
        };
        let owners = journal.0.lock().keys().map(owner).collect();
        let publisher = Publisher::start(redis, Arc::clone(&journal) as _, owners, options, clock, &stop);
        Self { journal, publisher, stop }
    }

    pub(super) fn status(&self, owner: u32) -> PublisherStatus {
        let id = endpoint(owner);
        self.publisher.status().into_iter().find(|status| status.owner == id).expect("it is published")
    }

    /// Stops in good order.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.publisher.finished().await;
    }
}

/// One router.
pub(super) struct Router {
    pub(super) index: Arc<Index>,
    pub(super) mirror: Mirror,
    pub(super) stop: CancellationToken,
}

impl Router {
    /// Follows owners `0..owners`.
    pub(super) fn start(redis: &Redis, owners: u32, options: MirrorOptions) -> Self {
        Self::with(redis, owners, options, Arc::new(SystemClock))
    }

    pub(super) fn with(redis: &Redis, owners: u32, options: MirrorOptions, clock: Arc<dyn Clock>) -> Self {
        let index = Arc::new(Index::default());
        (0..owners).for_each(|owner| index.want(owner, true));
        let stop = CancellationToken::new();
        let mirror = Mirror::start(redis, Arc::clone(&index) as _, options, clock, &stop);
        Self { index, mirror, stop }
    }

    pub(super) fn status(&self, owner: u32) -> Option<MirroredOwner> {
        let id = endpoint(owner);
        self.mirror.status().owners.into_iter().find(|status| status.owner == id)
    }

    pub(super) fn state(&self, owner: u32) -> Option<OwnerState> {
        self.status(owner).map(|status| status.state)
    }

    /// Waits until it knows of these owners exactly what the journal has.
    #[track_caller]
    pub(super) fn has(&self, journal: &Journal, owners: std::ops::Range<u32>) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        let wanted: Vec<(u32, Sets)> = owners.map(|owner| (owner, journal.sets(owner))).collect();
        async move {
            let equal = || {
                wanted.iter().all(|(owner, sets)| {
                    let known = self.index.known(*owner);
                    known.sets == *sets && known.completeness.is_some()
                })
            };
            if !eventually(equal).await {
                let lengths = |sets: &Sets| (sets.0.len(), sets.1.len());
                for (owner, sets) in &wanted {
                    let known = self.index.known(*owner);
                    println!("owner {owner}: wanted {:?}, got {:?}", lengths(sets), lengths(&known.sets));
                }
                panic!("{caller}: never equal; {:#?}", self.mirror.status());
            }
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whether a condition holds before long.
pub(super) async fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    condition()
}

/// Waits until a condition holds.
#[track_caller]
pub(super) fn until(condition: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move { assert!(eventually(condition).await, "{caller}: never became so") }
}

/// The stream of an owner, and its head's key.
pub(super) fn keys(owner: u32) -> (u8, String) {
    let name = key::owner(&endpoint(owner));
    (key::stream_of(&name), key::meta(&name))
}
