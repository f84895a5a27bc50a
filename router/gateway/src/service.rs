//! Adapts Pingora's HTTP application trait to the request's path; holds no logic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::ErrorType;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;

use crate::Gateway;
use crate::lifecycle::{self, Ending};
use crate::timers;

/// A listener of ours, as its requests need to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Door {
    /// The port that requests come in by.
    pub port: u16,
    /// Whether this is the router's own port, where `/healthz` and `/readyz` are; elsewhere they are paths like any other.
    pub is_own: bool,
    /// Whether `GET /metrics` is answered here.
    pub shows_metrics: bool,
}

/// The inference listeners' application.
pub(crate) struct Service {
    gateway: Arc<Gateway>,
    door: Door,
    options: HttpServerOptions,
}

impl Service {
    pub(crate) fn new(gateway: Arc<Gateway>, door: Door) -> Self {
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        options.h2_idle_timeout = Some(gateway.limits.keepalive_timeout);
        timers::forget_with_what_they_guard();
        Self { gateway, door, options }
    }

    /// From opening (or the last answer) to a complete header: the idle time allowed, then the header's own.
    fn head_deadline(&self) -> Duration {
        self.gateway.limits.keepalive_timeout + self.gateway.limits.header_timeout
    }
}

#[async_trait]
impl HttpServerApp for Service {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        session.set_read_timeout(Some(self.gateway.limits.header_timeout));
        match tokio::time::timeout(self.head_deadline(), session.read_request()).await {
            Ok(Ok(true)) => {}
            Ok(Err(error)) if *error.etype() == ErrorType::InvalidHTTPHeader => {
                let _ = session.respond_error(400).await;
                return None;
            }
            // Closed between requests, too slow, or no HTTP at all: there is nobody to answer.
            _ => return None,
        }
        let _inside = self.gateway.readiness.enter();
        let _active = Active::enter(&self.gateway);
        // Of two lengths one is a lie, perhaps told to hide a request behind this one (RFC 9112 6.1): nothing after it
        // is read.
        let suspicious = has_two_lengths(&session);
        // HTTP/1.0 clients mean to close unless they say otherwise; nobody needs more of them.
        let old = session.req_header().version == http::Version::HTTP_10;
        let draining = suspicious || old || *shutdown.borrow() || self.gateway.readiness.is_draining();
        // Pingora reads 0 as "without end".
        let idle = self.gateway.limits.keepalive_timeout.as_secs().max(1);
        session.set_keepalive((!draining).then_some(idle));
        session.set_pipelining_enabled(!suspicious);
        let ending = lifecycle::serve(&self.gateway, &mut session, self.door).await;
        if ending == Ending::Cut {
            session.shutdown().await;
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

/// Counts a request in the `active` gauge, also when its task panics.
struct Active<'g>(&'g Gateway);

impl<'g> Active<'g> {
    fn enter(gateway: &'g Gateway) -> Self {
        gateway.metrics.active.inc();
        Self(gateway)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.metrics.active.dec();
    }
}

/// Whether the request came with both `Transfer-Encoding` and `Content-Length`. Pingora follows the former and drops the
/// latter, so the head is looked at as it came.
fn has_two_lengths(session: &ServerSession) -> bool {
    if session.is_http2() || session.get_header(http::header::TRANSFER_ENCODING).is_none() {
        return false;
    }
    let raw = session.to_h1_raw();
    raw.split(|byte| *byte == b'\n').any(|line| {
        line.split(|byte| *byte == b':')
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"content-length"))
    })
}
