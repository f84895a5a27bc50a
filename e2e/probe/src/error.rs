//! Why a run has no result.

/// Why a run has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeError {
    /// A URL that cannot be used.
    #[error("URL {url:?} cannot be used: {reason}")]
    BadUrl {
        /// As given.
        url: String,
        /// Why not.
        reason: &'static str,
    },
    /// A header that cannot be sent. The value is not repeated: it may be a secret.
    #[error("header {0:?} cannot be sent: its name or value is not valid")]
    BadHeader(String),
    /// A field that the tester writes itself.
    #[error("the extra body must not set {0:?}")]
    ReservedField(String),
    /// A number outside its range.
    #[error("{name} must be {range}")]
    OutOfRange {
        /// Which.
        name: &'static str,
        /// What it may be.
        range: &'static str,
    },
    /// A prompt file without words.
    #[error("the prompt text holds no words")]
    EmptyPrompt,
    /// `/v1/models` did not name a model.
    #[error("no model was given, and {url}/v1/models did not name one: {reason}")]
    NoModel {
        /// Base URL.
        url: String,
        /// What happened.
        reason: String,
    },
    /// An engine's counters cannot be read.
    #[error("the metrics of {url} cannot be read: {reason}")]
    NoMetrics {
        /// The engine.
        url: String,
        /// What happened.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{path} cannot be read: {reason}")]
    BadFile {
        /// Its path.
        path: String,
        /// What happened.
        reason: String,
    },
    /// Stopped before there was a verdict.
    #[error("stopped before there was a verdict")]
    Stopped,
    /// The latency recorder refused its bounds; a defect of this crate.
    #[error("the latency recorder cannot be made: {0}")]
    Recorder(String),
}

/// `Err` that names the number, unless `holds`.
pub(crate) fn in_range(name: &'static str, range: &'static str, holds: bool) -> Result<(), ProbeError> {
    if holds { Ok(()) } else { Err(ProbeError::OutOfRange { name, range }) }
}
