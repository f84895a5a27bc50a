//! How long things may take, in one place.

use std::time::Duration;

/// Times of the supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timings {
    /// Longest start of a model: download, load, a renderer's first health answer.
    pub startup: Duration,
    /// Between two looks at a renderer that starts.
    pub poll_starting: Duration,
    /// Between two looks at a renderer that is ready.
    pub poll_ready: Duration,
    /// Longest wait for a health answer. A renderer is one Python process: a giant prompt keeps it from answering for
    /// seconds.
    pub health: Duration,
    /// Unanswered looks in a row after which a renderer hangs.
    pub strikes: u32,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Pause before the first restart; doubles with every restart that follows soon.
    pub restart: Duration,
    /// Time of being ready that gives one restart back.
    pub refill: Duration,
    /// Pause before a failed model is tried again; doubles up to 16 times this.
    pub retry: Duration,
    /// Between two looks at the models file.
    pub file: Duration,
    /// How long a model stays that no ModelServer names any more.
    pub departure: Duration,
    /// Longest wait for the first list of ModelServers before every model with a source is served.
    pub first_names: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(600),
            poll_starting: Duration::from_secs(1),
            poll_ready: Duration::from_secs(5),
            health: Duration::from_secs(5),
            strikes: 3,
            grace: Duration::from_secs(10),
            restart: Duration::from_secs(1),
            refill: Duration::from_secs(600),
            retry: Duration::from_secs(30),
            file: Duration::from_secs(5),
            departure: Duration::from_secs(60),
            first_names: Duration::from_secs(10),
        }
    }
}
