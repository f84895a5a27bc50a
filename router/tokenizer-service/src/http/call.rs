//! `/tokenize` and `/detokenize`: read, find who answers, pass on.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use kvasir_core::{SideError, SideRequest};
use kvasir_tokenize::Pool;
use kvasir_tokenize::pool::PoolError;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{Answered, BODY_UNIT, Desk, MOST_BODY_BYTES, reply};
use crate::board::{Backend, NotReady};
use crate::native::{NativeCall, NativeModel};

/// Largest answer of a renderer: ids take up to eight bytes for each byte of the prompt, and their names as much
/// again.
const MOST_ANSWER_BYTES: usize = 16 * MOST_BODY_BYTES;

/// Bodies from this size on are read on the pool.
const LONG_BODY_BYTES: usize = 64 << 10;

/// Longest part of a client's words in an error.
const MOST_SHOWN: usize = 128;

type Failure = (StatusCode, String);

/// A body, with the room that it takes among all bodies. A job on the pool has its share of it: it may outlive the request.
#[derive(Clone)]
struct Held {
    bytes: Bytes,
    _room: Arc<OwnedSemaphorePermit>,
}

#[derive(Deserialize)]
struct Ask<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
}

impl Desk {
    pub(super) async fn serve(
        &self,
        path: &'static str,
        call: NativeCall,
        request: Request<Incoming>,
    ) -> Answered {
        let mut model = None;
        let mut bytes = 0;
        let answered = async {
            let body = self.read(request).await?;
            bytes = body.bytes.len();
            let name = model_of(&body).await?;
            let backend = self.board.backend(&name);
            model = self.board.knows(&name).then(|| name.clone());
            match backend.map_err(|reason| not_ready(&name, &reason))? {
                Backend::Native(native) => self.ask_native(native, call, body).await,
                Backend::Render(port) => self.ask_renderer(port, path, body.bytes.clone()).await,
            }
        };
        let response = answered.await.unwrap_or_else(|(status, text): Failure| reply::error(status, &text));
        Answered { response, model, bytes }
    }

    async fn read(&self, request: Request<Incoming>) -> Result<Held, Failure> {
        let body = request.into_body();
        let too_large =
            || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {MOST_BODY_BYTES} bytes"));
        // Without a length the largest is assumed.
        let announced =
            body.size_hint().upper().map_or(MOST_BODY_BYTES, |size| size.try_into().unwrap_or(usize::MAX));
        if announced > MOST_BODY_BYTES && body.size_hint().exact().is_some() {
            return Err(too_large());
        }
        let units = announced.min(MOST_BODY_BYTES).div_ceil(BODY_UNIT).try_into().unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies)
            .try_acquire_many_owned(units)
            .map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "too many bodies at the same time".to_owned()))?;
        let whole = timeout(self.timeout, Limited::new(body, MOST_BODY_BYTES).collect()).await;
        match whole {
            Ok(Ok(whole)) => Ok(Held { bytes: whole.to_bytes(), _room: Arc::new(room) }),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body cannot be read".to_owned())),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned())),
        }
    }

    async fn ask_native(
        &self,
        native: Arc<NativeModel>,
        call: NativeCall,
        body: Held,
    ) -> Result<Response<Full<Bytes>>, Failure> {
        let work = Pool::process().run_for(body.bytes.len(), move || native.answer(call, &body.bytes));
        match timeout(self.timeout, work).await {
            Ok(Ok(Ok(answer))) => {
                Ok(reply::body(StatusCode::OK, HeaderValue::from_static("application/json"), answer))
            }
            Ok(Ok(Err(refused))) => Err((refused.status, refused.message)),
            Ok(Err(PoolError::Full)) => {
                Err((StatusCode::SERVICE_UNAVAILABLE, "the queue is full".to_owned()))
            }
            Ok(Err(PoolError::Lost)) => {
                Err((StatusCode::INTERNAL_SERVER_ERROR, "the tokenizer failed".to_owned()))
            }
            Err(_) => Err((StatusCode::BAD_GATEWAY, "not done in time".to_owned())),
        }
    }

    /// The body goes on as it came, and status, media type and body of the answer come back.
    async fn ask_renderer(
        &self,
        port: u16,
        path: &'static str,
        body: Bytes,
    ) -> Result<Response<Full<Bytes>>, Failure> {
        let request = SideRequest {
            method: Method::POST,
            url: format!("http://127.0.0.1:{port}{path}"),
            tls: None,
            body,
            timeout: self.timeout,
            max_bytes: MOST_ANSWER_BYTES,
        };
        let answer = self.client.call(request).await.map_err(|error| {
            let reason = match error {
                SideError::Connect(_) | SideError::Bad(_) => "the renderer cannot be reached",
                SideError::Timeout => "the renderer did not answer in time",
                SideError::TooLarge(_) => "the renderer's answer is too large",
            };
            (StatusCode::BAD_GATEWAY, reason.to_owned())
        })?;
        let media_type = answer.headers.get(header::CONTENT_TYPE).cloned();
        let media_type = media_type.unwrap_or(HeaderValue::from_static("application/json"));
        Ok(reply::body(answer.status, media_type, answer.body))
    }
}

/// The model that a body names. The rest of the body is the renderer's to judge.
async fn model_of(body: &Held) -> Result<String, Failure> {
    let read = |body: &Bytes| -> Result<String, Failure> {
        let bad = |text: &str| (StatusCode::BAD_REQUEST, text.to_owned());
        let object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        // A list would do for the struct below.
        if !object {
            return Err(bad("the body is no JSON object"));
        }
        let ask: Ask<'_> = serde_json::from_slice(body)
            .map_err(|_| bad("the body is no JSON object, or model is no text"))?;
        let model = ask.model.unwrap_or_default();
        if model.is_empty() { Err(bad("model is required")) } else { Ok(model.into_owned()) }
    };
    if body.bytes.len() < LONG_BODY_BYTES {
        return read(&body.bytes);
    }
    let body = body.clone();
    match Pool::process().run_for(body.bytes.len(), move || read(&body.bytes)).await {
        Ok(outcome) => outcome,
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

fn not_ready(model: &str, reason: &NotReady) -> Failure {
    let shown: String = model.chars().take(MOST_SHOWN).collect();
    let text = match reason {
        NotReady::Unmapped => format!("model {shown:?} is not served here"),
        NotReady::Loading => format!("model {shown:?} is loading"),
        NotReady::Failed(reason) => format!("model {shown:?} failed: {reason}"),
    };
    (StatusCode::SERVICE_UNAVAILABLE, text)
}
