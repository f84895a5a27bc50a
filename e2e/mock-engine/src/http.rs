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
use std::net::SocketAddr;
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
use crate::fabric::{End, Exchanging, Member, watch};
use crate::fault::{Fault, FaultBoard};
use crate::publisher::{Disturbance, Outlet};
use crate::recorder::{RecordedRequest, Recorder};
use crate::server::FaultControl;
use crate::sockets::ConnectionHandle;
pub(crate) use body::Events;
use body::ReplyBody;
pub(crate) use failure::Failure;

/// Finished answers of the Responses API that can be asked for again.
const STORED_RESPONSES: usize = 256;

/// What every handler of one start of an engine works with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) core: Arc<Core>,
    /// Where the engine listens.
    pub(crate) address: SocketAddr,
    /// This start in its group, where the engine plays a part in one.
    pub(crate) member: Option<Member>,
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

    /// The journal's line for a request that has just come, where there is a journal.
    fn open_exchange(&self) -> Option<Exchanging> {
        let (part, member) = (self.config.part.as_ref()?, self.member.as_ref()?);
        Some(member.fabric().open(self.address, part.role))
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
    let kind = generation_kind(&head);
    let exchange = kind.and_then(|_| desk.open_exchange());
    if desk.faults.current() == Fault::Hang && !head.uri.path().starts_with("/mock/") {
        let _ = desk.faults.next();
        return std::future::pending().await;
    }
    let path = head.uri.path();
    let is_inference =
        head.method == Method::POST && path.starts_with("/v1/") && !path.ends_with("_lora_adapter");
    if !is_inference {
        return Ok(side::answer(&desk, &head, &body).await);
    }
    let fault = desk.faults.next();
    if let Some(early) = sabotage::before(&fault, &connection).await? {
        return Ok(close(exchange, None, early));
    }
    let answered = match kind {
        Some(kind) => inference::answer(&desk, kind, body, exchange.as_ref()).await,
        None => infer(&desk, &head, body).await,
    };
    let (response, refusal) = match answered {
        Ok(response) => (response, None),
        Err(failure) => {
            let refusal = failure.broken_rule().map(str::to_owned);
            (failure.into_response(), refusal)
        }
    };
    Ok(close(exchange, refusal, sabotage::after(fault, connection, response).await))
}

/// What is generated, if anything is.
fn generation_kind(head: &http::request::Parts) -> Option<RequestKind> {
    let kind = match head.uri.path() {
        "/v1/chat/completions" => RequestKind::Chat,
        "/v1/completions" => RequestKind::Completions,
        "/v1/responses" => RequestKind::Responses,
        "/v1/messages" => RequestKind::Messages,
        _ => return None,
    };
    (head.method == Method::POST).then_some(kind)
}

async fn infer(
    desk: &Arc<Desk>,
    head: &http::request::Parts,
    body: Bytes,
) -> Result<Response<ReplyBody>, Failure> {
    match head.uri.path() {
        "/v1/embeddings" => embeddings::answer(desk, body).await,
        "/v1/audio/transcriptions" => audio::answer(desk, head, body).await,
        "/v1/messages/count_tokens" => side::count_tokens(desk, &body).await,
        "/v1/tokenize" => side::tokenize(desk, &body).await,
        _ => Err(Failure::no_such_path()),
    }
}

/// Writes down how an exchange ends, now or with the last event of its answer.
fn close(
    exchange: Option<Exchanging>,
    refusal: Option<String>,
    mut response: Response<ReplyBody>,
) -> Response<ReplyBody> {
    let Some(exchange) = exchange else { return response };
    let status = response.status().as_u16();
    match std::mem::replace(response.body_mut(), ReplyBody::Whole(None)) {
        ReplyBody::Events(events) => {
            *response.body_mut() = ReplyBody::Events(watch(events, exchange, status));
        }
        whole => {
            *response.body_mut() = whole;
            exchange.close(refusal.map_or(End::Answered(status), End::Refused));
        }
    }
    response
}

#[cfg(test)]
mod tests;
