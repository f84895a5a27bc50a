//! Errors in vLLM's shape.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::body::{ReplyBody, json as json_response};
use crate::tokenize::EncodeError;

/// Why a request is not served.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
    param: Option<&'static str>,
    retry_after: Option<u32>,
    /// It breaks a rule of the hand-over between prefill and decode.
    breaks_rule: bool,
    closes: bool,
    /// A path the server does not know: FastAPI's own shape.
    unknown_path: bool,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            retry_after: None,
            breaks_rule: false,
            closes: false,
            unknown_path: false,
        }
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400 for a field that breaks the rules between prefill and decode.
    pub(crate) fn field(name: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(name), breaks_rule: true, ..Self::bad_request(message) }
    }

    /// The text, if such a rule is broken.
    pub(crate) fn broken_rule(&self) -> Option<&str> {
        self.breaks_rule.then_some(self.message.as_str())
    }

    /// 400 for a body that is not what the path takes. The text does not repeat the body.
    pub(crate) fn malformed(error: &serde_json::Error) -> Self {
        Self::bad_request(format!(
            "the body is not a valid request: {:?} at line {} column {}",
            error.classify(),
            error.line(),
            error.column()
        ))
    }

    /// 404 for a model that is not served.
    pub(crate) fn unknown_model(name: &str) -> Self {
        let mut failure = Self::new(StatusCode::NOT_FOUND, format!("The model `{name}` does not exist."));
        failure.param = Some("model");
        failure
    }

    /// 404 for a path.
    pub(crate) fn no_such_path() -> Self {
        let mut failure = Self::new(StatusCode::NOT_FOUND, "Not Found");
        failure.unknown_path = true;
        failure
    }

    /// 503 of `--max-num-queued-reqs`.
    pub(crate) fn busy() -> Self {
        let mut failure = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The engine is currently busy and cannot take more requests. Please try again later.",
        );
        failure.closes = true;
        failure
    }

    /// 429 or 503 with `Retry-After`.
    pub(crate) fn busy_with_retry_after(status: StatusCode, seconds: u32) -> Self {
        let mut failure = Self::new(status, "too many requests, try again later");
        failure.retry_after = Some(seconds);
        failure
    }

    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        let body = if self.unknown_path {
            json!({ "detail": self.message })
        } else {
            json!({"error": {
                "message": self.message,
                "type": kind_of(self.status),
                "param": self.param,
                "code": self.status.as_u16(),
            }})
        };
        let mut response = json_response(self.status, body.to_string());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Self {
        Self::bad_request(error.to_string())
    }
}

fn kind_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequestError",
        StatusCode::NOT_FOUND => "NotFoundError",
        StatusCode::TOO_MANY_REQUESTS => "RateLimitError",
        StatusCode::SERVICE_UNAVAILABLE => "Service Unavailable",
        StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
        _ => "InternalServerError",
    }
}
