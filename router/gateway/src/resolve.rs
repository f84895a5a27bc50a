//! From a request to its route, and from the body as it came to the body as it goes out.

use bytes::Bytes;
use http::header;
use kvasir_core::{EndpointId, ErrorKind, InferenceRequest, ModelName, RequestKind, RouterError};
use kvasir_state::plan::TargetKind;
use kvasir_state::{NoRoute, Redirect, Resolved, RouteQuery, Routed};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;

use crate::Gateway;
use crate::outbound::Outbound;
use crate::place::RETRY_AFTER;
use crate::read::{Call, Found, Received};
use crate::settle::Trail;

/// A request bound to its route, ready to be placed and sent.
#[derive(Debug)]
pub(crate) struct Bound {
    /// With `model` resolved to the name that blocks and tokenizers are filed under.
    pub request: InferenceRequest,
    /// Where it goes.
    pub route: Resolved,
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

/// What a route makes of a request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every request is the large one, and a box would be its own cost"
)]
pub(crate) enum Binding {
    /// It goes to an endpoint.
    Onward(Bound),
    /// The client is sent elsewhere.
    Elsewhere(Redirect),
}

/// Matches the route and rewrites what must differ; 404 for an unknown model.
pub(crate) fn bind(
    gateway: &Gateway,
    session: &ServerSession,
    port: u16,
    call: Call,
    trail: &mut Trail<'_>,
) -> Result<Binding, RouterError> {
    let query = query_of(session.req_header(), port, Some(&call.request.requested_model));
    match gateway.state.resolve(&query, &mut rand::rng()) {
        Ok(Routed::To(route)) => bind_call(gateway, session, call, route, trail).map(Binding::Onward),
        Ok(Routed::Elsewhere(redirect)) => Ok(Binding::Elsewhere(redirect)),
        Err(NoRoute::NoMatch | NoRoute::NoListener) if gateway.readiness.lacks_routes() => Err(not_yet()),
        Err(NoRoute::NoMatch) => {
            Err(ErrorKind::ModelNotFound(call.request.requested_model.to_string()).into())
        }
        Err(error) => {
            trail.refused(&error, &call.request.requested_model);
            Err(refused(&error).into())
        }
    }
}

/// Binds a parsed body to its route.
pub(crate) fn bind_call(
    gateway: &Gateway,
    session: &ServerSession,
    mut call: Call,
    route: Resolved,
    trail: &mut Trail<'_>,
) -> Result<Bound, RouterError> {
    if route.target.disaggregation.is_some() {
        call = call.without_hand_over()?;
    }
    call.request.model = route.target.index_model.clone();
    call.request.adapter.clone_from(&route.adapter);
    trail.bound(&call.request, &route);
    let mut pinned = None;
    let mut hide_usage = false;
    let body = match &call.found {
        Found::Json(scan) => {
            if let Some(previous) = &scan.previous_response_id {
                pinned = Some(holder_of(gateway, previous)?);
            }
            hide_usage = scan.lacks_usage(call.request.kind);
            kvasir_wire::rewrite(&call.received.body, scan, route.rewrite(), hide_usage)
        }
        Found::Form(form) => match route.rewrite() {
            Some(served) => kvasir_wire::rewrite_multipart(&call.received.body, form, served),
            None => call.received.body.clone(),
        },
    };
    let outbound = Outbound::of(session, &route, call.received.decoded);
    Ok(Bound { request: call.request, route, outbound, body, hide_usage, pinned, received: call.received })
}

/// The endpoint that holds a stored response. A pod out of service, which it is when it terminates, gets no requests; the
/// client is not told that the response is unknown, since the pod may come back.
fn holder_of(gateway: &Gateway, id: &str) -> Result<EndpointId, RouterError> {
    let unknown = || ErrorKind::UnknownResponse(id.to_owned());
    let holder = gateway.responses.holder(id, gateway.clock.now()).ok_or_else(unknown)?;
    if gateway.state.endpoint(&holder).is_some() && !gateway.state.is_ready(&holder) {
        let reason = "the endpoint that holds the response is not in service";
        return Err(ErrorKind::NoEndpoint { reason, retry_after: RETRY_AFTER }.into());
    }
    Ok(holder)
}

/// Binds a request about a stored response to the endpoint that holds it.
pub(crate) fn bind_stored(
    gateway: &Gateway,
    session: &ServerSession,
    id: &str,
    received: Received,
    trail: &mut Trail<'_>,
) -> Result<Binding, RouterError> {
    let unknown = || ErrorKind::UnknownResponse(id.to_owned());
    let holder = holder_of(gateway, id)?;
    let route = gateway.state.resolve_endpoint(&holder).ok_or_else(unknown)?;
    let request = promptless(trail, RequestKind::Responses, &route.target.index_model);
    Ok(Binding::Onward(bind_whole(session, request, route, received, Some(holder), trail)))
}

/// Binds a request whose body goes out as it came.
pub(crate) fn bind_whole(
    session: &ServerSession,
    request: InferenceRequest,
    route: Resolved,
    received: Received,
    pinned: Option<EndpointId>,
    trail: &mut Trail<'_>,
) -> Bound {
    trail.bound(&request, &route);
    let outbound = Outbound::of(session, &route, received.decoded);
    Bound { request, route, outbound, body: received.body.clone(), hide_usage: false, pinned, received }
}

/// A request that names no model and has no prompt.
pub(crate) fn promptless(trail: &Trail<'_>, kind: RequestKind, model: &ModelName) -> InferenceRequest {
    InferenceRequest {
        id: trail.request_id().clone(),
        kind,
        requested_model: model.as_str().into(),
        model: model.clone(),
        adapter: None,
        stream: false,
        prompt: kvasir_core::Prompt::None,
        cache_salt: None,
        skips_cache: true,
        max_tokens: None,
        session: None,
        body: Bytes::new(),
    }
}

/// What of a request's head decides its route.
pub(crate) fn query_of<'r>(head: &'r RequestHeader, port: u16, model: Option<&'r str>) -> RouteQuery<'r> {
    // HTTP/2 names the host in the target, HTTP/1 in a header.
    let authority = || head.uri.authority().map(http::uri::Authority::as_str);
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    RouteQuery {
        port,
        host: host.or_else(authority).unwrap_or_default(),
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        model,
    }
}

/// What a client is told that comes before the routes do.
pub(crate) fn not_yet() -> RouterError {
    ErrorKind::NoEndpoint { reason: "the routes are not known yet", retry_after: RETRY_AFTER }.into()
}

/// What a client is told where a route matched and leads nowhere, or where nothing listens.
pub(crate) fn refused(error: &NoRoute) -> ErrorKind {
    let reason = match error {
        NoRoute::NoListener | NoRoute::NoMatch => return ErrorKind::NoSuchPath,
        NoRoute::Refused { what, .. } => return ErrorKind::FeatureNotAvailable(what),
        NoRoute::NoTarget { kind: TargetKind::InferencePool, .. } => {
            "the InferencePool of the matched route does not exist"
        }
        NoRoute::NoTarget { .. } => "the ModelServer of the matched route does not exist",
        NoRoute::NoBackend { .. } => "the matched route has no backend",
    };
    ErrorKind::NoEndpoint { reason, retry_after: RETRY_AFTER }
}
