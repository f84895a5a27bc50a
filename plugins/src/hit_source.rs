//! Where prefix hits are looked up, and how far.

use std::sync::atomic::{AtomicBool, Ordering};

use kvasir_settings::CoordinationMode;
use kvasir_settings::defaults::QUERY_BLOCKS;
use kvasir_settings::resolved::KvCacheAwareArgs;

/// Whether hits come from the index in memory or from a store that is asked for each request. It may change at run
/// time, because what a store holds is found out after the first requests; requests that are under way then may be
/// scored with the other one's window.
#[derive(Debug, Default)]
pub struct HitSource(AtomicBool);

impl HitSource {
    /// Begins with a mode; the default is the index.
    pub fn new(mode: CoordinationMode) -> Self {
        Self(AtomicBool::new(mode == CoordinationMode::Query))
    }

    /// The mode from here on.
    pub fn switch(&self, mode: CoordinationMode) {
        self.0.store(mode == CoordinationMode::Query, Ordering::Relaxed);
    }

    /// The mode now.
    pub fn mode(&self) -> CoordinationMode {
        if self.0.load(Ordering::Relaxed) { CoordinationMode::Query } else { CoordinationMode::Mirror }
    }
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

    #[test]
    fn the_mode_can_be_switched_and_has_its_own_window() {
        let source = HitSource::default();
        assert_eq!(source.mode(), CoordinationMode::Mirror);
        source.switch(CoordinationMode::Query);
        assert_eq!(source.mode(), CoordinationMode::Query);
        assert_eq!(HitSource::new(CoordinationMode::Query).mode(), CoordinationMode::Query);
        source.switch(CoordinationMode::Mirror);
        assert_eq!(source.mode(), CoordinationMode::Mirror);
        for (max_blocks_to_match, mirror, query) in [(None, usize::MAX, 128), (Some(7), 7, 7)] {
            let window = Window::of(&KvCacheAwareArgs { max_blocks_to_match, ..KvCacheAwareArgs::default() });
            assert_eq!(window.blocks(CoordinationMode::Mirror), mirror);
            assert_eq!(window.blocks(CoordinationMode::Query), query);
        }
    }
}
