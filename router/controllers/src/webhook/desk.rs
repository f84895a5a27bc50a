//! One HTTP request to the webhook: by its path, its content type and its body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use kvasir_api::ReviewedKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::activity::Running;
use super::admission;

/// What a request may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body, bytes. An API server holds objects of up to 3 MiB.
    pub body_bytes: usize,
    /// All bodies that are held at the same time, bytes.
    pub held_bytes: usize,
    /// Reviews at the same time; each takes a processor for some milliseconds, and ten times the body's memory.
    pub reviews: usize,
    /// Longest time for a body to come in. kthena's.
    pub read: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: 3 << 20, held_bytes: 32 << 20, reviews: 4, read: Duration::from_secs(30) }
    }
}

/// Answers requests.
#[derive(Debug)]
pub struct Desk {
    limits: Limits,
    held: Arc<Semaphore>,
    reviews: Semaphore,
}

/// A body that was read, and its part of all that may be held.
struct Held {
    bytes: Vec<u8>,
    place: Option<OwnedSemaphorePermit>,
}

/// A body that was not read.
#[derive(Clone, Copy, Debug)]
enum Unread {
    TooLarge,
    Busy,
    TooSlow,
    Cut,
}

/// The body of an answer. The request runs until it is handed over.
#[derive(Debug)]
pub struct Answer {
    content: Full<Bytes>,
    _running: Running,
}

impl Desk {
    /// One with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: Arc::new(Semaphore::new(limits.held_bytes)),
            reviews: Semaphore::new(limits.reviews),
        }
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>, running: Running) -> Response<Answer>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let response = match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok"),
            "/validate/modelroute" => self.review(ReviewedKind::ModelRoute, request).await,
            "/validate/modelserver" => self.review(ReviewedKind::ModelServer, request).await,
            "/validate/externalmodelprovider" => {
                self.review(ReviewedKind::ExternalModelProvider, request).await
            }
            _ => text(StatusCode::NOT_FOUND, "there is nothing at this path"),
        };
        response.map(|content| Answer { content, _running: running })
    }

    /// Whether bodies of this size together are held now.
    #[cfg(test)]
    pub fn is_holding(&self, bytes: usize) -> bool {
        self.held.available_permits() + bytes == self.limits.held_bytes
    }

    async fn review<B>(&self, kind: ReviewedKind, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if let Err(found) = is_json(request.headers()) {
            let problem = format!("invalid Content-Type, expected application/json, got {found}");
            return text(StatusCode::BAD_REQUEST, problem);
        }
        let held = match self.read(request.into_body()).await {
            Ok(held) => held,
            Err(unread) => return self.unread(unread),
        };
        let Ok(_place) = self.reviews.acquire().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the webhook is stopping");
        };
        // A large object, or one with many patterns, would keep the requests of this thread waiting.
        let judged = tokio::task::spawn_blocking(move || {
            let judged = admission::answer(kind, &held.bytes);
            drop(held.place);
            judged
        })
        .await;
        match judged {
            Ok(Ok(body)) => with_type(StatusCode::OK, "application/json", body),
            Ok(Err(malformed)) => text(StatusCode::BAD_REQUEST, malformed.to_string()),
            Err(error) => {
                tracing::error!(kind = kind.name(), %error, "a review ended unexpectedly");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the review ended unexpectedly")
            }
        }
    }

    async fn read<B>(&self, body: B) -> Result<Held, Unread>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        timeout(self.limits.read, self.collect(body)).await.unwrap_or(Err(Unread::TooSlow))
    }

    async fn collect<B>(&self, mut body: B) -> Result<Held, Unread>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let most = self.limits.body_bytes;
        if body.size_hint().lower() > most as u64 {
            return Err(Unread::TooLarge);
        }
        let mut held = Held { bytes: Vec::new(), place: None };
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::Cut)?.into_data() else { continue };
            if data.len() > most - held.bytes.len() {
                return Err(Unread::TooLarge);
            }
            let amount = u32::try_from(data.len()).map_err(|_| Unread::TooLarge)?;
            let place = Arc::clone(&self.held).try_acquire_many_owned(amount).map_err(|_| Unread::Busy)?;
            match &mut held.place {
                Some(places) => places.merge(place),
                None => held.place = Some(place),
            }
            held.bytes.extend_from_slice(&data);
        }
        Ok(held)
    }

    fn unread(&self, why: Unread) -> Response<Full<Bytes>> {
        let (status, problem) = match why {
            Unread::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {} bytes", self.limits.body_bytes),
            ),
            Unread::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many reviews at the same time; try again".to_owned())
            }
            Unread::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not come within {} seconds", self.limits.read.as_secs()),
            ),
            Unread::Cut => (StatusCode::BAD_REQUEST, "the body ended early".to_owned()),
        };
        let mut response = text(status, problem);
        // What is left of the body would be taken for the next request. HTTP/2 has streams for that, and drops the header.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// Whether the content type is exactly the one that kthena takes; else what is there.
fn is_json(headers: &HeaderMap) -> Result<(), String> {
    let found = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if found == b"application/json" { Ok(()) } else { Err(String::from_utf8_lossy(found).into_owned()) }
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", text.into().into_bytes())
}

fn with_type(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.content).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
