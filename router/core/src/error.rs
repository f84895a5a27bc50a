//! The request path's error: what kind, whose fault, retryable or not.

use std::time::Duration;

/// Whose fault an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The client sent something that cannot be served, or left.
    Client,
    /// The router decided.
    Router,
    /// An engine or the network to it.
    Upstream,
}

/// What went wrong. `gateway/reply.rs` holds the only mapping to statuses and client-facing text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ErrorKind {
    /// The path or method is not served here.
    #[error("no such path")]
    NoSuchPath,
    /// The method is not allowed on this path.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// The body cannot be used; the text names the field and the fix.
    #[error("{0}")]
    BadBody(String),
    /// The body is larger than allowed.
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge {
        /// The limit in force, bytes.
        limit: usize,
    },
    /// The client stopped sending its body.
    #[error("the body was not received in time")]
    BodyTimeout,
    /// A content encoding we do not decode.
    #[error("the content encoding is not supported")]
    UnsupportedEncoding(String),
    /// A content type we do not read.
    #[error("the content type is not supported")]
    UnsupportedMediaType(String),
    /// An upgrade (WebSocket) request.
    #[error("protocol upgrades are not supported")]
    UpgradeRequired,
    /// `Expect` other than 100-continue.
    #[error("the expectation cannot be met")]
    ExpectationFailed,
    /// No route names the model.
    #[error("the model does not exist")]
    ModelNotFound(String),
    /// A `previous_response_id` or `/v1/responses/{id}` that this router does not remember.
    #[error("the response id is not known here")]
    UnknownResponse(String),
    /// A request id that is not in the ring of decisions.
    #[error("no decision is remembered under this request id")]
    UnknownRequest,
    /// A browser page of another site asks the admin listener.
    #[error("requests from web pages are not served here")]
    CrossSite,
    /// A policy whose work has not landed.
    #[error("{0} is not available")]
    FeatureNotAvailable(&'static str),
    /// No endpoint may take the request now.
    #[error("no endpoint is available: {reason}")]
    NoEndpoint {
        /// Why, from a fixed set.
        reason: &'static str,
        /// When to come back.
        retry_after: Duration,
    },
    /// Every endpoint was dropped by a filter.
    #[error("every endpoint is overloaded")]
    Overloaded {
        /// The filter that dropped the last one.
        filter: &'static str,
        /// When to come back.
        retry_after: Duration,
    },
    /// It waited in a queue for as long as it may.
    #[error("the request waited for its turn for {waited:?}, as long as it may")]
    QueueTimeout {
        /// How long it waited.
        waited: Duration,
        /// The flag that says how long.
        flag: &'static str,
    },
    /// As many wait as may wait.
    #[error("as many requests wait for their turn as may wait")]
    QueueFull {
        /// The flag that says how many.
        flag: &'static str,
        /// When to come back.
        retry_after: Duration,
    },
    /// The router holds as many bytes as it may.
    #[error("the router's buffers are full")]
    BuffersFull,
    /// Connecting failed everywhere that was tried.
    #[error("cannot connect to the model's endpoints")]
    ConnectFailed,
    /// The endpoint did not answer in time.
    #[error("the endpoint did not answer within {0:?}")]
    FirstByteTimeout(Duration),
    /// The connection died after the request had been sent.
    #[error("the endpoint closed the connection before it answered")]
    UpstreamClosed,
    /// The answer was no HTTP we understand.
    #[error("the endpoint's answer is not valid HTTP")]
    BadUpstream,
    /// The stream broke after the first byte reached the client.
    #[error("the endpoint's answer broke off")]
    StreamBroken,
    /// The stream was silent for too long.
    #[error("the endpoint's answer paused for more than {0:?}")]
    StreamIdle(Duration),
    /// The client went away.
    #[error("the client went away")]
    ClientGone,
    /// The router is shutting down.
    #[error("the router is shutting down")]
    ShuttingDown,
    /// A defect of ours.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// An error with its origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}")]
pub struct RouterError {
    /// What.
    pub kind: ErrorKind,
    /// Whose fault.
    pub origin: Origin,
}

impl From<ErrorKind> for RouterError {
    fn from(kind: ErrorKind) -> Self {
        use ErrorKind as K;
        let origin = match &kind {
            K::NoSuchPath
            | K::MethodNotAllowed
            | K::BadBody(_)
            | K::BodyTooLarge { .. }
            | K::BodyTimeout
            | K::UnsupportedEncoding(_)
            | K::UnsupportedMediaType(_)
            | K::UpgradeRequired
            | K::ExpectationFailed
            | K::ModelNotFound(_)
            | K::UnknownResponse(_)
            | K::UnknownRequest
            | K::CrossSite
            | K::ClientGone => Origin::Client,
            K::FeatureNotAvailable(_)
            | K::NoEndpoint { .. }
            | K::Overloaded { .. }
            | K::QueueTimeout { .. }
            | K::QueueFull { .. }
            | K::BuffersFull
            | K::ShuttingDown
            | K::Internal(_) => Origin::Router,
            K::ConnectFailed
            | K::FirstByteTimeout(_)
            | K::UpstreamClosed
            | K::BadUpstream
            | K::StreamBroken
            | K::StreamIdle(_) => Origin::Upstream,
        };
        Self { kind, origin }
    }
}
