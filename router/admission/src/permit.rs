//! What a request asks for before it begins, and what it gets.

use std::time::Duration;

/// Who asks for admission to what.
#[derive(Clone, Copy, Debug)]
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

/// Why a request may not begin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// It waited for as long as it may.
    #[error("waited {0:?} in the queue")]
    TimedOut(Duration),
    /// As many wait as may wait.
    #[error("the queue is full")]
    Full,
    /// The router shuts down.
    #[error("the queue is closed")]
    Closed,
}

/// The right to run. Dropping it gives the place back.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Permit;
