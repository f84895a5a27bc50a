//! What is to happen, in the order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use kvasir_kvcache::Batch;

use crate::clock::Nanos;

/// What may happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A request is at a router.
    Comes(u32),
    /// It has passed a pod's front end.
    Queues { request: u32, pod: usize },
    /// A pod's step is over.
    StepEnds(usize),
    /// An answer's first byte is at the router.
    FirstByte(u32),
    /// An answer's last byte is at the router.
    Ends(u32),
    /// The routers hear of a pod's cache.
    CacheChanges { pod: usize, batch: Box<Batch> },
    /// A group of pods is scraped.
    Scrape(usize),
    /// Replicas tell each other their load.
    TellPeers,
}

#[derive(Debug)]
struct Entry {
    at: Nanos,
    /// Of two at the same moment, what was entered first happens first.
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Everything that is to happen.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Nanos, event: Event) {
        self.entered += 1;
        self.entries.push(Reverse(Entry { at, number: self.entered, event }));
    }

    pub(super) fn next(&mut self) -> Option<(Nanos, Event)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
