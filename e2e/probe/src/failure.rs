//! How one request can fail: a kind from a small set, with a bounded sentence.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Longest sentence kept of a failure, characters. An error page of a proxy is cut here.
const MAX_MESSAGE_CHARS: usize = 300;

/// What went wrong; the label that errors are counted under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FailureKind {
    /// No connection: refused, unreachable, unresolvable or too slow.
    Connect,
    /// No complete answer in time.
    Timeout,
    /// The connection ended before the header of an answer.
    Closed,
    /// A status other than 200.
    Status(u16),
    /// An answer that is no chat or completions answer.
    BadAnswer,
    /// A body or stream that ended early.
    StreamCut,
    /// A stream that says it is done, and never gave a finish reason.
    NoFinish,
    /// An error inside a stream or inside a 200 answer.
    ErrorEvent,
    /// An answer or event larger than the limit.
    TooLarge,
}

/// One failed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The kind.
    pub(crate) kind: FailureKind,
    /// One line for people, bounded, without control characters.
    pub(crate) message: String,
}

impl Failure {
    /// A failure with its sentence; what is too long is cut.
    pub(crate) fn new(kind: FailureKind, message: &str) -> Self {
        Self { kind, message: bounded(message) }
    }

    /// The request's time ran out.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self::new(FailureKind::Timeout, &format!("no complete answer within {} s", limit.as_secs_f64()))
    }

    /// An answer with a status other than 200, explained by its own body.
    pub(crate) fn status(status: u16, body: &[u8]) -> Self {
        Self::new(FailureKind::Status(status), &format!("HTTP {status}: {}", message_of(body)))
    }

    /// An error object or text inside a stream or a 200 answer.
    pub(crate) fn error_event(body: &[u8]) -> Self {
        Self::new(FailureKind::ErrorEvent, &message_of(body))
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Status(status) => return write!(f, "http_{status}"),
            Self::BadAnswer => "bad_answer",
            Self::StreamCut => "stream_cut",
            Self::NoFinish => "no_finish",
            Self::ErrorEvent => "error_event",
            Self::TooLarge => "too_large",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The sentence an error body holds, in the shapes that engines and proxies use, else its text.
fn message_of(body: &[u8]) -> String {
    let found = serde_json::from_slice::<Value>(body).ok().and_then(|value| {
        [&value["error"]["message"], &value["error"], &value["message"], &value["detail"]]
            .into_iter()
            .find_map(|text| text.as_str().map(str::to_owned))
    });
    match found {
        Some(text) => bounded(&text),
        None if body.iter().all(u8::is_ascii_whitespace) => "(empty body)".to_owned(),
        None => bounded(&String::from_utf8_lossy(body)),
    }
}

/// One line of at most [`MAX_MESSAGE_CHARS`]; control characters, which could steer a terminal, become spaces.
fn bounded(text: &str) -> String {
    let mut kept: String =
        text.trim().chars().take(MAX_MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(MAX_MESSAGE_CHARS).is_some() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_found_in_every_known_shape() {
        for (body, expected) in [
            (r#"{"error":{"message":"busy","code":503}}"#, "busy"),
            (r#"{"error":"busy"}"#, "busy"),
            (r#"{"message":"busy"}"#, "busy"),
            (r#"{"detail":"busy"}"#, "busy"),
            ("plain text", "plain text"),
            (" \n", "(empty body)"),
            (r#"{"error":{"code":1}}"#, r#"{"error":{"code":1}}"#),
        ] {
            let failure = Failure::status(503, body.as_bytes());
            assert_eq!(failure.message, format!("HTTP 503: {expected}"));
            assert_eq!(failure.kind.to_string(), "http_503");
        }
    }

    #[test]
    fn a_page_is_cut_and_cannot_steer_the_terminal() {
        let failure = Failure::status(502, format!("\u{1b}[2J{}", "x".repeat(10_000)).as_bytes());
        assert!(failure.message.chars().count() <= MAX_MESSAGE_CHARS + 1);
        assert!(!failure.message.contains('\u{1b}'));
    }
}
