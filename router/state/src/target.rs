//! A target of routes as it is now: what its requests become, and which of its endpoints are in service.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{AdapterName, Endpoint, ModelName};

use crate::plan::{Disaggregation, RetryPolicy, TargetId};
use crate::snapshot::Member;

/// One target. Immutable: a change is a new value, and what did not change stays the same one.
#[derive(Debug)]
pub struct Target {
    /// Identity.
    pub id: TargetId,
    /// `namespace/name`, for labels and logs.
    pub label: Arc<str>,
    /// The name that the engines are called by; `None` keeps the client's.
    pub served: Option<ModelName>,
    /// The model's name as key of the block index and of the tokenizers.
    pub index_model: ModelName,
    /// How prefill and decode are kept apart; `None` where every endpoint does both.
    pub disaggregation: Option<Disaggregation>,
    /// Limit of one attempt up to the answer's header.
    pub timeout: Option<Duration>,
    /// Whether to try again.
    pub retry: Option<RetryPolicy>,
    /// What it asks for that cannot be done.
    pub refused: Option<&'static str>,
    /// Sorted.
    pub(crate) adapters: Vec<AdapterName>,
    /// The endpoints in service, in the plan's order. Where prefill and decode are apart, only those with a part and a
    /// group.
    pub(crate) pool: Arc<[Member]>,
}

impl Target {
    /// The endpoints in service.
    pub fn endpoints(&self) -> impl ExactSizeIterator<Item = &Arc<Endpoint>> {
        self.pool.iter().map(|member| &member.endpoint)
    }

    /// The adapter that clients call `name`: one that a route or the settings name, else one that an endpoint lists.
    /// What an engine caches for an adapter is of no use to its base model, so a name must not be taken for the model's
    /// because nobody wrote it down.
    pub(crate) fn adapter(&self, name: &str) -> Option<AdapterName> {
        if let Ok(at) = self.adapters.binary_search_by(|adapter| adapter.as_str().cmp(name)) {
            return self.adapters.get(at).cloned();
        }
        let listed = self.pool.iter().any(|member| member.live.adapters.read().lists(name));
        listed.then(|| AdapterName::from(name))
    }

    /// Whether a request that is written for `self` can be sent to the endpoints of `later`.
    pub(crate) fn speaks_like(&self, later: &Self) -> bool {
        self.served == later.served
            && self.index_model == later.index_model
            && self.disaggregation == later.disaggregation
    }

    /// Whether the two are alike in everything, so that one can stand for the other.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.speaks_like(other)
            && self.timeout == other.timeout
            && self.retry == other.retry
            && self.refused == other.refused
            && self.adapters == other.adapters
            && same_members(&self.pool, &other.pool)
    }
}

/// Whether both lists hold the same values in the same order.
pub(crate) fn same_members(one: &[Member], other: &[Member]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Member::same(one, other))
}
