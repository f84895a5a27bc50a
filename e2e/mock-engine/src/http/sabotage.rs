//! The faults of an answer, applied to inference requests.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::body::{Events, ReplyBody, json as json_response};
use super::failure::Failure;
use crate::fault::Fault;
use crate::sockets::ConnectionHandle;

/// What vLLM says when its core is gone.
const CORE_IS_DEAD: &str = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
/// What vLLM says while it shuts down gracefully.
const SHUTTING_DOWN: &str = "cannot schedule new futures after shutdown";

/// Faults before the engine sees the request: an answer in place of the engine's, an error, or a delay.
pub(crate) async fn before(
    fault: &Fault,
    connection: &ConnectionHandle,
) -> io::Result<Option<Response<ReplyBody>>> {
    Ok(match fault {
        Fault::Status { code, body } => Some(json_response(status(*code), body.clone())),
        Fault::Draining => {
            Some(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, SHUTTING_DOWN).into_response())
        }
        Fault::Dead => Some(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, CORE_IS_DEAD).into_response()),
        Fault::BusyWithRetryAfter { code, seconds } => {
            Some(Failure::busy_with_retry_after(status(*code), *seconds).into_response())
        }
        Fault::SlowFirstByte { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            None
        }
        Fault::ResetBeforeFirstByte => {
            connection.reset_at_end();
            connection.close();
            std::future::pending().await
        }
        _ => None,
    })
}

/// Faults in the body of the engine's answer.
pub(crate) async fn after(
    fault: Fault,
    connection: ConnectionHandle,
    mut response: Response<ReplyBody>,
) -> Response<ReplyBody> {
    let (after_events, end) = match fault {
        Fault::ResetMidStream { after_events } => (after_events, End::Reset),
        Fault::CutMidStream { after_events } => (after_events, End::Cut),
        Fault::StallMidStream { after_events } => (after_events, End::Stall),
        Fault::ErrorMidStream { after_events } => (after_events, End::Error),
        Fault::ShortBody => (1, End::Cut),
        Fault::StatusAfterWork { code, ms } => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            return Failure::new(status(code), CORE_IS_DEAD).into_response();
        }
        Fault::AnswerNoJson | Fault::NoTransferParams => {
            if let ReplyBody::Whole(body) = response.body_mut() {
                *body = body.take().map(|bytes| spoil(&fault, bytes));
            }
            return response;
        }
        _ => return response,
    };
    let body = std::mem::replace(response.body_mut(), ReplyBody::Whole(None));
    let events: Events = match body {
        ReplyBody::Events(events) => {
            if fault == Fault::ShortBody {
                // Any length that a stream does not reach.
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(1_000_000));
            }
            events
        }
        ReplyBody::Whole(_) if end == End::Error => {
            return Failure::new(StatusCode::INTERNAL_SERVER_ERROR, CORE_IS_DEAD).into_response();
        }
        ReplyBody::Whole(bytes) => {
            let bytes = bytes.unwrap_or_default();
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            let half = bytes.slice(..bytes.len() / 2);
            return replace(
                response,
                interrupt(Box::pin(futures_util::stream::iter([Ok(half)])), 1, end, connection),
            );
        }
    };
    replace(response, interrupt(events, after_events, end, connection))
}

/// A whole answer that lacks what a router needs of it.
fn spoil(fault: &Fault, answer: Bytes) -> Bytes {
    if *fault == Fault::AnswerNoJson {
        return Bytes::from_static(b"Internal Server Error");
    }
    let Ok(mut answer) = serde_json::from_slice::<serde_json::Map<_, _>>(&answer) else { return answer };
    answer.remove("kv_transfer_params");
    Bytes::from(serde_json::Value::Object(answer).to_string())
}

fn replace(mut response: Response<ReplyBody>, events: Events) -> Response<ReplyBody> {
    *response.body_mut() = ReplyBody::Events(events);
    response
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Reset,
    Cut,
    Stall,
    Error,
}

/// Passes `left` events, then ends badly.
fn interrupt(events: Events, left: usize, end: End, connection: ConnectionHandle) -> Events {
    let state = Interrupted { events: Some(events), left, end, connection, last: Vec::new() };
    Box::pin(unfold(state, |mut state| async move { state.next().await.map(|event| (event, state)) }))
}

struct Interrupted {
    events: Option<Events>,
    left: usize,
    end: End,
    connection: ConnectionHandle,
    /// Events that follow an error, last one first.
    last: Vec<Bytes>,
}

impl Interrupted {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(events) = self.events.as_mut().filter(|_| self.left > 0) {
            self.left -= 1;
            if let Some(event) = events.next().await {
                return Some(event);
            }
        }
        let first_time = self.events.take().is_some();
        match self.end {
            End::Stall => std::future::pending().await,
            End::Error => {
                if first_time {
                    let error = json!({"error": {
                        "message": CORE_IS_DEAD, "type": "InternalServerError", "param": null, "code": 500,
                    }});
                    self.last.push(Bytes::from_static(b"data: [DONE]\n\n"));
                    self.last.push(Bytes::from(format!("data: {error}\n\n")));
                }
                self.last.pop().map(Ok)
            }
            End::Reset | End::Cut => {
                // hyper writes what it has when the body is not ready. Without this pause the last events would be
                // thrown away together with the connection.
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                if self.end == End::Reset {
                    self.connection.reset_at_end();
                }
                Some(Err(io::Error::other("the connection is cut on order")))
            }
        }
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
