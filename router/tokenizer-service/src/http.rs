//! The HTTP face: which path is what.

mod call;
mod door;
mod reply;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use kvasir_core::SideClient;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::board::{Board, Line};
use crate::metrics::ServiceMetrics;
use crate::native::NativeCall;
use crate::selection::Known;

pub use door::Door;

/// Largest request body, bytes; the contract's.
pub const MOST_BODY_BYTES: usize = 10 << 20;

/// Bodies held at the same time, in units of [`BODY_UNIT`]: 256 MiB.
const BODY_UNITS: usize = 256 << 10;

/// Bytes of a unit.
const BODY_UNIT: usize = 1 << 10;

/// What every request works with.
pub struct Desk {
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: ServiceMetrics,
    pub(crate) client: Arc<dyn SideClient>,
    /// Longest time for one answer.
    pub(crate) timeout: Duration,
    /// What is known of the set of models.
    pub(crate) known: Arc<Mutex<Known>>,
    /// Whether the service is about to end.
    pub(crate) stopping: AtomicBool,
    bodies: Arc<Semaphore>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Readiness where the cluster did not say yet which models it has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    status: &'static str,
    model_servers: &'static str,
}

const READY_FOR_NOW: Ready = Ready {
    status: "ready",
    model_servers: "not listed yet; until they are, every model with a source is served",
};

#[derive(Serialize)]
struct Models {
    models: Vec<Line>,
}

impl Desk {
    pub(crate) fn new(
        board: Arc<Board>,
        client: Arc<dyn SideClient>,
        timeout: Duration,
        known: Arc<Mutex<Known>>,
    ) -> Self {
        Self {
            board,
            metrics: ServiceMetrics::default(),
            client,
            timeout,
            known,
            stopping: AtomicBool::new(false),
            bodies: Arc::new(Semaphore::new(BODY_UNITS)),
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let post = request.method() == Method::POST;
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/tokenize" if post => self.call("/tokenize", NativeCall::Tokenize, request).await,
            "/detokenize" if post => self.call("/detokenize", NativeCall::Detokenize, request).await,
            "/models" if get => reply::json(StatusCode::OK, &Models { models: self.board.lines() }),
            "/healthz" if get => reply::status(StatusCode::OK, "ok"),
            "/readyz" if get => self.readiness(),
            "/metrics" if get => reply::metrics(self.metrics.page(&self.board.lines())),
            "/tokenize" | "/detokenize" => reply::wrong_method("POST"),
            "/models" | "/healthz" | "/readyz" | "/metrics" => reply::wrong_method("GET"),
            _ => reply::error(StatusCode::NOT_FOUND, "no such path"),
        }
    }

    /// Ready means that the set of models is known, as at kthena's service: one model that fails must not take the
    /// others out of service.
    fn readiness(&self) -> Response<Full<Bytes>> {
        if self.stopping.load(Ordering::Acquire) {
            return reply::error(StatusCode::SERVICE_UNAVAILABLE, "stopping");
        }
        let known = *self.known.lock();
        match known {
            Known::Nothing => {
                reply::error(StatusCode::SERVICE_UNAVAILABLE, "the set of models is not known yet")
            }
            Known::Mapped | Known::Named => reply::status(StatusCode::OK, "ready"),
            Known::ForNow => reply::json(StatusCode::OK, &READY_FOR_NOW),
        }
    }

    async fn call(
        &self,
        path: &'static str,
        call: NativeCall,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let answered = self.serve(path, call, request).await;
        let status = answered.response.status().as_u16();
        self.metrics.answered(path, answered.model.as_deref(), status, began.elapsed(), answered.bytes);
        answered.response
    }
}

/// An answer, and what is counted about it.
pub(crate) struct Answered {
    pub(crate) response: Response<Full<Bytes>>,
    /// The served name, when the request had one.
    pub(crate) model: Option<String>,
    /// Bytes of the request's body.
    pub(crate) bytes: usize,
}
