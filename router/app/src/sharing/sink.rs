//! Where owners that are published in Redis end: the block index, under the number of their endpoint.

use std::collections::HashSet;
use std::sync::Arc;

use kvasir_core::{BlockChange, Completeness, EndpointId, MirrorSink, ModelName, OwnerContent, OwnerSlot};
use kvasir_kvcache::Index;
use kvasir_state::State;
use parking_lot::RwLock;

use crate::house::House;

/// Where each owner's knowledge comes from, as far as it is not what was placed there.
#[derive(Debug, Default)]
pub struct Sources(RwLock<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Owners whose events this router reads itself. They are not taken from Redis.
    direct: HashSet<OwnerSlot>,
    /// Owners that are registered under the name of the Redis.
    redis: HashSet<OwnerSlot>,
    /// Engines that sleep, as their metrics say.
    asleep: HashSet<EndpointId>,
}

impl Sources {
    /// From now on this one is followed directly.
    pub fn follow(&self, slot: OwnerSlot) {
        let mut told = self.0.write();
        told.direct.insert(slot);
        told.redis.remove(&slot);
    }

    /// From now on it is not, and may come from Redis.
    pub fn leave(&self, slot: OwnerSlot) {
        self.0.write().direct.remove(&slot);
    }

    /// The owner of this number is gone; the next one begins anew.
    pub fn forget(&self, slot: OwnerSlot) {
        let mut told = self.0.write();
        told.direct.remove(&slot);
        told.redis.remove(&slot);
    }

    /// Nothing is known of this engine's sleep: it is another one than before.
    pub fn woke(&self, endpoint: &EndpointId) {
        self.0.write().asleep.remove(endpoint);
    }

    /// Whether an engine sleeps. Its caches are gone, whatever an agent that has not seen it yet still publishes, so they
    /// are not taken from Redis until it is awake. True when this is news. Only endpoints that `is_known` are remembered.
    pub fn set_asleep(
        &self,
        endpoint: &EndpointId,
        asleep: bool,
        is_known: impl Fn(&EndpointId) -> bool,
    ) -> bool {
        // Said with every scrape, and nearly always the same.
        if self.is_asleep(endpoint) == asleep {
            return false;
        }
        let mut told = self.0.write();
        if !asleep {
            return told.asleep.remove(endpoint);
        }
        told.asleep.retain(is_known);
        told.asleep.insert(endpoint.clone())
    }

    fn is_asleep(&self, endpoint: &EndpointId) -> bool {
        self.0.read().asleep.contains(endpoint)
    }

    /// Whether this one is followed directly.
    pub fn is_direct(&self, slot: OwnerSlot) -> bool {
        self.0.read().direct.contains(&slot)
    }

    /// Whether the owner comes from Redis for the first time since it was followed.
    fn begins(&self, slot: OwnerSlot) -> bool {
        self.0.write().redis.insert(slot)
    }

    /// What came from Redis was not taken; the owner is registered anew when it comes again.
    fn failed(&self, slot: OwnerSlot) {
        self.0.write().redis.remove(&slot);
    }
}

/// The index, with the names of endpoints.
pub(super) struct Sink {
    state: Arc<State>,
    index: Arc<Index>,
    sources: Arc<Sources>,
    /// What the index shows as the owners' source.
    name: String,
}

impl Sink {
    pub(super) fn new(house: &House, sources: Arc<Sources>, redis: &str) -> Self {
        Self {
            state: Arc::clone(&house.gateway.state),
            index: Arc::clone(&house.gateway.index),
            sources,
            name: format!("Redis at {redis}"),
        }
    }
}

impl MirrorSink for Sink {
    fn slot(&self, owner: &EndpointId, model: &ModelName) -> Option<OwnerSlot> {
        let endpoint = self.state.endpoint(owner)?;
        let wanted = endpoint.model == *model
            && !self.sources.is_direct(endpoint.slot)
            && !self.sources.is_asleep(owner);
        wanted.then_some(endpoint.slot)
    }

    fn load(&self, slot: OwnerSlot, content: OwnerContent) -> bool {
        let Some(endpoint) = self.state.endpoint_by_slot(slot) else { return false };
        if self.sources.begins(slot)
            && let Err(error) = self.index.register(slot, &endpoint.model, self.name.clone())
        {
            tracing::warn!(endpoint = %endpoint.id, %error, "what is published of the endpoint is not taken in");
        }
        if !self.index.load(slot, content) {
            self.sources.failed(slot);
            return false;
        }
        // It may have fallen asleep since its slot was asked for.
        if self.sources.is_asleep(&endpoint.id) {
            self.index.lapse(slot);
            return false;
        }
        true
    }

    fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) -> bool {
        self.index.change(slot, changes)
    }

    fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness) {
        self.index.set_completeness(slot, completeness);
    }

    fn lapse(&self, slot: OwnerSlot) {
        self.index.lapse(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_sleeps_until_it_is_awake_or_gone() {
        let sources = Sources::default();
        let [a, b] = ["a", "b"].map(|host| EndpointId::new("ns", host, 8000, 0));
        assert!(!sources.set_asleep(&a, false, |_| true));
        assert!(sources.set_asleep(&a, true, |_| true) && sources.is_asleep(&a));
        assert!(!sources.set_asleep(&a, true, |_| true), "said before");
        assert!(sources.set_asleep(&a, false, |_| true) && !sources.is_asleep(&a));
        // One that is gone never says that it is awake.
        assert!(sources.set_asleep(&a, true, |_| true));
        assert!(sources.set_asleep(&b, true, |id| *id != a));
        assert!(!sources.is_asleep(&a) && sources.is_asleep(&b));
    }

    #[test]
    fn an_owner_begins_anew_after_it_was_followed_or_not_taken() {
        let (sources, slot) = (Sources::default(), OwnerSlot(3));
        assert!(sources.begins(slot) && !sources.begins(slot));
        sources.failed(slot);
        assert!(sources.begins(slot));
        sources.follow(slot);
        assert!(sources.is_direct(slot));
        sources.leave(slot);
        assert!(!sources.is_direct(slot) && sources.begins(slot));
    }

    #[test]
    fn nothing_is_left_of_an_owner_that_is_gone() {
        let (sources, slot) = (Sources::default(), OwnerSlot(3));
        let endpoint = EndpointId::new("ns", "a", 8000, 0);
        sources.set_asleep(&endpoint, true, |_| true);
        sources.woke(&endpoint);
        assert!(!sources.is_asleep(&endpoint));
        sources.follow(slot);
        sources.forget(slot);
        assert!(!sources.is_direct(slot) && sources.begins(slot));
        sources.forget(slot);
        assert!(sources.begins(slot), "the next owner is registered anew");
    }
}
