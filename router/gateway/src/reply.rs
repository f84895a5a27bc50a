//! What the router itself answers: the only file with statuses and client-facing error text.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use kvasir_core::{ErrorKind, Origin, RouterError};
use kvasir_state::Redirect;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use serde_json::json;

use crate::read;
use crate::settle::Trail;

/// The status logged for a client that left before it saw one, as nginx does.
pub(crate) const CLIENT_CLOSED: u16 = 499;

/// One error as the outside sees it.
#[derive(Debug)]
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// OpenAI's error type.
    pub kind: &'static str,
    /// OpenAI's error code, where one fits.
    pub code: Option<&'static str>,
    /// The offending field, where one is known.
    pub param: Option<&'static str>,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// kthena's word for `error_type` and the access log.
    pub label: &'static str,
    /// The outcome metric's word.
    pub outcome: &'static str,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// Sorts an error: the one total mapping from what happened to what is said.
pub fn sort(error: &RouterError) -> Reply {
    if error.origin == Origin::Client { sort_clients(&error.kind) } else { sort_ours(&error.kind) }
}

/// What the client did.
fn sort_clients(kind: &ErrorKind) -> Reply {
    use ErrorKind as K;
    let (status, code, param, label) = match kind {
        K::NoSuchPath => (StatusCode::NOT_FOUND, Some("unknown_url"), None, "request_parsing"),
        K::UnknownRequest => (StatusCode::NOT_FOUND, Some("request_not_found"), None, "request_parsing"),
        K::CrossSite => (StatusCode::FORBIDDEN, Some("cross_site"), None, "request_parsing"),
        K::MethodNotAllowed => {
            (StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed"), None, "request_parsing")
        }
        K::BodyTooLarge { .. } => {
            (StatusCode::PAYLOAD_TOO_LARGE, Some("body_too_large"), None, "request_parsing")
        }
        K::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, Some("body_timeout"), None, "request_parsing"),
        K::UnsupportedEncoding(_) => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, Some("unsupported_encoding"), None, "request_parsing")
        }
        K::UnsupportedMediaType(_) => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, Some("unsupported_media_type"), None, "request_parsing")
        }
        K::UpgradeRequired => {
            (StatusCode::UPGRADE_REQUIRED, Some("upgrade_not_supported"), None, "request_parsing")
        }
        K::ExpectationFailed => (StatusCode::EXPECTATION_FAILED, None, None, "request_parsing"),
        K::ModelNotFound(_) => {
            (StatusCode::NOT_FOUND, Some("model_not_found"), Some("model"), "route_not_found")
        }
        K::UnknownResponse(_) => (
            StatusCode::BAD_REQUEST,
            Some("response_not_found"),
            Some("previous_response_id"),
            "route_not_found",
        ),
        K::ClientGone => {
            let status = StatusCode::from_u16(CLIENT_CLOSED).unwrap_or(StatusCode::BAD_REQUEST);
            (status, None, None, "client_cancelled")
        }
        _ => (StatusCode::BAD_REQUEST, None, None, "request_parsing"),
    };
    let outcome = if *kind == K::ClientGone { "client_cancelled" } else { "client_error" };
    Reply { status, kind: INVALID, code, param, retry_after: None, label, outcome }
}

/// What the router or an engine did.
fn sort_ours(kind: &ErrorKind) -> Reply {
    use ErrorKind as K;
    const SOON: Option<Duration> = Some(Duration::from_secs(1));
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let (status, code, retry_after, label, outcome) = match kind {
        K::FeatureNotAvailable(_) => {
            (unavailable, Some("feature_not_available"), None, "route_not_found", "router_error")
        }
        K::NoEndpoint { retry_after, .. } => {
            (unavailable, Some("no_endpoint"), Some(*retry_after), "pod_discovery", "router_error")
        }
        K::Overloaded { retry_after, .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            Some("overloaded"),
            Some(*retry_after),
            "scheduling",
            "router_error",
        ),
        K::QueueTimeout { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, Some("queue_timeout"), None, "scheduling", "router_error")
        }
        K::QueueFull { retry_after, .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            Some("queue_full"),
            Some(*retry_after),
            "scheduling",
            "router_error",
        ),
        K::BuffersFull => (unavailable, Some("router_overloaded"), SOON, "request_parsing", "router_error"),
        K::ConnectFailed => (unavailable, Some("connect_failed"), SOON, "proxy", "engine_error"),
        K::FirstByteTimeout(_) => {
            (StatusCode::GATEWAY_TIMEOUT, Some("first_byte_timeout"), None, "proxy", "engine_error")
        }
        K::UpstreamClosed => {
            (StatusCode::BAD_GATEWAY, Some("upstream_closed"), None, "proxy", "engine_error")
        }
        K::BadUpstream => (StatusCode::BAD_GATEWAY, Some("bad_upstream"), None, "proxy", "engine_error"),
        K::StreamBroken => (StatusCode::BAD_GATEWAY, Some("stream_broken"), None, "proxy", "stream_broken"),
        K::StreamIdle(_) => {
            (StatusCode::GATEWAY_TIMEOUT, Some("stream_idle"), None, "proxy", "stream_broken")
        }
        K::ShuttingDown => (unavailable, Some("shutting_down"), SOON, "proxy", "router_error"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, None, None, "request_failed", "router_error"),
    };
    Reply { status, kind: SERVER, code, param: None, retry_after, label, outcome }
}

/// The sentence a client reads: what is wrong and what to do.
pub fn sentence(error: &RouterError) -> String {
    use ErrorKind as K;
    match &error.kind {
        K::NoSuchPath => "This path does not exist here; inference is served under /v1/.".into(),
        K::MethodNotAllowed => "This method is not allowed on this path; inference calls are POST.".into(),
        K::BodyTooLarge { limit } => {
            format!("The request body is larger than {limit} bytes (--max-body-bytes of the router).")
        }
        K::UnsupportedEncoding(name) => {
            format!(
                "Content-Encoding `{}` is not supported; send the body plain, gzip or deflate.",
                bounded(name)
            )
        }
        K::UnsupportedMediaType(name) => {
            format!(
                "Content-Type `{}` is not supported; send application/json or multipart/form-data.",
                bounded(name)
            )
        }
        K::UpgradeRequired => {
            "Protocol upgrades (WebSocket) are not supported; use HTTP/1.1 or HTTP/2 requests.".into()
        }
        K::ModelNotFound(name) => {
            format!("The model `{}` does not exist. GET /v1/models lists the models.", bounded(name))
        }
        K::UnknownResponse(id) => format!(
            "The response `{}` is not known to this router (never seen, expired, or held by an endpoint that is gone); \
             send the whole conversation instead.",
            bounded(id)
        ),
        K::Overloaded { filter, .. } => {
            format!("Every endpoint of the model is overloaded (filter {filter}); retry later.")
        }
        K::QueueTimeout { waited, flag } => format!(
            "The request waited {:.1} s for its turn, as long as it may ({flag} of the router); retry later, or send \
             fewer requests at once.",
            waited.as_secs_f64()
        ),
        K::QueueFull { flag, .. } => format!(
            "As many requests wait for their turn as may wait ({flag} of the router); retry later, or send fewer \
             requests at once."
        ),
        K::NoEndpoint { reason, .. } => {
            format!("No endpoint of the model can take the request now: {reason}; retry later.")
        }
        other => {
            let mut text = other.to_string();
            if let Some(first) = text.get(..1).map(str::to_uppercase) {
                text.replace_range(..1, &first);
            }
            if !text.ends_with('.') {
                text.push('.');
            }
            text
        }
    }
}

/// Client text in our sentences is cut, so that an error cannot be made large.
fn bounded(text: &str) -> String {
    const MOST: usize = 200;
    if text.chars().count() > MOST {
        text.chars().take(MOST).chain("...".chars()).collect()
    } else {
        text.to_owned()
    }
}

/// OpenAI's error object.
pub fn body(error: &RouterError) -> Bytes {
    let reply = sort(error);
    let value = json!({"error": {"message": sentence(error), "type": reply.kind, "param": reply.param, "code": reply.code}});
    Bytes::from(value.to_string())
}

/// Answers with an error. The connection is closed afterwards when the request's body was not read to its end.
pub(crate) async fn send_error(
    session: &mut ServerSession,
    error: &RouterError,
    request_id: &str,
) -> pingora_core::Result<()> {
    let reply = sort(error);
    if !session.is_body_done() {
        session.set_keepalive(None);
    }
    let text = body(error);
    let mut header = text_header(reply.status, JSON, text.len(), request_id)?;
    if let Some(wait) = reply.retry_after {
        header.insert_header(http::header::RETRY_AFTER, wait.as_secs().max(1).to_string())?;
    }
    session.write_response_header(Box::new(header)).await?;
    session.write_response_body(text, true).await
}

/// Sends the client elsewhere, as its route wants it.
///
/// # Errors
/// When the client is gone, or the route's words make no header.
pub(crate) async fn redirect(
    session: &mut ServerSession,
    redirect: &Redirect,
    trail: &mut Trail<'_>,
) -> Result<(), RouterError> {
    let header = redirect_header(redirect, trail.request_id().as_str())
        .map_err(|_| ErrorKind::Internal("the route's redirect cannot be written"))?;
    if !session.is_body_done() {
        session.set_keepalive(None);
    }
    trail.redirected(redirect);
    session.write_response_header(Box::new(header)).await.map_err(|_| ErrorKind::ClientGone)?;
    session.finish_body().await.map_err(|_| ErrorKind::ClientGone)?;
    read::let_the_client_finish(session).await;
    Ok(())
}

fn redirect_header(redirect: &Redirect, request_id: &str) -> pingora_core::Result<ResponseHeader> {
    let mut header = ResponseHeader::build(redirect.status, Some(3))?;
    header.insert_header(http::header::LOCATION, redirect.location.as_str())?;
    header.insert_header(http::header::CONTENT_LENGTH, "0")?;
    header.insert_header("x-request-id", request_id)?;
    Ok(header)
}

/// The media type of our own JSON.
const JSON: &str = "application/json; charset=utf-8";

/// Answers with a JSON body.
pub(crate) async fn send_json(
    session: &mut ServerSession,
    status: StatusCode,
    text: Bytes,
    request_id: &str,
) -> pingora_core::Result<()> {
    send(session, status, JSON, text, request_id).await
}

/// Sends a text of this media type.
pub(crate) async fn send(
    session: &mut ServerSession,
    status: StatusCode,
    media: &'static str,
    text: Bytes,
    request_id: &str,
) -> pingora_core::Result<()> {
    session.write_response_header(Box::new(text_header(status, media, text.len(), request_id)?)).await?;
    session.write_response_body(text, true).await
}

fn text_header(
    status: StatusCode,
    media: &'static str,
    length: usize,
    request_id: &str,
) -> pingora_core::Result<ResponseHeader> {
    let mut header = ResponseHeader::build(status, Some(4))?;
    header.insert_header(http::header::CONTENT_TYPE, media)?;
    header.insert_header(http::header::CONTENT_LENGTH, length.to_string())?;
    if !request_id.is_empty() {
        header.insert_header("x-request-id", request_id)?;
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_openai_objects_with_the_right_status() {
        let cases = [
            (ErrorKind::ModelNotFound("x".into()), 404, Some("model_not_found")),
            (ErrorKind::BadBody("`model` must be a string.".into()), 400, None),
            (ErrorKind::BodyTooLarge { limit: 5 }, 413, Some("body_too_large")),
            (ErrorKind::UnsupportedEncoding("br".into()), 415, Some("unsupported_encoding")),
            (ErrorKind::UpgradeRequired, 426, Some("upgrade_not_supported")),
            (
                ErrorKind::Overloaded { filter: "least-request", retry_after: Duration::from_secs(1) },
                429,
                Some("overloaded"),
            ),
            (
                ErrorKind::NoEndpoint { reason: "none is up", retry_after: Duration::from_secs(1) },
                503,
                Some("no_endpoint"),
            ),
            (ErrorKind::FirstByteTimeout(Duration::from_secs(1)), 504, Some("first_byte_timeout")),
            (
                ErrorKind::QueueTimeout { waited: Duration::from_secs(60), flag: "--fairness-queue-timeout" },
                504,
                Some("queue_timeout"),
            ),
            (
                ErrorKind::QueueFull { flag: "--fairness-max-waiting", retry_after: Duration::from_secs(1) },
                429,
                Some("queue_full"),
            ),
            (ErrorKind::UpstreamClosed, 502, Some("upstream_closed")),
            (ErrorKind::UnknownResponse("r".into()), 400, Some("response_not_found")),
        ];
        for (kind, status, code) in cases {
            let error = RouterError::from(kind);
            assert_eq!(sort(&error).status.as_u16(), status, "{error}");
            let value: serde_json::Value = serde_json::from_slice(&body(&error)).unwrap();
            assert_eq!(value["error"]["code"].as_str(), code, "{error}");
            let message = value["error"]["message"].as_str().unwrap();
            assert!(
                message.ends_with('.')
                    && message.chars().next().is_some_and(|c| c.is_uppercase() || c == '`'),
                "{message}"
            );
        }
    }

    #[test]
    fn client_text_is_cut() {
        let error = RouterError::from(ErrorKind::ModelNotFound("x".repeat(100_000)));
        assert!(body(&error).len() < 500);
    }
}
