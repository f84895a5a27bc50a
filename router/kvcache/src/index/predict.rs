//! Predictions: blocks that an owner is about to have because a request was sent there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kvasir_core::{BlockChain, BlockHash, BlockSize, Completeness, OwnerSlot};

use super::Index;
use super::agreement::Life;
use super::holders::Hold;
use super::owner::Owner;
use super::recent::Recent;

/// Most predicted blocks of one owner with events; they live for seconds only. At 50 bytes this is 3 MiB.
const MOST_SHORT_LIVED: usize = 65_536;

/// Most expired predictions that one walk clears of one owner: about a millisecond's work. The rest waits for
/// the next walk.
const MOST_EXPIRED: usize = 8_192;

/// What one placement entered, so that it can be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prediction {
    /// Size of the blocks that were entered.
    pub block_size: BlockSize,
    /// Leading blocks that the owner was taken to hold before.
    pub held_before: usize,
    /// Whether it ends by itself after a while (owners with events) or by last use (owners without).
    pub short_lived: bool,
    stamp: u64,
    /// Whose it is. A request may outlive the owner it was sent to, and the slot then be another's.
    life: Life,
}

impl Prediction {
    /// The same with at most `blocks` taken for held before.
    pub(crate) fn held_at_most(self, blocks: usize) -> Self {
        Self { held_before: self.held_before.min(blocks), ..self }
    }

    /// The stamp of block `number` of `blocks`: within a prompt the end is the least recent, since engines give
    /// up the end of a prompt first.
    fn stamp_of(&self, number: usize, blocks: usize) -> u64 {
        if self.short_lived { self.stamp } else { self.stamp + (blocks - 1 - number) as u64 }
    }
}

impl Index {
    /// Enters the prompt's blocks at an owner that a request is being sent to. For an owner with events they end
    /// after `lifetime` unless events confirm them; for one without they stay, the least recently used leaving
    /// when the engine's capacity is reached. `None` when the owner or a chain of its block size is missing.
    ///
    /// `walked` is how many leading tokens the decision has just found at an owner with events: they are not looked
    /// up and entered again, which for the next turn of a long conversation is nearly all of it. 0 looks.
    pub fn predict(
        &self,
        slot: OwnerSlot,
        chains: &[BlockChain],
        lifetime: Duration,
        walked: u32,
    ) -> Option<Prediction> {
        self.enter(self.directory.load().owner(slot)?, chains, lifetime, walked)
    }

    /// Enters what a placement entered once more: the request has ended, which was the last use of its blocks. Nothing
    /// happens when the owner of then has left its slot or has lost what it held.
    pub fn renew(&self, slot: OwnerSlot, chains: &[BlockChain], prediction: Prediction, lifetime: Duration) {
        if let Some(owner) = self.directory.load().owner_in(slot, prediction.life) {
            self.enter(owner, chains, lifetime, 0);
        }
    }

    fn enter(
        &self,
        owner: &Owner,
        chains: &[BlockChain],
        lifetime: Duration,
        walked: u32,
    ) -> Option<Prediction> {
        let life = owner.life();
        let chain = chains.iter().find(|chain| chain.block_size == owner.size())?;
        let short_lived = owner.completeness() != Completeness::Approximate;
        let (confirmed, held_before) = match walked as usize / chain.block_size.tokens() {
            blocks if short_lived && blocks > 0 => (blocks, blocks),
            _ => held(owner, chain),
        };
        let mut predictions = owner.predictions.lock();
        if predictions.gone {
            return None;
        }
        let most = if short_lived { MOST_SHORT_LIVED } else { owner.capacity() };
        // A prompt larger than the whole cache keeps its beginning.
        let blocks = chain.hashes.len().min(most);
        let stamp = if short_lived {
            let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            let deadline = self.now_ms().saturating_add(lifetime);
            self.next_expiry.fetch_min(deadline, Ordering::AcqRel);
            deadline
        } else {
            let first = predictions.uses;
            predictions.uses += blocks as u64;
            first
        };
        let prediction = Prediction { block_size: chain.block_size, held_before, short_lived, stamp, life };
        // What events vouch for needs no prediction beside them.
        let first = if short_lived { confirmed.min(blocks) } else { 0 };
        for (number, hash) in chain.hashes.iter().enumerate().take(blocks).skip(first).rev() {
            predictions.recent.touch(hash.0, prediction.stamp_of(number, blocks));
            owner.model.map.add(hash.0, owner.slot.0, Hold::PREDICTED);
        }
        while predictions.recent.len() > most {
            let Some(block) = predictions.recent.pop() else { break };
            owner.model.map.take(block, owner.slot.0, Hold::PREDICTED);
        }
        Some(prediction)
    }

    /// Takes back what a placement entered beyond what was held before it, unless another placement has entered
    /// it since, or the owner is not the one of then.
    pub fn take_back(&self, slot: OwnerSlot, chains: &[BlockChain], prediction: Prediction) {
        let directory = self.directory.load();
        let Some(owner) = directory.owner_in(slot, prediction.life) else { return };
        each_predicted(owner, chains, prediction, |recent, hash, stamp| {
            if recent.remove(hash.0, stamp) {
                owner.model.map.take(hash.0, owner.slot.0, Hold::PREDICTED);
            }
        });
    }

    /// An engine without events reported that it reused `reused` tokens only: drops the blocks after them. Gives
    /// how many of them had been taken for held; none when the owner is not the one of then.
    pub fn correct(
        &self,
        slot: OwnerSlot,
        chains: &[BlockChain],
        prediction: Prediction,
        reused: usize,
    ) -> usize {
        let directory = self.directory.load();
        let Some(owner) = directory.owner_in(slot, prediction.life) else { return 0 };
        let kept = reused / prediction.block_size.tokens();
        let lost = prediction.held_before.saturating_sub(kept);
        if lost > 0 {
            let from = Prediction { held_before: kept, ..prediction };
            each_predicted(owner, chains, from, |recent, hash, _| {
                if recent.forget(hash.0) {
                    owner.model.map.take(hash.0, owner.slot.0, Hold::PREDICTED);
                }
            });
        }
        lost
    }

    /// Clears predictions whose time is over. Costs one comparison when there are none.
    pub(super) fn expire_predictions(&self) {
        if self.next_expiry.load(Ordering::Acquire) == u64::MAX {
            return;
        }
        let now = self.now_ms();
        if now < self.next_expiry.load(Ordering::Acquire) {
            return;
        }
        // Placements made meanwhile lower it again.
        self.next_expiry.store(u64::MAX, Ordering::Release);
        let mut next = u64::MAX;
        for owner in self.directory.load().live() {
            if owner.completeness() == Completeness::Approximate {
                continue;
            }
            let Some(mut predictions) = owner.predictions.try_lock() else {
                next = next.min(now + 1);
                continue;
            };
            for _ in 0..MOST_EXPIRED {
                match predictions.recent.first_stamp() {
                    Some(deadline) if deadline <= now => {
                        if let Some(block) = predictions.recent.pop() {
                            owner.model.map.take(block, owner.slot.0, Hold::PREDICTED);
                        }
                    }
                    _ => break,
                }
            }
            next = next.min(predictions.recent.first_stamp().unwrap_or(u64::MAX));
        }
        self.next_expiry.fetch_min(next, Ordering::AcqRel);
    }
}

/// The blocks that a placement entered beyond what was held before it, each with its stamp of then.
fn each_predicted(
    owner: &Owner,
    chains: &[BlockChain],
    prediction: Prediction,
    mut each: impl FnMut(&mut Recent, BlockHash, u64),
) {
    let Some(chain) = chains.iter().find(|chain| chain.block_size == prediction.block_size) else { return };
    let most = if prediction.short_lived { MOST_SHORT_LIVED } else { owner.capacity() };
    let blocks = chain.hashes.len().min(most);
    let mut predictions = owner.predictions.lock();
    for (number, hash) in chain.hashes.iter().enumerate().take(blocks).skip(prediction.held_before) {
        each(&mut predictions.recent, *hash, prediction.stamp_of(number, blocks));
    }
}

/// Leading blocks that events vouch for, and those that are held or predicted.
fn held(owner: &Owner, chain: &BlockChain) -> (usize, usize) {
    let mut confirmed = 0;
    for (number, hash) in chain.hashes.iter().enumerate() {
        let mut found = Hold::default();
        owner.model.map.look(hash.0, |slot, hold| {
            if slot == owner.slot.0 {
                found = hold;
            }
        });
        if !found.has(Hold::GPU.with(Hold::PREDICTED)) {
            return (confirmed, number);
        }
        confirmed += usize::from(confirmed == number && found.has(Hold::GPU));
    }
    (confirmed, chain.hashes.len())
}
