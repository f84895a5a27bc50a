//! From the client's model name to a route, and from the body as it came to the body as it goes out.

use bytes::Bytes;
use http::HeaderMap;
use kvasir_core::{EndpointId, ErrorKind, InferenceRequest, RequestKind, RouterError};
use pingora_core::protocols::http::ServerSession;

use crate::Gateway;
use crate::read::{Call, Found, Received};
use crate::settle::Trail;

/// A request bound to its model, ready to be placed and sent.
#[derive(Debug)]
pub(crate) struct Bound {
    /// With `model` resolved to the engine's served name.
    pub request: InferenceRequest,
    /// Method, path and query, headers as the client sent them.
    pub outbound: Outbound,
    /// The body as it goes out.
    pub body: Bytes,
    /// Whether usage was asked for on the client's behalf and must be taken out of the stream again.
    pub hide_usage: bool,
    /// The only endpoint that may take it (stored responses).
    pub pinned: Option<EndpointId>,
    /// Keeps the byte budget until the request ends.
    pub received: Received,
}

/// What of the client's head goes on.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Method.
    pub method: http::Method,
    /// Path and query.
    pub path: String,
    /// Headers, unfiltered.
    pub headers: HeaderMap,
    /// Whether the body was decoded.
    pub decoded: bool,
}

impl Outbound {
    fn of(session: &ServerSession, decoded: bool) -> Self {
        let head = session.req_header();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Self { method: head.method.clone(), path, headers: head.headers.clone(), decoded }
    }
}

/// Matches the route and rewrites what must differ; 404 for an unknown model.
pub(crate) fn bind(
    gateway: &Gateway,
    session: &ServerSession,
    mut call: Call,
    trail: &mut Trail<'_>,
) -> Result<Bound, RouterError> {
    let requested = call.request.requested_model.clone();
    let Some(route) = gateway.state.resolve(&requested) else {
        return Err(ErrorKind::ModelNotFound(requested.to_string()).into());
    };
    call.request.model = route.served.clone();
    call.request.adapter = route.adapter.clone();
    trail.bound(&call.request, route.rewrite.as_deref());
    let mut pinned = None;
    let mut hide_usage = false;
    let body = match &call.found {
        Found::Json(scan) => {
            if let Some(previous) = &scan.previous_response_id {
                let holder = gateway.responses.holder(previous, gateway.clock.now());
                pinned = Some(holder.ok_or_else(|| ErrorKind::UnknownResponse(previous.clone()))?);
            }
            hide_usage = scan.lacks_usage(call.request.kind);
            kvasir_wire::rewrite(&call.received.body, scan, route.rewrite.as_deref(), hide_usage)
        }
        Found::Form(form) => match route.rewrite.as_deref() {
            Some(served) => kvasir_wire::rewrite_multipart(&call.received.body, form, served),
            None => call.received.body.clone(),
        },
    };
    let outbound = Outbound::of(session, call.received.decoded);
    Ok(Bound { request: call.request, outbound, body, hide_usage, pinned, received: call.received })
}

/// Binds a request about a stored response to the endpoint that holds it.
pub(crate) fn bind_stored(
    gateway: &Gateway,
    session: &ServerSession,
    id: &str,
    received: Received,
    trail: &mut Trail<'_>,
) -> Result<Bound, RouterError> {
    let holder = gateway
        .responses
        .holder(id, gateway.clock.now())
        .ok_or_else(|| ErrorKind::UnknownResponse(id.to_owned()))?;
    let endpoint =
        gateway.state.endpoint(&holder).ok_or_else(|| ErrorKind::UnknownResponse(id.to_owned()))?;
    let request = InferenceRequest {
        id: trail.request_id().clone(),
        kind: RequestKind::Responses,
        requested_model: endpoint.model.as_str().into(),
        model: endpoint.model.clone(),
        adapter: None,
        stream: false,
        prompt: kvasir_core::Prompt::None,
        cache_salt: None,
        skips_cache: true,
        max_tokens: None,
        body: Bytes::new(),
    };
    trail.bound(&request, None);
    Ok(Bound {
        request,
        outbound: Outbound::of(session, received.decoded),
        body: received.body.clone(),
        hide_usage: false,
        pinned: Some(holder),
        received,
    })
}
