//! The whole service: bound, served, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvasir_core::SideClient;
use kvasir_upstream::{HyperSideClient, SideClientOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::cluster::Names;
use crate::config::{ServiceConfig, token};
use crate::fleet::Fleet;
use crate::http::{Desk, Door};
use crate::hub::Hub;
use crate::model::House;
use crate::native::NativeEngine;
use crate::render::{Ports, RenderEngine};
use crate::selection::Selection;
use crate::watch;

/// Time for requests that are being answered when the service stops, beyond the longest time of one.
const CLOSING: Duration = Duration::from_secs(1);

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {error}")]
pub struct ServiceError {
    address: String,
    error: std::io::Error,
}

/// A service that listens and has not begun to serve.
#[derive(Debug)]
pub struct Service {
    config: Arc<ServiceConfig>,
    listener: TcpListener,
    address: SocketAddr,
    board: Arc<Board>,
    names: Option<Names>,
}

impl Service {
    /// Opens the socket.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub async fn bind(config: ServiceConfig) -> Result<Self, ServiceError> {
        let (host, port) = &config.listen;
        let failed = |error| ServiceError { address: format!("{host}:{port}"), error };
        let listener = TcpListener::bind((host.trim_matches(['[', ']']), *port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { config: Arc::new(config), listener, address, board: Arc::default(), names: None })
    }

    /// Serves only models that a cluster names.
    #[must_use]
    pub fn named_by(self, names: Names) -> Self {
        Self { names: Some(names), ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its models are at.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Serves until `stop`. When this returns, no renderer is left.
    pub async fn serve(self, stop: CancellationToken) {
        let config = self.config;
        let client: Arc<dyn SideClient> = Arc::new(HyperSideClient::new(SideClientOptions::default()));
        let fleet = Fleet::new(
            Arc::new(house(&config, Arc::clone(&client))),
            Arc::clone(&self.board),
            config.max_tokenizers,
        );
        let selection = Selection::new(self.names, config.max_tokenizers, &config.timings);
        let known = Arc::default();
        // The models end after the last answer.
        let end_models = CancellationToken::new();
        let follow =
            watch::follow(Arc::clone(&config), selection, fleet, Arc::clone(&known), end_models.clone());
        let models = tokio::spawn(follow);
        let desk = Arc::new(Desk::new(self.board, client, config.proxy_timeout, known));
        let door = Door::new(self.listener, Arc::clone(&desk));
        let told = stop.clone();
        let closing = tokio::spawn(async move {
            told.cancelled().await;
            desk.stopping.store(true, Ordering::Release);
        });
        door.serve(stop, config.proxy_timeout + CLOSING).await;
        end_models.cancel();
        if let Err(error) = models.await {
            tracing::error!(%error, "the models did not end in order");
        }
        closing.abort();
        tracing::info!("stopped");
    }
}

fn house(config: &ServiceConfig, client: Arc<dyn SideClient>) -> House {
    let hub = Hub::new(&config.hub);
    let foreign = config.render.first_that_changes_ids().map(str::to_owned);
    let mut render = RenderEngine::new(
        config.render.clone(),
        Ports::from(config.base_port),
        config.max_restarts,
        config.timings,
        client,
    );
    let secret = token(config.hub.token.as_ref());
    render.secret = secret.map(str::to_owned);
    render.environment = environment(config);
    House { native: NativeEngine::new(hub, foreign), render, engine: config.engine, timings: config.timings }
}

/// What renderers are told about the hub: the same as we are, so that both use one cache.
fn environment(config: &ServiceConfig) -> Vec<(String, String)> {
    let hub = &config.hub;
    let mut environment = vec![("HF_HUB_CACHE".to_owned(), hub.cache.to_string_lossy().into_owned())];
    if let Some(token) = token(hub.token.as_ref()) {
        environment.push(("HF_TOKEN".to_owned(), token.to_owned()));
    }
    if hub.from_flag {
        environment.push(("HF_ENDPOINT".to_owned(), hub.endpoint.clone()));
    }
    if hub.offline {
        environment.push(("HF_HUB_OFFLINE".to_owned(), "1".to_owned()));
    }
    environment
}
