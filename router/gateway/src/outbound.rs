//! The head as it goes to an engine: the client's end-to-end headers, what the route changes, and what only we know.

use http::{HeaderMap, HeaderValue, Method, header};
use kvasir_core::Endpoint;
use kvasir_state::Resolved;
use kvasir_wire::headers::{ConnectionNames, passes_to_engine};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;

use crate::resolve::Bound;
use crate::{Gateway, edits};

/// What of the client's head goes on.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Method.
    pub method: Method,
    /// Path and query, as the route wants them.
    pub path: String,
    /// Headers, unfiltered.
    pub headers: HeaderMap,
    /// Whether the body was decoded.
    pub decoded: bool,
}

impl Outbound {
    pub(crate) fn of(session: &ServerSession, route: &Resolved, decoded: bool) -> Self {
        let head = session.req_header();
        let path = match (&route.path, head.uri.query()) {
            (None, _) => head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            (Some(path), None) => path.clone(),
            (Some(path), Some(query)) => format!("{path}?{query}"),
        };
        Self { method: head.method.clone(), path, headers: head.headers.clone(), decoded }
    }
}

/// The head of a bound request for one endpoint, before a body of so many bytes.
pub(crate) fn header(
    gateway: &Gateway,
    bound: &Bound,
    endpoint: &Endpoint,
    body_bytes: usize,
) -> pingora_core::Result<RequestHeader> {
    let from = &bound.outbound;
    let path = format!("{}{}", endpoint.address.path_prefix, from.path);
    let mut header =
        RequestHeader::build(from.method.clone(), path.as_bytes(), Some(from.headers.len() + 4))?;
    let connection = ConnectionNames::of(&from.headers);
    for (name, value) in &from.headers {
        let passes = passes_to_engine(name, &connection, gateway.headers.forward_credentials)
            && !(from.decoded && *name == header::CONTENT_ENCODING)
            // Answers are read on the side for usage, so they must come plain.
            && *name != header::ACCEPT_ENCODING
            && *name != "x-request-id";
        if passes {
            header.append_header(name.clone(), value.clone())?;
        }
    }
    let edits = bound.route.edits.as_ref();
    if let Some(edits) = edits {
        edits::apply(&edits.request, &mut header)?;
    }
    let host = edits.and_then(|edits| edits.host.clone());
    let host = host.or_else(|| HeaderValue::from_str(&endpoint.address.authority).ok());
    header.insert_header(header::HOST, host.unwrap_or(HeaderValue::from_static("engine")))?;
    if body_bytes > 0 || from.method == Method::POST {
        header.insert_header(header::CONTENT_LENGTH, body_bytes.to_string())?;
    }
    header.insert_header("x-request-id", bound.request.id.as_str())?;
    if endpoint.pin_rank {
        header.insert_header("x-data-parallel-rank", endpoint.id.rank.to_string())?;
    }
    Ok(header)
}
