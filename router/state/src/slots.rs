//! The numbers that stand for endpoints in the block index.

use std::collections::BTreeSet;

use kvasir_core::OwnerSlot;

/// Hands out the lowest free number. A number given back rests until it is released: the index still knows it.
#[derive(Debug, Default)]
pub(crate) struct SlotPool {
    /// Numbers from here on were never given out.
    fresh: u32,
    free: BTreeSet<u32>,
    resting: BTreeSet<u32>,
}

impl SlotPool {
    /// The lowest free number.
    pub(crate) fn take(&mut self) -> OwnerSlot {
        if let Some(slot) = self.free.pop_first() {
            return OwnerSlot(slot);
        }
        let slot = self.fresh;
        self.fresh = self.fresh.saturating_add(1);
        OwnerSlot(slot)
    }

    /// Its endpoint is gone.
    pub(crate) fn rest(&mut self, slot: OwnerSlot) {
        self.resting.insert(slot.0);
    }

    /// The index has forgotten it. Anything but a resting number is left alone, so that a second release is safe.
    pub(crate) fn release(&mut self, slot: OwnerSlot) {
        if self.resting.remove(&slot.0) {
            self.free.insert(slot.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_rest_until_released() {
        let mut slots = SlotPool::default();
        assert_eq!([slots.take(), slots.take(), slots.take()], [OwnerSlot(0), OwnerSlot(1), OwnerSlot(2)]);
        slots.rest(OwnerSlot(1));
        slots.rest(OwnerSlot(0));
        assert_eq!(slots.take(), OwnerSlot(3), "a resting number is not given out");
        slots.release(OwnerSlot(1));
        slots.release(OwnerSlot(1));
        slots.release(OwnerSlot(0));
        slots.release(OwnerSlot(2));
        assert_eq!([slots.take(), slots.take(), slots.take()], [OwnerSlot(0), OwnerSlot(1), OwnerSlot(4)]);
    }
}
