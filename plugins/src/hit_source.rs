//! Where prefix hits are looked up, and how far.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use kvasir_core::{Completeness, ModelName, PrefixHit};
use kvasir_settings::CoordinationMode;
use kvasir_settings::defaults::QUERY_BLOCKS;
use kvasir_settings::resolved::KvCacheAwareArgs;
use parking_lot::RwLock;

/// Whom a request's hits are asked of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HitPolicy {
    /// The index in memory, for every candidate.
    #[default]
    Mirror,
    /// A store, for every candidate.
    Query,
    /// The index for candidates whose content it knows, and the store for the others.
    PerOwner,
}

impl HitPolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Mirror, Self::Query, Self::PerOwner];

    /// The name in metrics and `/debug/coordination`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mirror => CoordinationMode::Mirror.as_str(),
            Self::Query => CoordinationMode::Query.as_str(),
            Self::PerOwner => "per_owner",
        }
    }
}

impl From<Option<CoordinationMode>> for HitPolicy {
    /// As the settings say; left open, each owner is looked up where it is known.
    fn from(mode: Option<CoordinationMode>) -> Self {
        match mode {
            Some(CoordinationMode::Mirror) => Self::Mirror,
            Some(CoordinationMode::Query) => Self::Query,
            None => Self::PerOwner,
        }
    }
}

/// Whether hits come from the index in memory or from a store that is asked for each request, and what was noticed
/// about the store's blocks. Shared by whoever looks up, whoever scores and whoever finds out what the store holds.
#[derive(Debug, Default)]
pub struct HitSource {
    policy: HitPolicy,
    /// Whether the store has anything that is worth asking for.
    filled: AtomicBool,
    /// What was found of the block sizes of each model that was asked about.
    sizes: RwLock<BTreeMap<ModelName, Sizes>>,
}

/// How a model's engines cut their blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    /// Tokens in a block of theirs, where that is not what is asked for.
    other: Option<u32>,
    warned: bool,
}

impl HitSource {
    /// With a policy; the default is the index alone.
    pub fn new(policy: HitPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whom hits are asked of.
    pub fn policy(&self) -> HitPolicy {
        self.policy
    }

    /// Where each owner is looked up where it is known, the store is asked only from here on: there is something in it.
    pub fn filled(&self) {
        self.filled.store(true, Ordering::Relaxed);
    }

    /// Whether the store is asked at all now.
    pub fn asks_store(&self) -> bool {
        match self.policy {
            HitPolicy::Mirror => false,
            HitPolicy::Query => true,
            HitPolicy::PerOwner => self.filled.load(Ordering::Relaxed),
        }
    }

    /// Each model whose engines' blocks were asked for, with their size in tokens where the store's blocks have another
    /// one, so that nothing is ever found.
    pub fn other_sizes(&self) -> Vec<(ModelName, Option<u32>)> {
        self.sizes.read().iter().map(|(model, sizes)| (model.clone(), sizes.other)).collect()
    }

    /// Notes the size of the engines' blocks where it is not `asked`, the one that is asked for; warns once for a model.
    pub(crate) fn note_size(&self, model: &ModelName, asked: u32, other: Option<u32>) {
        if self.sizes.read().get(model).is_some_and(|sizes| sizes.other == other) {
            return;
        }
        let mut sizes = self.sizes.write();
        let sizes = sizes.entry(model.clone()).or_default();
        sizes.other = other;
        if let Some(engines) = other
            && !std::mem::replace(&mut sizes.warned, true)
        {
            tracing::warn!(
                %model, asked, engines,
                "the engines' blocks are of another size than those that are asked for in Redis, so nothing is found \
                 there; set blockSizeToHash of kvcache-aware to the engines' block size"
            );
        }
    }

    /// In which window the hits of one request are measured. Where candidates are looked up in both places, what the
    /// index knows beyond the store's window must count for more, so all are measured by the whole prompt; where the
    /// index knows none of them, by what was looked at.
    pub(crate) fn measured_by<'a>(&self, hits: impl IntoIterator<Item = &'a PrefixHit>) -> CoordinationMode {
        match self.policy {
            HitPolicy::Query => CoordinationMode::Query,
            HitPolicy::PerOwner if self.asks_store() && !hits.into_iter().any(is_known) => {
                CoordinationMode::Query
            }
            HitPolicy::PerOwner | HitPolicy::Mirror => CoordinationMode::Mirror,
        }
    }
}

/// Whether the index follows what the owner holds, so that nobody else need be asked.
pub(crate) fn is_known(hit: &PrefixHit) -> bool {
    matches!(hit.completeness, Some(Completeness::Exact | Completeness::Partial))
}

/// How many blocks of a prompt are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window(Option<u32>);

impl Window {
    /// As the arguments say.
    pub(crate) fn of(args: &KvCacheAwareArgs) -> Self {
        Self(args.max_blocks_to_match)
    }

    /// In blocks. Memory is looked at to the end, a store that must be asked only so far.
    pub(crate) fn blocks(self, mode: CoordinationMode) -> usize {
        match (self.0, mode) {
            (Some(blocks), _) => blocks as usize,
            (None, CoordinationMode::Mirror) => usize::MAX,
            (None, CoordinationMode::Query) => QUERY_BLOCKS as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(completeness: Option<Completeness>) -> PrefixHit {
        PrefixHit { completeness, ..PrefixHit::default() }
    }

    #[test]
    fn a_store_is_asked_as_the_settings_say_or_once_there_is_something_in_it() {
        for (mode, policy, before, after) in [
            (Some(CoordinationMode::Mirror), HitPolicy::Mirror, false, false),
            (Some(CoordinationMode::Query), HitPolicy::Query, true, true),
            (None, HitPolicy::PerOwner, false, true),
        ] {
            let source = HitSource::new(mode.into());
            assert_eq!((source.policy(), source.asks_store()), (policy, before));
            source.filled();
            assert_eq!(source.asks_store(), after, "{policy:?}");
        }
        assert_eq!(HitPolicy::ALL.map(HitPolicy::as_str), ["mirror", "query", "per_owner"]);
    }

    #[test]
    fn one_known_owner_makes_the_whole_prompt_count() {
        let (known, guessed) = (hit(Some(Completeness::Partial)), hit(Some(Completeness::Approximate)));
        let mixed = [known, guessed, hit(None)];
        let source = HitSource::new(HitPolicy::PerOwner);
        assert_eq!(source.measured_by(&mixed[1..]), CoordinationMode::Mirror, "nobody is asked yet");
        source.filled();
        assert_eq!(source.measured_by(&mixed), CoordinationMode::Mirror);
        assert_eq!(source.measured_by(&mixed[1..]), CoordinationMode::Query);
        assert_eq!(HitSource::new(HitPolicy::Query).measured_by(&mixed), CoordinationMode::Query);
        assert_eq!(HitSource::default().measured_by(&mixed[1..]), CoordinationMode::Mirror);
    }

    #[test]
    fn another_block_size_is_kept_for_each_model_until_it_is_right() {
        let source = HitSource::new(HitPolicy::Query);
        let (a, b): (ModelName, ModelName) = ("a".into(), "b".into());
        source.note_size(&a, 16, Some(64));
        source.note_size(&b, 16, None);
        assert_eq!(source.other_sizes(), [(a.clone(), Some(64)), (b.clone(), None)]);
        source.note_size(&a, 16, None);
        assert_eq!(source.other_sizes(), [(a, None), (b, None)]);
    }

    #[test]
    fn memory_and_the_store_have_windows_of_their_own() {
        for (max_blocks_to_match, mirror, query) in [(None, usize::MAX, 128), (Some(7), 7, 7)] {
            let window = Window::of(&KvCacheAwareArgs { max_blocks_to_match, ..KvCacheAwareArgs::default() });
            assert_eq!(window.blocks(CoordinationMode::Mirror), mirror);
            assert_eq!(window.blocks(CoordinationMode::Query), query);
        }
    }
}
