//! The HTTP surface: which path is what, and what happens to every request.

mod audio;
mod body;
mod call;
mod chunks;
mod embeddings;
mod events;
mod failure;
mod inference;
mod sabotage;
mod side;
mod stream;
mod whole;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use kvasir_core::RequestKind;
use parking_lot::Mutex;

use crate::config::EngineConfig;
use crate::core::Core;
use crate::engine::House;
use crate::fault::{Fault, FaultBoard};
use crate::publisher::{Disturbance, Outlet};
use crate::recorder::{RecordedRequest, Recorder};
use crate::server::FaultControl;
use crate::sockets::ConnectionHandle;
use body::ReplyBody;
use failure::Failure;

/// Finished answers of the Responses API that can be asked for again.
const STORED_RESPONSES: usize = 256;

/// What every handler of one start of an engine works with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) core: Arc<Core>,
    pub(crate) faults: Arc<FaultBoard>,
    pub(crate) recorder: Arc<Recorder>,
    /// The answer of `/kv_event_sources`; `None` where the engine has no such path.
    pub(crate) event_sources: Option<serde_json::Value>,
    pub(crate) control: FaultControl,
    pub(crate) outlet: Option<Outlet>,
    pub(crate) responses: Mutex<VecDeque<(String, Bytes)>>,
    /// The engine, for the order to restart.
    pub(crate) house: Weak<House>,
}

impl Desk {
    /// Subscribers do not get the next batches as they are.
    pub(crate) async fn disturb_events(&self, disturbance: Disturbance) {
        if let Some(outlet) = &self.outlet {
            outlet.disturb(disturbance).await;
        }
    }

    /// Keeps a finished answer of the Responses API.
    fn store_response(&self, id: String, answer: Bytes) {
        let mut stored = self.responses.lock();
        stored.push_back((id, answer));
        while stored.len() > STORED_RESPONSES {
            stored.pop_front();
        }
    }
}

/// Answers one request. An error ends the connection.
pub(crate) async fn answer(
    desk: Arc<Desk>,
    connection: ConnectionHandle,
    request: Request<Incoming>,
) -> io::Result<Response<ReplyBody>> {
    let (head, incoming) = request.into_parts();
    let body = match Limited::new(incoming, desk.config.max_body_bytes).collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Ok(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large").into_response());
        }
        Err(error) => return Err(io::Error::other(error)),
    };
    if desk.recorder.is_on() {
        desk.recorder.record(RecordedRequest {
            method: head.method.clone(),
            path: head.uri.path_and_query().map_or_else(String::new, |path| path.as_str().to_owned()),
            version: head.version,
            headers: head.headers.clone(),
            body: body.clone(),
        });
    }
    if desk.faults.current() == Fault::Hang && !head.uri.path().starts_with("/mock/") {
        let _ = desk.faults.next();
        return std::future::pending().await;
    }
    let is_inference = head.method == Method::POST && head.uri.path().starts_with("/v1/");
    if !is_inference {
        return Ok(side::answer(&desk, &head, &body).await);
    }
    let fault = desk.faults.next();
    if let Some(early) = sabotage::before(&fault, &connection).await? {
        return Ok(early);
    }
    let response = match infer(&desk, &head, body).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    };
    Ok(sabotage::after(fault, connection, response))
}

async fn infer(
    desk: &Arc<Desk>,
    head: &http::request::Parts,
    body: Bytes,
) -> Result<Response<ReplyBody>, Failure> {
    let kind = match head.uri.path() {
        "/v1/chat/completions" => RequestKind::Chat,
        "/v1/completions" => RequestKind::Completions,
        "/v1/responses" => RequestKind::Responses,
        "/v1/messages" => RequestKind::Messages,
        "/v1/embeddings" => return embeddings::answer(desk, body).await,
        "/v1/audio/transcriptions" => return audio::answer(desk, head, body).await,
        "/v1/messages/count_tokens" => return side::count_tokens(desk, &body).await,
        "/v1/tokenize" => return side::tokenize(desk, &body).await,
        _ => return Err(Failure::no_such_path()),
    };
    inference::answer(desk, kind, body).await
}

#[cfg(test)]
mod tests;
