//! The HTTP face: health, readiness, metrics, status.

mod door;
mod reply;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::board::{Board, Readiness};
use crate::metrics;

pub use door::Door;

#[cfg(test)]
mod tests;

/// What kthena's sidecar does to its engine by HTTP. The agent only watches.
const NOT_OFFERED: [&str; 3] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/download_model"];

/// What every request works with.
#[derive(Debug)]
pub struct Desk {
    board: Arc<Board>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadyAnswer {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting_for: Vec<String>,
    #[serde(flatten)]
    detail: crate::board::Status,
}

impl Desk {
    /// A desk that tells what the board shows.
    pub fn new(board: Arc<Board>) -> Self {
        Self { board }
    }

    /// Answers one request. Bodies are not read: no path takes one.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if NOT_OFFERED.contains(&path) {
            return reply::error(
                StatusCode::NOT_FOUND,
                "not offered: the agent only watches its engine; ask the engine itself, or kthena's own runtime",
            );
        }
        if !matches!(path, "/health" | "/healthz" | "/readyz" | "/metrics" | "/status") {
            return reply::error(StatusCode::NOT_FOUND, "no such path");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return reply::wrong_method("GET");
        }
        match path {
            // kthena's word for it, whatever Redis and the engine do: its probes must not restart the pod for them.
            "/health" => reply::status(StatusCode::OK, "healthy"),
            "/healthz" => reply::status(StatusCode::OK, "ok"),
            "/readyz" => self.readiness(),
            "/metrics" => reply::metrics(metrics::page(&self.board)),
            _ => reply::json(StatusCode::OK, &self.board.status()),
        }
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let (code, status, waiting_for) = match self.board.readiness() {
            Readiness::Ready => (StatusCode::OK, "ready", Vec::new()),
            Readiness::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", Vec::new()),
            Readiness::Waiting(reasons) => (StatusCode::SERVICE_UNAVAILABLE, "waiting", reasons),
        };
        reply::json(code, &ReadyAnswer { status, waiting_for, detail: self.board.status() })
    }
}
