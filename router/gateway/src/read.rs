//! The body in: bounded, decoded, scanned once.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use kvasir_core::{ErrorKind, InferenceRequest, ModelName, RequestId, RequestKind, RouterError};
use kvasir_wire::headers::{is_json, is_multipart_form};
use kvasir_wire::{DecodeError, MultipartScan, Scan};
use pingora_core::ErrorType;
use pingora_core::protocols::http::ServerSession;

use crate::Gateway;
use crate::buffers::HeldBytes;

/// How long, and how much, is read after an early answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 << 20;

/// How far ahead of what has arrived a buffer is made: announced lengths are promises.
const GROWTH: usize = 16;

/// A body, read to its end.
#[derive(Debug)]
pub(crate) struct Received {
    /// Decoded bytes.
    pub body: Bytes,
    /// Whether a content encoding was undone, so that its header must not be passed on.
    pub decoded: bool,
    /// The budget it occupies, until the request ends.
    held: HeldBytes,
}

/// What the scan of the body found.
#[derive(Debug)]
pub(crate) enum Found {
    /// A JSON object.
    Json(Box<Scan>),
    /// A multipart form (audio).
    Form(MultipartScan),
}

/// A parsed call.
#[derive(Debug)]
pub(crate) struct Call {
    /// What the router works with; `model` is still the client's name.
    pub request: InferenceRequest,
    /// Where the rewritable parts are.
    pub found: Found,
    /// The body's budget.
    pub received: Received,
}

/// Reads and parses the body of an inference request.
pub(crate) async fn call(
    gateway: &Gateway,
    session: &mut ServerSession,
    kind: RequestKind,
    id: &RequestId,
) -> Result<Call, RouterError> {
    let received = body(gateway, session).await?;
    let content_type = text_header(session, &header::CONTENT_TYPE).to_owned();
    let mut call = parse(kind, id, &content_type, received)?;
    call.request.session = gateway.scheduling.session_of(session.req_header(), &call.request);
    Ok(call)
}

/// Parses a body that is already here; also used by the dry run of explain.
pub(crate) fn parse(
    kind: RequestKind,
    id: &RequestId,
    content_type: &str,
    received: Received,
) -> Result<Call, RouterError> {
    if is_multipart_form(content_type) {
        let form = kvasir_wire::scan_multipart(content_type, &received.body)
            .map_err(|error| ErrorKind::BadBody(error.to_string()))?;
        let request = InferenceRequest {
            id: id.clone(),
            kind: RequestKind::Other,
            requested_model: Arc::from(form.model.as_str()),
            model: ModelName::from(form.model.as_str()),
            adapter: None,
            stream: form.stream,
            prompt: kvasir_core::Prompt::None,
            cache_salt: None,
            skips_cache: false,
            max_tokens: None,
            session: None,
            body: received.body.clone(),
        };
        return Ok(Call { request, found: Found::Form(form), received });
    }
    // Clients that send JSON under no name, or under curl's default, are common; any other name is believed.
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let lenient = ["", "text/plain", "application/x-www-form-urlencoded"];
    if !is_json(content_type) && !lenient.contains(&media) {
        return Err(ErrorKind::UnsupportedMediaType(media.to_owned()).into());
    }
    let scan =
        kvasir_wire::scan(kind, &received.body).map_err(|error| ErrorKind::BadBody(error.to_string()))?;
    let request = InferenceRequest {
        id: id.clone(),
        kind,
        requested_model: Arc::from(scan.model.as_str()),
        model: ModelName::from(scan.model.as_str()),
        adapter: None,
        stream: scan.stream,
        prompt: scan.prompt.clone(),
        cache_salt: scan.cache_salt.clone(),
        skips_cache: scan.skips_cache,
        max_tokens: scan.max_tokens,
        session: None,
        body: received.body.clone(),
    };
    Ok(Call { request, found: Found::Json(Box::new(scan)), received })
}

impl Call {
    /// The call as if the client had not said where a prompt's cache comes from: between two engines only the router
    /// says so. What the prompt is may change with it, so that the body is read again; such clients are rare.
    pub(crate) fn without_hand_over(mut self) -> Result<Self, RouterError> {
        if !matches!(&self.found, Found::Json(scan) if scan.hands_over) {
            return Ok(self);
        }
        let less = kvasir_wire::without_hand_over(&self.received.body);
        self.received.body = less.ok_or(ErrorKind::Internal("a body that was read cannot be read again"))?;
        let before = self.request;
        let mut call = parse(before.kind, &before.id, "application/json", self.received)?;
        call.request.session = before.session;
        Ok(call)
    }
}

impl Received {
    /// Counts a second copy of the body (one with another model name, or that asks for usage).
    pub(crate) async fn cover_copy(&mut self, gateway: &Gateway, copy: &Bytes) -> Result<(), RouterError> {
        if copy.as_ptr() == self.body.as_ptr() {
            return Ok(());
        }
        gateway.buffers.cover(&mut self.held, self.body.len() + copy.len()).await
    }
}

/// Reads the whole body within the limits and undoes its content encoding.
pub(crate) async fn body(gateway: &Gateway, session: &mut ServerSession) -> Result<Received, RouterError> {
    let limit = gateway.limits.max_body_bytes;
    let announced = announced_length(session)?;
    if announced.is_some_and(|length| length > limit) {
        return Err(ErrorKind::BodyTooLarge { limit }.into());
    }
    expect(session).await?;
    // Bytes count when they are here: a client that announces much and sends nothing takes nobody's place.
    let mut held = HeldBytes::default();
    session.set_read_timeout(Some(gateway.limits.body_timeout));
    let mut first = Bytes::new();
    let mut rest: Option<BytesMut> = None;
    loop {
        let chunk = match session.read_request_body().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => {
                return Err(match error.etype() {
                    ErrorType::ReadTimedout => ErrorKind::BodyTimeout,
                    ErrorType::ConnectionClosed | ErrorType::ReadError => ErrorKind::ClientGone,
                    _ => ErrorKind::BadBody(
                        "The body's chunks are malformed; send Content-Length or valid chunks.".into(),
                    ),
                }
                .into());
            }
        };
        let so_far = rest.as_ref().map_or(first.len(), BytesMut::len) + chunk.len();
        if so_far > limit {
            return Err(ErrorKind::BodyTooLarge { limit }.into());
        }
        gateway.buffers.cover(&mut held, so_far).await?;
        match &mut rest {
            Some(buffer) => buffer.extend_from_slice(&chunk),
            None if first.is_empty() => first = chunk,
            None => {
                let room = announced.unwrap_or(so_far * 2).min(so_far * GROWTH);
                let mut buffer = BytesMut::with_capacity(room);
                buffer.extend_from_slice(&first);
                buffer.extend_from_slice(&chunk);
                rest = Some(buffer);
            }
        }
    }
    let raw = rest.map_or(first, BytesMut::freeze);
    let encodings = text_header(session, &header::CONTENT_ENCODING).to_owned();
    if encodings.is_empty() || encodings.eq_ignore_ascii_case("identity") {
        return Ok(Received { body: raw, decoded: false, held });
    }
    let body = decode(gateway, encodings, raw, &mut held).await?;
    Ok(Received { body, decoded: true, held })
}

/// Undoes a content encoding, off the event loop, and counts what came out.
async fn decode(
    gateway: &Gateway,
    encodings: String,
    raw: Bytes,
    held: &mut HeldBytes,
) -> Result<Bytes, RouterError> {
    let limit = gateway.limits.max_body_bytes;
    let turn = gateway.buffers.decoding_turn().await;
    let decoding = tokio::task::spawn_blocking(move || kvasir_wire::decode_body(&encodings, raw, limit));
    let body =
        decoding.await.map_err(|_| ErrorKind::Internal("decoding ended early"))?.map_err(
            |error| match error {
                DecodeError::Unsupported(name) => ErrorKind::UnsupportedEncoding(name),
                DecodeError::TooLarge { .. } => ErrorKind::BodyTooLarge { limit },
                DecodeError::Malformed { .. } => ErrorKind::BadBody(error.to_string()),
            },
        )?;
    gateway.buffers.cover(held, body.len()).await?;
    drop(turn);
    Ok(body)
}

/// Reads on for a moment after an early answer: closing under a client that is still sending would reset the
/// connection, and the client would never see why.
pub(crate) async fn let_the_client_finish(session: &mut ServerSession) {
    // A client that waits to be told to go on sends nothing after an error.
    if session.is_body_done() || session.get_header(&header::EXPECT).is_some() {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = session.read_request_body().await {
            read += chunk.len();
            if read > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// Answers `Expect: 100-continue`, so that the client sends its body; refuses other expectations.
async fn expect(session: &mut ServerSession) -> Result<(), RouterError> {
    let expectation = text_header(session, &header::EXPECT);
    if expectation.is_empty() {
        return Ok(());
    }
    if !expectation.eq_ignore_ascii_case("100-continue") {
        return Err(ErrorKind::ExpectationFailed.into());
    }
    session.write_continue_response().await.map_err(|_| ErrorKind::ClientGone.into())
}

fn announced_length(session: &ServerSession) -> Result<Option<usize>, RouterError> {
    let text = text_header(session, &header::CONTENT_LENGTH);
    if text.is_empty() {
        return Ok(None);
    }
    let length =
        text.trim().parse().map_err(|_| ErrorKind::BadBody("`Content-Length` is no number.".into()))?;
    Ok(Some(length))
}

/// A header's value as text; empty when absent or not text.
pub(crate) fn text_header<'s>(session: &'s ServerSession, name: &header::HeaderName) -> &'s str {
    session.get_header(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kvasir_core::{Prompt, SessionKey};

    use super::*;

    /// vLLM would compute these ids in place of the prompt, but between two engines it never sees them.
    #[test]
    fn without_the_clients_hand_over_the_prompt_is_the_one_that_is_written() {
        let sent =
            r#"{"kv_transfer_params":{"prompt_token_ids":[9]}, "model":"m","prompt":[1,2],"stream":true}"#;
        let body = Bytes::copy_from_slice(sent.as_bytes());
        let received = Received { body, decoded: true, held: HeldBytes::default() };
        let mut call = parse(RequestKind::Completions, &"r".into(), "application/json", received).unwrap();
        assert!(matches!(call.request.prompt, Prompt::Text(_)));
        call.request.session = Some(SessionKey(7));
        let call = call.without_hand_over().unwrap();
        assert!(matches!(&call.request.prompt, Prompt::TokenIds(ids) if ids[..] == [1, 2]));
        assert_eq!(call.received.body, r#"{ "model":"m","prompt":[1,2],"stream":true}"#);
        assert_eq!(call.request.body.as_ptr(), call.received.body.as_ptr());
        let request = &call.request;
        assert!(request.session == Some(SessionKey(7)) && request.stream && call.received.decoded);
        let before = call.received.body.as_ptr();
        assert_eq!(call.without_hand_over().unwrap().received.body.as_ptr(), before, "nothing left to cut");
    }
}
