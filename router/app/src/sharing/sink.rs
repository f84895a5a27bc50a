//! Where owners that are published in Redis end: the block index, under the number of their endpoint.

use std::collections::HashSet;
use std::sync::Arc;

use kvasir_core::{BlockChange, Completeness, EndpointId, MirrorSink, ModelName, OwnerContent, OwnerSlot};
use kvasir_kvcache::Index;
use kvasir_state::State;
use parking_lot::{Mutex, RwLock};

use crate::house::House;

/// The owners whose events this router reads itself. They are not taken from Redis.
#[derive(Debug, Default)]
pub struct Direct(RwLock<HashSet<OwnerSlot>>);

impl Direct {
    /// From now on this one is followed directly.
    pub fn add(&self, slot: OwnerSlot) {
        self.0.write().insert(slot);
    }

    fn contains(&self, slot: OwnerSlot) -> bool {
        self.0.read().contains(&slot)
    }
}

/// The index, with the names of endpoints.
pub(super) struct Sink {
    state: Arc<State>,
    index: Arc<Index>,
    direct: Arc<Direct>,
    /// What the index shows as the owners' source.
    source: String,
    /// Owners that are registered under that source.
    named: Mutex<HashSet<OwnerSlot>>,
}

impl Sink {
    pub(super) fn new(house: &House, direct: Arc<Direct>, redis: &str) -> Self {
        Self {
            state: Arc::clone(&house.gateway.state),
            index: Arc::clone(&house.gateway.index),
            direct,
            source: format!("Redis at {redis}"),
            named: Mutex::default(),
        }
    }
}

impl MirrorSink for Sink {
    fn slot(&self, owner: &EndpointId, model: &ModelName) -> Option<OwnerSlot> {
        let endpoint = self.state.endpoint(owner)?;
        (endpoint.model == *model && !self.direct.contains(endpoint.slot)).then_some(endpoint.slot)
    }

    fn load(&self, slot: OwnerSlot, content: OwnerContent) {
        if self.named.lock().insert(slot)
            && let Some(endpoint) = self.state.endpoint_by_slot(slot)
            && let Err(error) = self.index.register(slot, &endpoint.model, self.source.clone())
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
