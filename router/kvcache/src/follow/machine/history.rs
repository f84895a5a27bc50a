//! What is remembered of the batches seen.

use std::collections::VecDeque;

use crate::event::Received;

/// Batches remembered by digest: what a redelivery may reach back.
const MOST: usize = 1024;

/// What a batch is to those seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// The one that comes next; number 0 when none was seen.
    Next,
    /// Numbers are missing before it.
    Ahead,
    /// Seen, the very same.
    Same,
    /// Another batch was seen under its number.
    Other,
    /// Its number was passed so long ago that nothing is remembered of it.
    Forgotten,
}

/// Numbers and digests of consecutive batches, newest last.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<u64>,
    digests: VecDeque<u64>,
}

impl History {
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    pub(super) fn compare(&self, batch: &Received) -> Known {
        let Some(last) = self.last else {
            return if batch.seq == 0 { Known::Next } else { Known::Ahead };
        };
        if batch.seq > last {
            return if batch.seq - last == 1 { Known::Next } else { Known::Ahead };
        }
        let back = usize::try_from(last - batch.seq).unwrap_or(usize::MAX);
        let digest = self.digests.len().checked_sub(1).and_then(|newest| newest.checked_sub(back));
        match digest.and_then(|at| self.digests.get(at)) {
            Some(digest) if *digest == batch.digest => Known::Same,
            Some(_) => Known::Other,
            None => Known::Forgotten,
        }
    }

    /// Remembers a batch that was applied. One that does not follow the last starts the memory anew.
    pub(super) fn push(&mut self, batch: &Received) {
        if self.last.is_some_and(|last| batch.seq != last.wrapping_add(1)) {
            self.digests.clear();
        }
        if self.digests.len() == MOST {
            self.digests.pop_front();
        }
        self.digests.push_back(batch.digest);
        self.last = Some(batch.seq);
    }

    pub(super) fn clear(&mut self) {
        self.last = None;
        self.digests.clear();
    }
}
