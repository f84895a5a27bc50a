//! What the other replicas told, and what of it counts now.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kvasir_core::{UsageKey, UsageShare};

use super::record::Head;
use super::segments::Cut;

/// Replicas that are listened to. Each restart is another one, for a window.
pub(super) const MOST_REPLICAS: usize = 256;
/// Segments that are asked for at once.
const MOST_AT_ONCE: usize = 64;
/// Users in all segments that are kept, 32 bytes each.
const MOST_HELD: usize = 1_000_000;

/// One segment of a peer, as last read.
struct Held {
    shares: Vec<UsageShare>,
    /// The revision that it was read at or after; one read while it was under way may have got more since.
    revision: u64,
    over: bool,
}

/// One peer.
struct Peer {
    head: Option<Head>,
    /// A segment of the peer, and when it had begun at the latest: from then on our own clock counts, for the peer may
    /// be gone.
    anchor: (u64, Instant),
    segments: BTreeMap<u64, Held>,
    running: Vec<UsageShare>,
    running_at: Option<Instant>,
    /// Whether its lease had not ended when we last heard.
    alive: bool,
}

/// All peers, and the sum of what counts.
pub(super) struct Peers {
    cut: Cut,
    believed: Duration,
    peers: HashMap<String, Peer>,
    sums: HashMap<UsageKey, (u64, u32)>,
    held: usize,
    changed: bool,
}

impl Peers {
    pub(super) fn new(cut: Cut, believed: Duration) -> Self {
        Self { cut, believed, peers: HashMap::new(), sums: HashMap::new(), held: 0, changed: true }
    }

    /// Everybody who is listened to, and whether it was heard before.
    pub(super) fn names(&self) -> Vec<(String, bool)> {
        self.peers.iter().map(|(name, peer)| (name.clone(), peer.head.is_some())).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.peers.len()
    }

    /// These leases have not ended. Who is not among them is listened to for as long as something of it counts: a store
    /// that was emptied does not undo what was used.
    pub(super) fn alive(&mut self, names: Vec<String>, now: Instant) {
        self.peers.values_mut().for_each(|peer| peer.alive = false);
        for name in names {
            if let Some(peer) = self.peers.get_mut(&name) {
                peer.alive = true;
            } else if self.peers.len() < 2 * MOST_REPLICAS {
                self.peers.insert(name, Peer::new(now));
            }
        }
    }

    /// A peer's head was read at `now`. It had said nothing for `silent`, where that was asked. Whether it is of use.
    pub(super) fn heard(&mut self, name: &str, head: Head, silent: Duration, now: Instant) -> bool {
        let Some(peer) = self.peers.get_mut(name) else { return true };
        if head.segment != self.cut.segment {
            return false;
        }
        let before = peer.head.replace(head);
        if before.is_none() {
            peer.anchor = (head.current, now.checked_sub(silent).unwrap_or(now));
        } else if before.is_some_and(|before| before.current < head.current) {
            peer.anchor = (head.current, now);
        }
        true
    }

    /// What a peer's running requests are charged.
    pub(super) fn runs(&mut self, name: &str, running: Vec<UsageShare>, now: Instant) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        peer.running_at = Some(now);
        if peer.running == running {
            return;
        }
        let before = std::mem::replace(&mut peer.running, running);
        self.changed = true;
        add(&mut self.sums, &peer.running);
        subtract(&mut self.sums, &before);
    }

    /// Segments that have to be read: of whom, and which. The latest first, and not too many at once.
    pub(super) fn wanted(&self, now: Instant) -> Vec<(String, u64)> {
        if self.held >= MOST_HELD {
            return Vec::new();
        }
        let mut wanted: Vec<(u64, &String, u64)> = Vec::new();
        for (name, peer) in &self.peers {
            let Some(head) = peer.head else { continue };
            let current = peer.current(&self.cut, now);
            let missing = head.filled().filter(|number| {
                let known = peer.segments.get(number);
                self.cut.counts(*number, current)
                    && known.is_none_or(|held| !held.over && held.revision < head.revision)
            });
            wanted.extend(missing.map(|number| (current.saturating_sub(number), name, number)));
        }
        wanted.sort_unstable();
        wanted.truncate(MOST_AT_ONCE);
        wanted.into_iter().map(|(_, name, number)| (name.clone(), number)).collect()
    }

    /// A segment was read, after the head that we have.
    pub(super) fn read(&mut self, name: &str, number: u64, shares: Vec<UsageShare>) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        let Some(head) = peer.head else { return };
        self.held += shares.len();
        add(&mut self.sums, &shares);
        let held = Held { shares, revision: head.revision, over: number < head.current };
        if let Some(before) = peer.segments.insert(number, held) {
            self.held -= before.shares.len();
            subtract(&mut self.sums, &before.shares);
        }
        self.changed = true;
    }

    /// Forgets what does not count any more, and who is gone with nothing left.
    pub(super) fn expire(&mut self, now: Instant) {
        let (cut, believed) = (self.cut, self.believed);
        for peer in self.peers.values_mut() {
            let current = peer.current(&cut, now);
            while let Some(oldest) = peer.segments.first_entry()
                && !cut.counts(*oldest.key(), current)
            {
                let gone = oldest.remove();
                self.held -= gone.shares.len();
                subtract(&mut self.sums, &gone.shares);
                self.changed = true;
            }
            let silent = peer.running_at.is_none_or(|at| now.saturating_duration_since(at) > believed);
            if silent && !peer.running.is_empty() {
                subtract(&mut self.sums, &std::mem::take(&mut peer.running));
                self.changed = true;
            }
        }
        self.peers.retain(|_, peer| peer.alive || !peer.segments.is_empty() || !peer.running.is_empty());
    }

    /// What all peers used, if that changed since the last call.
    pub(super) fn take_totals(&mut self) -> Option<Vec<UsageShare>> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| {
            let sums = self.sums.iter();
            sums.map(|(key, (cost, requests))| UsageShare { key: *key, cost: *cost, requests: *requests })
                .collect()
        })
    }
}

impl Peer {
    fn new(now: Instant) -> Self {
        Self {
            head: None,
            anchor: (0, now),
            segments: BTreeMap::new(),
            running: Vec::new(),
            running_at: None,
            alive: true,
        }
    }

    /// The segment that is under way there, or would be if it were not gone.
    fn current(&self, cut: &Cut, now: Instant) -> u64 {
        let (number, at) = self.anchor;
        number.saturating_add(cut.passed(now.saturating_duration_since(at)))
    }
}

fn add(sums: &mut HashMap<UsageKey, (u64, u32)>, shares: &[UsageShare]) {
    for share in shares {
        let (cost, requests) = sums.entry(share.key).or_default();
        *cost = cost.saturating_add(share.cost);
        *requests = requests.saturating_add(share.requests);
    }
}

fn subtract(sums: &mut HashMap<UsageKey, (u64, u32)>, shares: &[UsageShare]) {
    for share in shares {
        if let Some((cost, requests)) = sums.get_mut(&share.key) {
            *cost = cost.saturating_sub(share.cost);
            *requests = requests.saturating_sub(share.requests);
            if (*cost, *requests) == (0, 0) {
                sums.remove(&share.key);
            }
        }
    }
}
