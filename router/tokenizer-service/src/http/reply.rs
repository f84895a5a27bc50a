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

/// A body of a media type.
pub fn body(status: StatusCode, media_type: HeaderValue, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

/// A value as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    body(status, HeaderValue::from_static("application/json"), Bytes::from(text))
}

/// `{"status": ...}`
pub fn status(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json(code, &Status { status: text })
}

/// `{"error": ...}`. Without `Retry-After`: kthena's router waits as long as it says before it asks an engine.
pub fn error(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json(code, &Error { error: text })
}

/// 405.
pub fn wrong_method(right: &'static str) -> Response<Full<Bytes>> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(right));
    response
}

/// The metrics page.
pub fn metrics(page: String) -> Response<Full<Bytes>> {
    body(
        StatusCode::OK,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
        Bytes::from(page),
    )
}
