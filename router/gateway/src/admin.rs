//! The admin listener: explain, dry runs, endpoints, draining by hand. On loopback unless the operator says otherwise.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use kvasir_core::{ErrorKind, RequestId, RequestKind, RouterError};
use kvasir_state::{NoRoute, RouteQuery, Routed};
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use serde::Serialize;
use serde_json::json;

use crate::Gateway;
use crate::read::Received;
use crate::{explain, place, read, reply, resolve};

/// Records that `GET /explain` lists.
const LISTED: usize = 100;

/// What the index page says.
const PATHS: &str = "GET  /explain                  the last decisions\n\
                     GET  /explain/{request-id}     one decision, with how it turned out\n\
                     POST /explain?path=PATH        dry run: where would this body go, and why; in Gateway mode\n\
                                               also port=PORT and host=HOST, and headers count\n\
                     GET  /debug/endpoints          endpoints with load and health\n\
                     GET  /debug/index              what is known of every endpoint's cache\n\
                     GET  /debug/tokens             how each model is tokenized\n\
                     GET  /debug/coordination       what is shared with other replicas through Redis\n\
                     GET  /debug/kubernetes         in a cluster: what is watched, the lease, the webhook, the document\n\
                     GET  /debug/config_dump/KIND   in a cluster: objects as they were last seen, and\n\
                                               /debug/config_dump/namespaces/NAMESPACE/KIND/NAME\n\
                     POST /endpoints/drain?endpoint=ID|URL     take an endpoint out of service\n\
                     POST /endpoints/undrain?endpoint=ID|URL   put it back\n";

/// The admin application.
pub(crate) struct Admin {
    gateway: Arc<Gateway>,
}

impl Admin {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }

    async fn route(&self, session: &mut ServerSession) -> Result<Response<Vec<u8>>, RouterError> {
        let head = session.req_header();
        // A page in a browser on this machine must not be able to drain endpoints.
        if head.method != Method::GET && head.headers.contains_key(header::ORIGIN) {
            return Err(ErrorKind::CrossSite.into());
        }
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let query = head.uri.query().unwrap_or_default().to_owned();
        let gateway = &self.gateway;
        match (&method, path.as_str()) {
            (&Method::GET, "/") => Ok(text(StatusCode::OK, PATHS)),
            (&Method::GET, "/healthz") => Ok(json_answer(StatusCode::OK, &json!({"message": "ok"}))),
            (&Method::GET, "/explain") => Ok(json_answer(StatusCode::OK, &gateway.ring.latest(LISTED))),
            (&Method::POST, "/explain") => self.dry_run(session, &query).await,
            (&Method::GET, "/debug/endpoints") => Ok(json_answer(StatusCode::OK, &gateway.state.endpoints())),
            (&Method::GET, "/debug/index") => Ok(json_answer(StatusCode::OK, &owners(gateway))),
            (&Method::GET, "/debug/tokens") => Ok(json_answer(StatusCode::OK, &gateway.tokens.status())),
            (&Method::GET, "/debug/coordination") => {
                Ok(json_answer(StatusCode::OK, &gateway.coordination.debug()))
            }
            (&Method::POST, "/endpoints/drain") => self.drain(&query, true),
            (&Method::POST, "/endpoints/undrain") => self.drain(&query, false),
            (&Method::GET, other) => self.show(other),
            _ => Err(ErrorKind::NoSuchPath.into()),
        }
    }

    /// One decision, or what another room shows.
    fn show(&self, path: &str) -> Result<Response<Vec<u8>>, RouterError> {
        let decision = path.strip_prefix("/explain/").and_then(|id| self.gateway.ring.get(id));
        if let Some(record) = decision {
            return Ok(json_answer(StatusCode::OK, &record));
        }
        let shown = path.strip_prefix("/debug/").and_then(|path| self.gateway.exhibits.debug(path));
        match shown {
            Some(Ok(value)) => Ok(json_answer(StatusCode::OK, &value)),
            Some(Err(missing)) => Ok(json_answer(StatusCode::NOT_FOUND, &json!({"error": missing}))),
            None => Err(ErrorKind::NoSuchPath.into()),
        }
    }

    /// Decides for a body without sending it anywhere.
    async fn dry_run(
        &self,
        session: &mut ServerSession,
        query: &str,
    ) -> Result<Response<Vec<u8>>, RouterError> {
        let received = read::body(&self.gateway, session).await?;
        let kind = match parameter(query, "path").as_deref() {
            None => guess(&received.body),
            Some("/v1/chat/completions") => RequestKind::Chat,
            Some("/v1/completions") => RequestKind::Completions,
            Some("/v1/responses") => RequestKind::Responses,
            Some("/v1/messages") => RequestKind::Messages,
            Some("/v1/embeddings") => RequestKind::Embeddings,
            Some(_) => RequestKind::Other,
        };
        let ports = || self.gateway.state.gateway_ports()?.first().copied();
        let route = RouteQuery {
            port: parameter(query, "port").and_then(|port| port.parse().ok()).or_else(ports).unwrap_or(0),
            host: &parameter(query, "host").unwrap_or_default(),
            method: &Method::POST,
            path: &parameter(query, "path").unwrap_or_else(|| kind.path_label().to_owned()),
            query: None,
            headers: &session.req_header().headers,
            model: None,
        };
        let record = dry_run(&self.gateway, kind, received, route).await?;
        Ok(json_answer(StatusCode::OK, &record))
    }

    fn drain(&self, query: &str, draining: bool) -> Result<Response<Vec<u8>>, RouterError> {
        let Some(name) = parameter(query, "endpoint") else {
            return Err(ErrorKind::BadBody(
                "`endpoint` is missing; add ?endpoint=ID or ?endpoint=URL.".into(),
            )
            .into());
        };
        if self.gateway.state.drain(&name, draining) {
            tracing::info!(endpoint = %name, draining, "endpoint drained by hand");
            Ok(json_answer(StatusCode::OK, &json!({"endpoint": name, "draining": draining})))
        } else {
            let text = "`endpoint` names no endpoint; GET /debug/endpoints lists them.";
            Err(ErrorKind::BadBody(text.into()).into())
        }
    }
}

async fn dry_run(
    gateway: &Gateway,
    kind: RequestKind,
    received: Received,
    query: RouteQuery<'_>,
) -> Result<kvasir_core::DecisionRecord, RouterError> {
    let id = RequestId::from(format!("dry-run-{}", uuid::Uuid::new_v4()));
    let mut call = read::parse(kind, &id, "application/json", received)?;
    let requested = call.request.requested_model.clone();
    let query = RouteQuery { model: Some(&requested), ..query };
    let route = match gateway.state.resolve(&query, &mut rand::rng()) {
        Ok(Routed::To(route)) => route,
        Ok(Routed::Elsewhere(redirect)) => {
            let text =
                format!("The route answers with a redirect to {}; nothing is placed.", redirect.location);
            return Err(ErrorKind::BadBody(text).into());
        }
        Err(NoRoute::NoMatch) => return Err(ErrorKind::ModelNotFound(requested.to_string()).into()),
        Err(error) => return Err(resolve::refused(&error).into()),
    };
    if route.target.disaggregation.is_some() {
        call = call.without_hand_over()?;
    }
    call.request.model = route.target.index_model.clone();
    call.request.adapter.clone_from(&route.adapter);
    let placed = place::choose(gateway, &call.request, &route).await?;
    let mut record = explain::begin(&id, &call.request, 0);
    explain::fill(&mut record, &placed);
    record.predicted_cached_tokens =
        placed.decision.picks.first().map(|pick| placed.cycle.reusable_tokens(pick.index));
    Ok(record)
}

/// A body with `messages` is a chat unless the path says otherwise.
fn guess(body: &Bytes) -> RequestKind {
    let chat =
        serde_json::from_slice::<serde_json::Value>(body).is_ok_and(|value| value.get("messages").is_some());
    if chat { RequestKind::Chat } else { RequestKind::Completions }
}

/// What the index knows of each endpoint, by name.
#[derive(Serialize)]
struct Owner {
    endpoint: Option<kvasir_core::EndpointId>,
    #[serde(flatten)]
    stats: kvasir_kvcache::OwnerStats,
}

fn owners(gateway: &Gateway) -> Vec<Owner> {
    let named = |stats: kvasir_kvcache::OwnerStats| Owner {
        endpoint: gateway.state.endpoint_by_slot(stats.slot).map(|endpoint| endpoint.id.clone()),
        stats,
    };
    gateway.index.stats().into_iter().map(named).collect()
}

/// One query parameter, percent-decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| crate::head::decode(value))
    })
}

fn text(status: StatusCode, body: &str) -> Response<Vec<u8>> {
    answer(status, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

fn json_answer(status: StatusCode, value: &(impl Serialize + ?Sized)) -> Response<Vec<u8>> {
    answer(status, "application/json; charset=utf-8", serde_json::to_vec(value).unwrap_or_default())
}

pub(crate) fn answer(status: StatusCode, media: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let length = header::HeaderValue::from(response.body().len());
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        match self.route(session).await {
            Ok(response) => response,
            Err(error) => answer(
                reply::sort(&error).status,
                "application/json; charset=utf-8",
                reply::body(&error).to_vec(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(parameter("a=1&endpoint=http%3A%2F%2Fx%3A1", "endpoint").as_deref(), Some("http://x:1"));
        assert_eq!(parameter("a", "a"), None);
    }

    #[test]
    fn a_body_with_messages_is_a_chat() {
        assert_eq!(guess(&Bytes::from_static(b"{\"messages\":[]}")), RequestKind::Chat);
        assert_eq!(guess(&Bytes::from_static(b"{\"prompt\":\"\"}")), RequestKind::Completions);
        assert_eq!(guess(&Bytes::from_static(b"{")), RequestKind::Completions);
    }
}
