//! Small HTTP calls beside the inference traffic: tokenize, scrape, health, discovery.

use std::time::Duration;

use bytes::Bytes;

use crate::BoxFuture;
use crate::endpoint::UpstreamTls;

/// One bounded side call.
#[derive(Clone, Debug)]
pub struct SideRequest {
    /// `GET` or `POST`.
    pub method: http::Method,
    /// Absolute `http://` or `https://` URL.
    pub url: String,
    /// How the server of an `https://` URL is checked; `None` is as the URL says, by its host.
    pub tls: Option<UpstreamTls>,
    /// JSON body; empty for none.
    pub body: Bytes,
    /// From the start of connecting to the last byte of the answer.
    pub timeout: Duration,
    /// Most bytes of the answer; one more is [`SideError::TooLarge`].
    pub max_bytes: usize,
}

/// What came back, whatever its status.
#[derive(Clone, Debug)]
pub struct SideResponse {
    /// Status.
    pub status: http::StatusCode,
    /// Headers.
    pub headers: http::HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SideError {
    /// Refused, reset, unresolvable.
    #[error("connection failed: {0}")]
    Connect(String),
    /// Not done in time.
    #[error("timed out")]
    Timeout,
    /// More than `max_bytes`.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The URL or a header cannot be used.
    #[error("bad request: {0}")]
    Bad(String),
}

/// Makes side calls. One shared, pooled client for the process; implemented by `upstream`, injected by `app`.
/// Safe to call concurrently; dropping the future cancels the call.
pub trait SideClient: Send + Sync {
    /// One call, one answer; nothing is retried.
    fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>>;
}
