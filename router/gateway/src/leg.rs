//! One exchange with one engine, on Pingora's connector: pooled connections, whole bodies, replayable at any size.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{Endpoint, UpstreamTls};
use kvasir_settings::resolved::Limits;
use pingora_core::ErrorType;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::{RequestHeader, ResponseHeader};
use tokio::time::{Instant, timeout, timeout_at};

use crate::dns::Names;

/// Idle connections are dropped after this: uvicorn, vLLM's server, closes its side after 5 s, and a request sent
/// into that close would have to be retried.
const IDLE: Duration = Duration::from_secs(4);

/// How much longer an engine that refused the rest of a body may take to say why.
const EARLY_ANSWER: Duration = Duration::from_secs(1);

/// The pool of connections to engines.
pub struct Connections {
    connector: Arc<Connector>,
    names: Names,
    connect: Duration,
    first_byte: Duration,
    idle: Duration,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("connect", &self.connect).finish_non_exhaustive()
    }
}

/// A session, whether it comes from the pool, and the key it is released under.
type Connected = (HttpSession, bool, HttpPeer);

/// Why a leg gave no answer.
#[derive(Debug)]
pub(crate) enum LegError {
    /// Nothing was sent: no connection.
    Connect,
    /// No answer in time.
    FirstByte,
    /// The connection died after the request had gone out; `reused` when it had been idle in the pool before, so
    /// that the engine may never have seen the request.
    Died {
        /// From the pool?
        reused: bool,
    },
    /// What came is no HTTP.
    Garbage,
    /// The answer broke off.
    Broken,
    /// The answer paused for too long.
    Idle,
}

/// An answer whose header is here; its body is read with [`Leg::chunk`].
pub(crate) struct Leg {
    session: HttpSession,
    peer: HttpPeer,
    connector: Arc<Connector>,
    idle: Duration,
    first_chunk_seen: bool,
}

impl Connections {
    /// An empty pool.
    pub fn new(limits: &Limits, endpoints: usize) -> Self {
        let pool = limits.pool_size.saturating_mul(endpoints.max(1)).clamp(16, 65_536);
        Self {
            connector: Arc::new(Connector::new(Some(ConnectorOptions::new(pool)))),
            names: Names::default(),
            connect: limits.connect_timeout,
            first_byte: limits.first_byte_timeout,
            idle: limits.stream_idle_timeout,
        }
    }

    /// Sends one request and waits for the answer's header. `limit` is from the start of connecting to there; `None`
    /// leaves each step its own. With `fresh`, no pooled connection is used.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        limit: Option<Duration>,
        header: RequestHeader,
        body: Bytes,
        fresh: bool,
    ) -> Result<Leg, LegError> {
        let Some(limit) = limit else {
            let connected = self.connected(endpoint, self.connect, fresh).await?;
            return self.exchange(connected, self.first_byte, header, body).await;
        };
        let end = Instant::now() + limit;
        let connecting = self.connected(endpoint, self.connect.min(limit), fresh);
        let connected = timeout_at(end, connecting).await.unwrap_or(Err(LegError::Connect))?;
        let exchange = self.exchange(connected, limit, header, body);
        timeout_at(end, exchange).await.unwrap_or(Err(LegError::FirstByte))
    }

    /// Writes the request and reads up to the answer's header, with at most `patience` between two pieces of either.
    async fn exchange(
        &self,
        (mut session, reused, peer): Connected,
        patience: Duration,
        header: RequestHeader,
        body: Bytes,
    ) -> Result<Leg, LegError> {
        session.set_write_timeout(Some(patience));
        session.set_read_timeout(Some(patience));
        let sent = write_request(&mut session, header, body).await;
        if sent.is_err() {
            // An engine may refuse a body half-way and say why; that answer is worth a short wait.
            session.set_read_timeout(Some(EARLY_ANSWER));
        }
        match read_header(&mut session).await {
            Ok(()) => {
                session.set_read_timeout(Some(self.first_byte));
                Ok(Leg {
                    session,
                    peer,
                    connector: Arc::clone(&self.connector),
                    idle: self.idle,
                    first_chunk_seen: false,
                })
            }
            Err(_) if sent.is_err() => Err(LegError::Died { reused }),
            Err(error) => Err(match error.etype() {
                ErrorType::ReadTimedout => LegError::FirstByte,
                ErrorType::InvalidHTTPHeader | ErrorType::InternalError => LegError::Garbage,
                _ => LegError::Died { reused },
            }),
        }
    }
}

impl Connections {
    /// A session at the first of the endpoint's addresses where somebody listens.
    async fn connected(
        &self,
        endpoint: &Endpoint,
        limit: Duration,
        fresh: bool,
    ) -> Result<Connected, LegError> {
        let sockets = match timeout(limit, self.names.resolve(&endpoint.address)).await {
            Ok(Ok(sockets)) => sockets,
            Ok(Err(_)) | Err(_) => return Err(LegError::Connect),
        };
        for socket in sockets {
            if let Some(connected) = self.session(endpoint, socket, limit, fresh).await {
                return Ok(connected);
            }
        }
        Err(LegError::Connect)
    }

    /// A session at one address.
    async fn session(
        &self,
        endpoint: &Endpoint,
        socket: SocketAddr,
        limit: Duration,
        fresh: bool,
    ) -> Option<Connected> {
        let tls = endpoint.address.tls.as_ref();
        let name = match tls {
            None => String::new(),
            Some(UpstreamTls::Verified(name)) => name.to_string(),
            Some(UpstreamTls::Unverified) => endpoint.address.host.to_string(),
        };
        let mut peer = HttpPeer::new(socket, tls.is_some(), name);
        peer.options.verify_cert = matches!(tls, Some(UpstreamTls::Verified(_)));
        peer.options.connection_timeout = Some(limit);
        peer.options.total_connection_timeout = Some(limit);
        peer.options.idle_timeout = Some(IDLE);
        let connected = if fresh {
            // Another group key is another pool, so that this connection is new; it is released to the common one.
            let mut apart = peer.clone();
            apart.group_key = u64::MAX;
            self.connector.get_http_session(&apart).await
        } else {
            self.connector.get_http_session(&peer).await
        };
        connected
            .inspect_err(|error| tracing::debug!(endpoint = %endpoint.id, %socket, %error, "no connection"))
            .ok()
            .map(|(session, reused)| (session, reused, peer))
    }
}

async fn write_request(
    session: &mut HttpSession,
    header: RequestHeader,
    body: Bytes,
) -> pingora_core::Result<()> {
    session.write_request_header(Box::new(header)).await?;
    if !body.is_empty() {
        session.write_request_body(body, true).await?;
    }
    session.finish_request_body().await
}

/// Reads up to the final header; informational ones (100, 103) are dropped.
async fn read_header(session: &mut HttpSession) -> pingora_core::Result<()> {
    loop {
        session.read_response_header().await?;
        // No header after a good read does not happen; should it, the caller finds none and calls it garbage.
        if session.response_header().is_none_or(|header| !header.status.is_informational()) {
            return Ok(());
        }
    }
}

impl Leg {
    /// The answer's header.
    pub(crate) fn header(&self) -> Option<&ResponseHeader> {
        self.session.response_header()
    }

    /// The next piece of the body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, LegError> {
        match self.session.read_response_body().await {
            Ok(Some(chunk)) => {
                if !self.first_chunk_seen {
                    self.first_chunk_seen = true;
                    self.session.set_read_timeout(Some(self.idle));
                }
                Ok(Some(chunk))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(match error.etype() {
                ErrorType::ReadTimedout if self.first_chunk_seen => LegError::Idle,
                ErrorType::ReadTimedout => LegError::FirstByte,
                _ => LegError::Broken,
            }),
        }
    }

    /// Gives the connection back to the pool. Only after the body was read to its end.
    pub(crate) async fn release(self) {
        self.connector.release_http_session(self.session, &self.peer, Some(IDLE)).await;
    }
}

impl std::fmt::Debug for Leg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leg").field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
