//! What a request asks for before it begins, and what it gets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::Usage;

use crate::claim::{Claim, Ending};
use crate::queue::Queue;

/// Who asks for admission to what.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The model as the client calls it, which a route claims.
    pub model: &'a str,
    /// Who the client is; `None` for one that nobody knows.
    pub user: Option<&'a str>,
    /// The conversation, where the session header names one.
    pub session: Option<&'a str>,
    /// About how many prompt tokens it has.
    pub prompt_tokens: u32,
    /// Most output tokens it asks for, when it said.
    pub max_tokens: Option<u32>,
}

/// Without the names of the user and the conversation, which are for no log.
impl fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("model", &self.model)
            .field("prompt_tokens", &self.prompt_tokens)
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}

/// Why a request may not begin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// It waited for as long as it may.
    #[error("waited {0:?} in the queue")]
    TimedOut(Duration),
    /// As many wait as may wait; or it waited itself, and had to make room for one of a user with fewer waiting.
    #[error("the queue is full")]
    Full,
    /// The router shuts down, or no route names the model any more.
    #[error("the queue is closed")]
    Closed,
}

/// The right to run. Dropping it gives the place back.
#[must_use = "dropping it gives the place back"]
pub struct Permit(Option<Running>);

/// What is given back; nothing where everybody may begin.
struct Running {
    queue: Arc<Queue>,
    claim: Claim,
    settled: bool,
}

impl Permit {
    pub(crate) fn free() -> Self {
        Self(None)
    }

    pub(crate) fn new(queue: Arc<Queue>, claim: Claim) -> Self {
        Self(Some(Running { queue, claim, settled: false }))
    }

    /// Says how the request went, before it is dropped; only the first word counts.
    ///
    /// With `usage` its user is charged that in place of the estimate. Without, a request that succeeded is charged
    /// the estimate, and one that failed nothing. `succeeded` also says whether its conversation is warm from now on.
    /// A permit that is dropped without a word is charged the estimate, for nobody knows that it used less: the client
    /// may have left in the middle of the answer.
    pub fn settle(&mut self, usage: Option<&Usage>, succeeded: bool) {
        if let Some(running) = &mut self.0
            && !std::mem::replace(&mut running.settled, true)
        {
            running.queue.settle(&running.claim, Ending::Told { usage: usage.copied(), succeeded });
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            if !running.settled {
                running.queue.settle(&running.claim, Ending::Untold);
            }
            running.queue.release(running.claim.session);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("of", &self.0.as_ref().map(|running| &running.queue)).finish()
    }
}
