//! Answers: the only place with their forms.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

#[derive(Serialize)]
struct Error<'a> {
    error: &'a str,
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'a str,
}

fn body(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    body(status, "application/json", Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

/// `{"status": ...}`
pub(super) fn status(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json(code, &Status { status: text })
}

/// `{"error": ...}`
pub(super) fn error(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json(code, &Error { error: text })
}

/// 405.
pub(super) fn wrong_method(right: &'static str) -> Response<Full<Bytes>> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(right));
    response
}

/// The metrics page.
pub(super) fn metrics(page: String) -> Response<Full<Bytes>> {
    body(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Bytes::from(page))
}
