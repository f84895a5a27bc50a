//! Requests that wait, and those that were let in or sent away and have not noticed yet.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::claim::Claim;
use crate::slab::{NONE, Slab};

pub(crate) type Waiters = Slab<Waiter>;

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) claim: Claim,
    /// Numbers arrivals; no two are the same.
    pub(crate) arrival: u64,
    pub(crate) since: Instant,
    pub(crate) stage: Stage,
    /// Its user's requests before and after it.
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// How lately its conversation had an answer; `None` for one that is not warm.
    pub(crate) warm: Option<u64>,
}

impl Waiter {
    pub(crate) fn new(claim: Claim, arrival: u64, since: Instant) -> Self {
        Self { claim, arrival, since, stage: Stage::Waiting(None), previous: NONE, next: NONE, warm: None }
    }
}

/// Where a waiter stands. Changed under the queue's lock only, so a request is either let in or gone, never both.
#[derive(Debug)]
pub(crate) enum Stage {
    /// In line; whom to wake, once it was asked.
    Waiting(Option<Waker>),
    /// May begin, after so long.
    Admitted(Duration),
    /// The queue was closed.
    Closed,
    /// Its place was given to another.
    Displaced,
}
