//! Which endpoint each conversation is bound to: bounded, and forgotten after a silence.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Parts with a lock each: enough that worker threads seldom meet.
const SHARDS: usize = 64;

/// A binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    /// Which life of which endpoint, see [`super::super::life_of`].
    endpoint: u64,
    at: Instant,
}

/// Bindings by conversation.
#[derive(Debug)]
pub(super) struct Bindings {
    shards: Box<[Mutex<Shard>]>,
    /// Most bindings of one generation of a shard.
    half: usize,
    ttl: Duration,
}

/// Two generations: what is used is young; when the young ones are half of what fits, the old ones, which were silent
/// since, leave all at once. So making room costs nothing per conversation.
#[derive(Debug, Default)]
struct Shard {
    young: Map,
    old: Map,
}

type Map = HashMap<u64, Bound, BuildHasherDefault<KeyIsHash>>;

/// Keys are hashes already.
#[derive(Debug, Default)]
struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl Bindings {
    /// Room for about `most` conversations, and never for more.
    pub(super) fn new(most: usize, ttl: Duration) -> Self {
        let shards = (most / 2).clamp(1, SHARDS);
        let half = (most / shards / 2).max(1);
        Self { shards: (0..shards).map(|_| Mutex::default()).collect(), half, ttl }
    }

    /// The endpoint of a conversation that was not silent for too long.
    pub(super) fn endpoint(&self, session: u64, now: Instant) -> Option<u64> {
        let shard = self.shard(session)?.lock();
        let bound = shard.young.get(&session).or_else(|| shard.old.get(&session))?;
        (now.saturating_duration_since(bound.at) < self.ttl).then_some(bound.endpoint)
    }

    /// Binds the conversation to `endpoint` from now on.
    pub(super) fn bind(&self, session: u64, endpoint: u64, now: Instant) {
        let Some(mut shard) = self.shard(session).map(Mutex::lock) else { return };
        shard.old.remove(&session);
        if shard.young.len() >= self.half && !shard.young.contains_key(&session) {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(session, Bound { endpoint, at: now });
    }

    /// Bindings remembered now, silent ones included.
    pub(super) fn len(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.young.len() + shard.old.len()
        };
        self.shards.iter().map(count).sum()
    }

    fn shard(&self, session: u64) -> Option<&Mutex<Shard>> {
        // The upper half: a map takes its buckets from the lower bits and its tags from the uppermost ones.
        self.shards.get((session >> 32) as usize % self.shards.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn spread(key: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes())
    }

    #[test]
    fn a_binding_lasts_until_it_was_silent_for_long() {
        let bindings = Bindings::new(100, TTL);
        let start = Instant::now();
        bindings.bind(1, 7, start);
        assert_eq!(bindings.endpoint(1, start + TTL / 2), Some(7));
        assert_eq!(bindings.endpoint(1, start + TTL), None);
        bindings.bind(1, 8, start + TTL / 2);
        assert_eq!(bindings.endpoint(1, start + TTL), Some(8), "used again, and moved");
        assert_eq!(bindings.endpoint(2, start), None);
    }

    #[test]
    fn a_million_conversations_stay_within_the_bound_and_the_latest_are_known() {
        for most in [1, 2, 3, 1000] {
            let bindings = Bindings::new(most, TTL);
            let now = Instant::now();
            let count = 1000 * most as u64;
            for key in 0..count {
                bindings.bind(spread(key), key, now);
            }
            assert!((1..=most.max(2)).contains(&bindings.len()), "{} of {most}", bindings.len());
            assert_eq!(bindings.endpoint(spread(count - 1), now), Some(count - 1));
        }
    }

    #[test]
    fn a_conversation_that_goes_on_stays() {
        let bindings = Bindings::new(1000, TTL);
        let now = Instant::now();
        bindings.bind(spread(0), 5, now);
        for key in 1..100_000 {
            bindings.bind(spread(key), key, now);
            if key % 100 == 0 {
                assert_eq!(bindings.endpoint(spread(0), now), Some(5), "{key}");
                bindings.bind(spread(0), 5, now);
            }
        }
    }
}
