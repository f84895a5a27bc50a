//! Requests that only an HTTPRoute can know: any method, any path.

use kvasir_core::{ErrorKind, RequestKind, RouterError};
use kvasir_state::{NoRoute, Routed};
use pingora_core::protocols::http::ServerSession;

use crate::head::{Entry, entry_of};
use crate::resolve::{Binding, bind_call, bind_whole, not_yet, promptless, query_of, refused};
use crate::settle::Trail;
use crate::{Gateway, read};

/// Whether a request that is none of ours may have a route.
pub(crate) fn may_be_known(gateway: &Gateway) -> bool {
    gateway.state.in_gateway_mode() || gateway.readiness.lacks_routes()
}

/// Matches the route by the head alone, then reads the body. What becomes an inference call by the route's path is one;
/// anything else goes to an endpoint as it came, chosen by load.
pub(crate) async fn bind(
    gateway: &Gateway,
    session: &mut ServerSession,
    port: u16,
    trail: &mut Trail<'_>,
) -> Result<Binding, RouterError> {
    let head = session.req_header();
    let routed = gateway.state.resolve(&query_of(head, port, None), &mut rand::rng());
    let route = match routed {
        Ok(Routed::To(route)) => route,
        Ok(Routed::Elsewhere(redirect)) => return Ok(Binding::Elsewhere(redirect)),
        Err(NoRoute::NoMatch | NoRoute::NoListener) if gateway.readiness.lacks_routes() => {
            return Err(not_yet());
        }
        // As it would be without any Gateway.
        Err(NoRoute::NoMatch) if head.uri.path().starts_with("/v1/") => {
            return Err(ErrorKind::MethodNotAllowed.into());
        }
        Err(error) => {
            trail.refused(&error, "");
            return Err(refused(&error).into());
        }
    };
    let path = route.path.as_deref().unwrap_or(head.uri.path());
    let kind = match entry_of(&head.method, path) {
        Entry::Inference(kind) if kind != RequestKind::Other => kind,
        _ => {
            let received = read::body(gateway, session).await?;
            let request = promptless(trail, RequestKind::Other, &route.target.index_model);
            return Ok(Binding::Onward(bind_whole(session, request, route, received, None, trail)));
        }
    };
    let call = read::call(gateway, session, kind, trail.request_id()).await?;
    let route = route.asked_for(&call.request.requested_model);
    bind_call(gateway, session, call, route, trail).map(Binding::Onward)
}
