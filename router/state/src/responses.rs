//! Which endpoint holds a stored response.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::EndpointId;
use parking_lot::Mutex;

/// Engines make ids of about 40 bytes; a longer one is none of theirs.
const MAX_ID_BYTES: usize = 256;

/// Remembers where responses are stored, for `/v1/responses/{id}` and `previous_response_id`. Bounded: the least
/// recently used is forgotten first, and everything after its time.
#[derive(Debug)]
pub struct ResponseMemory {
    capacity: usize,
    ttl: Duration,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<Arc<str>, Entry>,
    /// Ids by their last use, the oldest first.
    by_use: BTreeMap<u64, Arc<str>>,
    /// Counts uses.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    endpoint: EndpointId,
    stored: Instant,
    used: u64,
}

impl Default for ResponseMemory {
    /// 50,000 responses (about 15 MB) for a day.
    fn default() -> Self {
        Self::new(50_000, Duration::from_secs(24 * 60 * 60))
    }
}

impl ResponseMemory {
    /// A memory for `capacity` responses, each for `ttl` from when it was stored.
    pub fn new(capacity: usize, ttl: Duration) -> Self {
        Self { capacity, ttl, entries: Mutex::default() }
    }

    /// `endpoint` has stored the response `id`. Over-long ids are not remembered.
    pub fn remember(&self, id: &str, endpoint: &EndpointId, now: Instant) {
        if self.capacity == 0 || id.is_empty() || id.len() > MAX_ID_BYTES {
            return;
        }
        let mut entries = self.entries.lock();
        entries.forget(id);
        if entries.by_id.len() >= self.capacity {
            entries.forget_oldest();
        }
        let id: Arc<str> = id.into();
        let used = entries.next_use();
        entries.by_use.insert(used, Arc::clone(&id));
        entries.by_id.insert(id, Entry { endpoint: endpoint.clone(), stored: now, used });
    }

    /// Who holds the response `id`; `None` when it is not known or its time has passed. The endpoint may be gone.
    pub fn holder(&self, id: &str, now: Instant) -> Option<EndpointId> {
        let mut entries = self.entries.lock();
        let entry = entries.by_id.get(id)?;
        if now.saturating_duration_since(entry.stored) > self.ttl {
            entries.forget(id);
            return None;
        }
        let endpoint = entry.endpoint.clone();
        entries.touch(id);
        Some(endpoint)
    }

    /// The response `id` was deleted.
    pub fn forget(&self, id: &str) {
        self.entries.lock().forget(id);
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.entries.lock().by_id.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entries {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn touch(&mut self, id: &str) {
        let used = self.next_use();
        let Some(entry) = self.by_id.get_mut(id) else { return };
        if let Some(id) = self.by_use.remove(&entry.used) {
            self.by_use.insert(used, id);
        }
        entry.used = used;
    }

    fn forget(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.by_use.remove(&entry.used);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.by_use.pop_first() {
            self.by_id.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(pod: &str) -> EndpointId {
        EndpointId::new("default", pod, 8000, 0)
    }

    #[test]
    fn the_last_holder_counts() {
        let now = Instant::now();
        let memory = ResponseMemory::default();
        memory.remember("resp_1", &endpoint("a"), now);
        memory.remember("resp_1", &endpoint("b"), now);
        assert_eq!((memory.holder("resp_1", now), memory.len()), (Some(endpoint("b")), 1));
        assert_eq!(memory.holder("resp_2", now), None);
        memory.forget("resp_1");
        assert!(memory.is_empty() && memory.holder("resp_1", now).is_none());
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let now = Instant::now();
        let memory = ResponseMemory::new(2, Duration::from_secs(60));
        memory.remember("one", &endpoint("a"), now);
        memory.remember("two", &endpoint("a"), now);
        assert!(memory.holder("one", now).is_some());
        memory.remember("three", &endpoint("a"), now);
        assert_eq!(["one", "two", "three"].map(|id| memory.holder(id, now).is_some()), [true, false, true]);
        assert_eq!(memory.len(), 2);
    }

    #[test]
    fn time_runs_from_when_it_was_stored() {
        let start = Instant::now();
        let memory = ResponseMemory::new(9, Duration::from_secs(60));
        memory.remember("one", &endpoint("a"), start);
        assert!(memory.holder("one", start + Duration::from_secs(60)).is_some());
        assert!(memory.holder("one", start + Duration::from_secs(61)).is_none());
        assert!(memory.is_empty());
    }

    #[test]
    fn it_stays_bounded() {
        let now = Instant::now();
        let memory = ResponseMemory::new(10, Duration::from_secs(60));
        for number in 0..1000 {
            memory.remember(&format!("resp_{number}"), &endpoint("a"), now);
            memory.holder(&format!("resp_{}", number / 2), now);
        }
        let entries = memory.entries.lock();
        assert_eq!((entries.by_id.len(), entries.by_use.len()), (10, 10));
        drop(entries);
        memory.remember(&"x".repeat(257), &endpoint("a"), now);
        memory.remember("", &endpoint("a"), now);
        ResponseMemory::new(0, Duration::from_secs(60)).remember("one", &endpoint("a"), now);
        assert_eq!(memory.len(), 10);
    }
}
