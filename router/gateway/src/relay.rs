//! The answer out: bytes as they come, usage read on the side, the client watched all the while.

use bytes::Bytes;
use http::header;
use kvasir_core::{ErrorKind, RequestKind, RouterError, Usage};
use kvasir_wire::headers::{ConnectionNames, is_event_stream, passes_to_client};
use kvasir_wire::{BodyTap, Pieces, StreamTap};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;

use crate::connector::Answer;
use crate::leg::LegError;
use crate::settle::Trail;
use crate::{Gateway, edits};

mod split;

/// Reads usage on the side of whatever passes.
enum Tap {
    /// Server-sent events.
    Stream(Box<StreamTap>),
    /// One JSON document.
    Body(Box<BodyTap>),
    /// An error answer or another media type: nothing to read.
    Nothing,
}

/// Relays `answer` to the client.
///
/// # Errors
/// When the engine's answer broke off or the client left; the caller then closes the client's connection without
/// ending the answer, so that a cut upstream is a cut downstream.
pub(crate) async fn relay(
    gateway: &Gateway,
    session: &mut ServerSession,
    mut answer: Answer<'_>,
    hide_usage: bool,
    kind: RequestKind,
    trail: &mut Trail<'_>,
) -> Result<(), RouterError> {
    let status = answer.header.status;
    let streamed = is_event_stream(
        answer
            .header
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default(),
    );
    let elsewhere = answer.prompt.is_elsewhere();
    let mut tap = Tap::new(status.is_success(), streamed, kind, hide_usage, elsewhere);
    let whole = match &tap {
        Tap::Body(_) if elsewhere => split::take_in(gateway, session, &mut answer, trail).await?,
        _ => None,
    };
    // HTTP/2 frames by itself; HTTP/1.0 knows no chunks, so the end of the connection ends the answer.
    let version = session.req_header().version;
    let chunks = version == http::Version::HTTP_11;
    if version == http::Version::HTTP_10 && !answer.header.headers.contains_key(header::CONTENT_LENGTH) {
        session.set_keepalive(None);
    }
    let changes = streamed && (hide_usage || elsewhere);
    let out = inbound_header(gateway, &answer, changes, trail.request_id().as_str(), chunks)
        .map_err(|_| ErrorKind::BadUpstream)?;
    session.set_write_timeout(Some(gateway.limits.stream_idle_timeout));
    trail.answering(status.as_u16(), &answer.running.endpoint);
    session.write_response_header(Box::new(out)).await.map_err(|_| ErrorKind::ClientGone)?;
    let mut next = answer.first.take();
    let mut pieces: Pieces = Pieces::new();
    let mut remembered = false;
    while let Some(chunk) = next {
        tap.correct(&answer);
        tap.push(chunk, &mut pieces);
        // Before the client can know the id: its next request may be here before this one has ended.
        remembered = remembered || remember(gateway, &tap, &answer);
        write(session, &mut pieces).await?;
        next = if whole.is_some() { None } else { next_piece(gateway, session, &mut answer, trail).await? };
    }
    tap.finish(&mut pieces);
    if !remembered {
        remember(gateway, &tap, &answer);
    }
    write(session, &mut pieces).await?;
    session.finish_body().await.map_err(|_| ErrorKind::ClientGone)?;
    let good = status.is_success();
    if good && answer.prompt.is_pending() {
        split::wait_for_prompt(gateway, &mut answer, trail).await;
    }
    answer.leg.release().await;
    let read = tap.read();
    let usage = read.usage.map(|usage| answer.prompt.correct(usage));
    trail.relayed(usage, answer.running.predicted, read.error);
    if good && !read.error {
        // What an endpoint that only decodes finds in its cache was just brought there.
        let seen = usage.map(|usage| if elsewhere { Usage { cached_tokens: None, ..usage } } else { usage });
        answer.running.completed(seen.as_ref());
    }
    Ok(())
}

/// The next piece of the answer's body, with the client watched, and the prompt's endpoint where it is still at work.
async fn next_piece(
    gateway: &Gateway,
    session: &mut ServerSession,
    answer: &mut Answer<'_>,
    trail: &mut Trail<'_>,
) -> Result<Option<Bytes>, RouterError> {
    let Answer { leg, prompt, .. } = answer;
    let chunk = leg.chunk();
    tokio::pin!(chunk);
    loop {
        tokio::select! {
            biased;
            told = prompt.reported(), if prompt.is_pending() => split::note_prompt(gateway, prompt, told, trail),
            chunk = &mut chunk => return chunk.map_err(|error| broken(gateway, &error).into()),
            _ = session.read_body_or_idle(true) => return Err(ErrorKind::ClientGone.into()),
        }
    }
}

/// Remembers who holds a stored response; false while its id has not gone by.
fn remember(gateway: &Gateway, tap: &Tap, answer: &Answer<'_>) -> bool {
    let Some(id) = tap.response_id() else { return false };
    gateway.responses.remember(id, &answer.running.endpoint.id, gateway.clock.now());
    true
}

fn broken(gateway: &Gateway, error: &LegError) -> ErrorKind {
    match error {
        LegError::Idle | LegError::FirstByte => ErrorKind::StreamIdle(gateway.limits.stream_idle_timeout),
        _ => ErrorKind::StreamBroken,
    }
}

async fn write(session: &mut ServerSession, pieces: &mut Pieces) -> Result<(), RouterError> {
    for piece in pieces.drain(..) {
        if !piece.is_empty() {
            session.write_response_body(piece, false).await.map_err(|_| ErrorKind::ClientGone)?;
        }
    }
    Ok(())
}

/// The answer's head as the client gets it: the engine's end-to-end headers, our request id, and the endpoint if asked.
fn inbound_header(
    gateway: &Gateway,
    answer: &Answer<'_>,
    length_may_change: bool,
    request_id: &str,
    chunks: bool,
) -> pingora_core::Result<ResponseHeader> {
    let from = &answer.header;
    let mut out = ResponseHeader::build(from.status, Some(from.headers.len() + 3))?;
    let connection = ConnectionNames::of(&from.headers);
    for (name, value) in &from.headers {
        let passes = passes_to_client(name, &connection)
            && !(length_may_change && *name == header::CONTENT_LENGTH)
            && *name != "x-request-id";
        if passes {
            out.append_header(name.clone(), value.clone())?;
        }
    }
    if let Some(edits) = answer.edited.as_ref().and_then(|route| route.edits.as_ref()) {
        edits::apply(&edits.response, &mut out)?;
    }
    out.insert_header("x-request-id", request_id)?;
    if gateway.headers.endpoint_header {
        out.insert_header("x-kvasir-endpoint", answer.running.endpoint.id.to_string())?;
    }
    let bodyless =
        from.status == http::StatusCode::NO_CONTENT || from.status == http::StatusCode::NOT_MODIFIED;
    if chunks && !bodyless && !out.headers.contains_key(header::CONTENT_LENGTH) {
        out.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(out)
}

/// What the tap had read at the end.
struct Reading {
    usage: Option<Usage>,
    /// The engine said in the stream that it failed.
    error: bool,
}

impl Tap {
    fn new(success: bool, streamed: bool, kind: RequestKind, hide_usage: bool, corrects: bool) -> Self {
        match (success, streamed) {
            (true, true) if corrects => Self::Stream(Box::new(StreamTap::new(kind, hide_usage).correcting())),
            (true, true) => Self::Stream(Box::new(StreamTap::new(kind, hide_usage))),
            (true, false) => Self::Body(Box::new(BodyTap::new(kind))),
            (false, _) => Self::Nothing,
        }
    }

    /// Takes over what is known of the prompt by now. A whole body has been corrected before.
    fn correct(&mut self, answer: &Answer<'_>) {
        if let (Self::Stream(tap), Some(cached)) = (self, answer.prompt.cached()) {
            tap.correct_cached(cached);
        }
    }

    fn push(&mut self, chunk: Bytes, out: &mut Pieces) {
        match self {
            Self::Stream(tap) => tap.push(chunk, out),
            Self::Body(tap) => {
                tap.push(&chunk);
                out.push(chunk);
            }
            Self::Nothing => out.push(chunk),
        }
    }

    fn finish(&mut self, out: &mut Pieces) {
        if let Self::Stream(tap) = self {
            tap.finish(out);
        }
    }

    /// The id of a stored response, once it went by.
    fn response_id(&self) -> Option<&str> {
        match self {
            Self::Stream(tap) => tap.response_id(),
            Self::Body(tap) => tap.response_id(),
            Self::Nothing => None,
        }
    }

    fn read(self) -> Reading {
        match self {
            Self::Stream(tap) => Reading { usage: tap.usage(), error: tap.error_seen() },
            Self::Body(mut tap) => Reading { usage: tap.finish(), error: false },
            Self::Nothing => Reading { usage: None, error: false },
        }
    }
}
