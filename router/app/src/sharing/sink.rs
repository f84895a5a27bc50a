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

    fn is_direct(&self, slot: OwnerSlot) -> bool {
        self.0.read().direct.contains(&slot)
    }

    /// Whether the owner comes from Redis for the first time since it was followed.
    fn begins(&self, slot: OwnerSlot) -> bool {
        self.0.write().redis.insert(slot)
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
        (endpoint.model == *model && !self.sources.is_direct(endpoint.slot)).then_some(endpoint.slot)
    }

    fn load(&self, slot: OwnerSlot, content: OwnerContent) {
        if self.sources.begins(slot)
            && let Some(endpoint) = self.state.endpoint_by_slot(slot)
            && let Err(error) = self.index.register(slot, &endpoint.model, self.name.clone())
        {
            tracing::warn!(endpoint = %endpoint.id, %error, "what is published of the endpoint is not taken in");
        }
        self.index.load(slot, content);
    }

    fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) {
        self.index.change(slot, changes);
    }

    fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness) {
        self.index.set_completeness(slot, completeness);
    }

    fn lapse(&self, slot: OwnerSlot) {
        self.index.lapse(slot);
    }
}
