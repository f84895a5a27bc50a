//! Adapts Pingora's HTTP application trait to the request's path; holds no logic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;

use crate::Gateway;
use crate::lifecycle::{self, Ending};

/// The inference listener's application.
pub(crate) struct Service {
    gateway: Arc<Gateway>,
    options: HttpServerOptions,
}

impl Service {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        options.h2_idle_timeout = Some(gateway.limits.keepalive_timeout);
        Self { gateway, options }
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
            // Closed between requests, too slow, or no HTTP: there is nobody to answer.
            _ => return None,
        }
        let _inside = self.gateway.readiness.enter();
        self.gateway.metrics.active.inc();
        let draining = *shutdown.borrow() || self.gateway.readiness.is_draining();
        session.set_keepalive((!draining).then_some(self.gateway.limits.keepalive_timeout.as_secs()));
        session.set_pipelining_enabled(true);
        let ending = lifecycle::serve(&self.gateway, &mut session).await;
        self.gateway.metrics.active.dec();
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
