//! What changed in an owner since somebody asked, for whoever publishes it.

use kvasir_core::{BlockChange, BlockHash, HeldOn, OwnerChanges, OwnerContent, OwnerJournal, OwnerSlot};

use super::Index;
use super::owner::{Owner, State};
use super::table::Table;

/// Net changes, within a bound. Each block is here at most once for each tier, and not at all when it came and went.
#[derive(Debug)]
pub(super) struct Journal {
    most: usize,
    /// Block to the number of its note, times two, plus one for a block that is held.
    gpu: Table,
    other_tiers: Table,
    notes: u64,
    overflowed: bool,
}

impl Journal {
    fn new(most: usize) -> Self {
        Self { most, gpu: Table::default(), other_tiers: Table::default(), notes: 0, overflowed: false }
    }

    /// Notes that a block came or went. Only true transitions are told, so one that is noted already is back where
    /// it was when the notes began.
    pub(super) fn note(&mut self, block: u64, on: HeldOn, held: bool) {
        if self.overflowed {
            return;
        }
        let noted = self.gpu.len() + self.other_tiers.len();
        let table = match on {
            HeldOn::Gpu => &mut self.gpu,
            HeldOn::OtherTier => &mut self.other_tiers,
        };
        if table.remove(block).is_some() {
            return;
        }
        if noted >= self.most {
            self.clear();
            self.overflowed = true;
            return;
        }
        table.insert(block, self.notes << 1 | u64::from(held));
        self.notes += 1;
    }

    /// Begins anew, with what is held now.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// The changes in the order of their notes, and whether there were too many. Begins anew.
    fn take(&mut self) -> (Vec<BlockChange>, bool) {
        let noted = std::mem::replace(self, Self::new(self.most));
        let of = |table: &Table, on: HeldOn| table.iter().map(|entry| (entry, on)).collect::<Vec<_>>();
        let mut notes = of(&noted.gpu, HeldOn::Gpu);
        notes.extend(of(&noted.other_tiers, HeldOn::OtherTier));
        notes.sort_unstable_by_key(|((_, note), _)| *note);
        let changes = notes.into_iter().map(|((block, note), on)| BlockChange {
            block: BlockHash(block),
            on,
            held: note & 1 == 1,
        });
        (changes.collect(), noted.overflowed)
    }
}

impl Index {
    /// Runs `read` with an owner and its state locked; `None` for an owner that is not here.
    fn read<T>(&self, slot: OwnerSlot, read: impl FnOnce(&Owner, &mut State) -> Option<T>) -> Option<T> {
        let directory = self.directory.load();
        let owner = directory.owner(slot)?;
        let mut state = owner.state.lock();
        if state.gone { None } else { read(owner, &mut state) }
    }
}

impl OwnerJournal for Index {
    fn record(&self, slot: OwnerSlot, most_changes: usize) {
        self.read(slot, |_, state| {
            state.ledger.journal.get_or_insert_with(|| Journal::new(most_changes));
            Some(())
        });
    }

    fn take_changes(&self, slot: OwnerSlot) -> Option<OwnerChanges> {
        self.read(slot, |owner, state| {
            let (changes, overflowed) = state.ledger.journal.as_mut()?.take();
            Some(OwnerChanges {
                life: owner.life().0,
                block_size: state.block_size(),
                completeness: owner.completeness(),
                overflowed,
                changes,
            })
        })
    }

    fn content(&self, slot: OwnerSlot) -> Option<OwnerContent> {
        self.read(slot, |owner, state| {
            if let Some(journal) = &mut state.ledger.journal {
                journal.clear();
            }
            let (gpu, other_tiers) = state.ledger.content();
            Some(OwnerContent {
                life: owner.life().0,
                block_size: state.block_size(),
                completeness: owner.completeness(),
                gpu,
                other_tiers,
            })
        })
    }
}
