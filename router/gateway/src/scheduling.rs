//! The scheduler of now: a new router document swaps it whole, and a request keeps the one that it began with.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kvasir_core::{InferenceRequest, SessionKey};
use kvasir_scheduler::Scheduler;
use pingora_http::RequestHeader;

use crate::page::Counted;
use crate::session::SessionRule;

/// A scheduler, with what is shown of it.
#[derive(Debug)]
pub struct Scheduled {
    /// Gathers and decides.
    pub scheduler: Arc<Scheduler>,
    /// How many hashes `prefix-cache` remembers; `None` when it is off.
    pub prefix_cache_entries: Counted,
    /// Where requests name their conversations; `None` when nobody asks.
    pub session: Option<SessionRule>,
}

/// The scheduler of now.
pub struct Scheduling(ArcSwap<Scheduled>);

impl Scheduling {
    /// Begins with this one.
    pub fn new(first: Scheduled) -> Self {
        Self(ArcSwap::from_pointee(first))
    }

    /// The scheduler for a request that begins now.
    pub fn scheduler(&self) -> Arc<Scheduler> {
        Arc::clone(&self.0.load().scheduler)
    }

    /// Takes another one for all requests from now on.
    pub fn replace(&self, next: Scheduled) {
        self.0.store(Arc::new(next));
    }

    /// The conversation of a request, where anybody asks.
    pub(crate) fn session_of(&self, head: &RequestHeader, request: &InferenceRequest) -> Option<SessionKey> {
        self.0.load().session.as_ref()?.key(head, request)
    }

    pub(crate) fn prefix_cache_entries(&self) -> Option<u64> {
        (self.0.load().prefix_cache_entries.0)()
    }
}

impl fmt::Debug for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scheduling").field(&self.0.load()).finish()
    }
}
