//! What a queue keeps of a request while it waits and while it runs.

use kvasir_core::Usage;

/// One request, without its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Whose it is, in a fairness queue.
    pub(crate) account: u32,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: Option<u32>,
    /// Its conversation, in a session-boost queue.
    pub(crate) session: Option<u64>,
    /// What it is charged while it runs.
    pub(crate) cost: u64,
}

/// How a request that was let in ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Somebody told.
    Told {
        /// What the engine says it used.
        usage: Option<Usage>,
        /// Whether its client has its answer.
        succeeded: bool,
    },
    /// Nobody told.
    Untold,
    /// Its client was gone before it began.
    NeverBegan,
}
