//! How much of a prompt each owner holds.

use kvasir_core::{BlockChain, Completeness, PrefixHit};

use super::holders::{BlockMap, Hold};

/// One owner on the way along a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walker {
    /// Its slot.
    pub(super) slot: u32,
    /// Its place in the caller's list.
    pub(super) place: usize,
    /// How far its content is known.
    pub(super) completeness: Completeness,
    run: u32,
    predicted: u32,
    /// How far the owner holds every block on some tier; never below `run`.
    reach: u32,
}

impl Walker {
    pub(super) fn new(slot: u32, place: usize, completeness: Completeness) -> Self {
        Self { slot, place, completeness, run: 0, predicted: 0, reach: 0 }
    }

    /// Takes block `number` if it continues the run. Owners whose history is partly unknown may skip blocks:
    /// what they hold further on shows that they held, and by the engines' order of eviction most likely still
    /// hold, everything before it. Skipped blocks count as predicted.
    fn step(&mut self, number: u32, hold: Hold) -> bool {
        let known = hold.has(Hold::GPU);
        let gap = number - self.run;
        let bridged = known && gap > 0 && self.completeness == Completeness::Partial;
        if !(known || hold.has(Hold::PREDICTED)) || (gap > 0 && !bridged) {
            return self.reach_over(number, hold);
        }
        self.predicted += gap + u32::from(!known);
        self.run = number + 1;
        self.reach = self.reach.max(self.run);
        true
    }

    /// Takes block `number` if it continues what is held on any tier.
    fn reach_over(&mut self, number: u32, hold: Hold) -> bool {
        let held = hold.has(Hold::GPU.with(Hold::PREDICTED).with(Hold::OTHER_TIER));
        let continued = held && number == self.reach;
        self.reach += u32::from(continued);
        continued
    }

    pub(super) fn hit(&self, block: usize) -> PrefixHit {
        let block = u32::try_from(block).unwrap_or(u32::MAX);
        PrefixHit {
            tokens: self.run.saturating_mul(block),
            predicted_tokens: self.predicted.saturating_mul(block),
            offloaded_tokens: (self.reach - self.run).saturating_mul(block),
            block_tokens: block,
            completeness: Some(self.completeness),
        }
    }
}

/// Walks all of `walkers`, which are sorted by slot, along `chain`, until none of them holds the next block.
pub(super) fn walk(map: &BlockMap, chain: &BlockChain, walkers: &mut [Walker]) {
    // Slots are dense, so a table finds the walker of a holder in one step.
    let (Some(first), Some(last)) = (walkers.first(), walkers.last()) else { return };
    let lowest = first.slot;
    let mut places: smallvec::SmallVec<[u32; 128]> =
        smallvec::smallvec![u32::MAX; (last.slot - lowest) as usize + 1];
    for (place, walker) in walkers.iter().enumerate() {
        places[(walker.slot - lowest) as usize] = place as u32;
    }
    for (number, hash) in chain.hashes.iter().enumerate() {
        let mut anyone = false;
        map.look(hash.0, |slot, hold| {
            let place = slot.checked_sub(lowest).and_then(|at| places.get(at as usize));
            if let Some(walker) = place.and_then(|place| walkers.get_mut(*place as usize)) {
                anyone |= walker.step(number as u32, hold);
            }
        });
        if !anyone {
            return;
        }
    }
}
