//! The whole agent: bound, run, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::{Redis, RedisSetupError};
use kvasir_core::{Clock, SideClient, SystemClock};
use kvasir_kvcache::Index;
use kvasir_upstream::{HyperSideClient, SideClientOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::board::{Board, EngineBoard};
use crate::config::AgentConfig;
use crate::engine::{EngineTask, Tools};
use crate::http::{Desk, Door};
use crate::kthena_pod::KthenaPods;
use crate::publishing::Publishing;
use crate::resume;

#[cfg(test)]
mod tests;

/// Before an engine's task is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// Why the agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The address cannot be bound.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// A file of the Redis settings cannot be used.
    #[error(transparent)]
    Redis(#[from] RedisSetupError),
}

/// An agent that listens and has not begun to follow.
#[derive(Debug)]
pub struct Service {
    config: AgentConfig,
    listener: TcpListener,
    address: SocketAddr,
    board: Arc<Board>,
    tools: Arc<Tools>,
}

impl Service {
    /// Opens the socket and prepares everything; nothing is asked or followed yet.
    ///
    /// # Errors
    /// An address that cannot be bound, a file that cannot be used.
    pub async fn bind(config: AgentConfig) -> Result<Self, ServiceError> {
        let (host, port) = &config.listen;
        let failed = |error| ServiceError::Listen { address: format!("{host}:{port}"), error };
        let listener = TcpListener::bind((host.trim_matches(['[', ']']), *port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let index = Arc::new(Index::new(Arc::clone(&clock)));
        let redis = Redis::new(config.redis.clone())?;
        let publishing = config
            .layout
            .is_native()
            .then(|| Publishing::new(redis.clone(), Arc::clone(&index), config.lease, Arc::clone(&clock)));
        let kthena = KthenaPods::new(redis.clone(), config.layout.is_kthena());
        let board = Arc::new(Board::new(&config, index, redis, kthena));
        let client: Arc<dyn SideClient> = Arc::new(HyperSideClient::new(SideClientOptions::default()));
        let tools = Tools {
            board: Arc::clone(&board),
            client,
            clock,
            publishing,
            scrape_interval: config.scrape_interval,
            lease: config.lease,
        };
        Ok(Self { config, listener, address, board, tools: Arc::new(tools) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is at.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Follows and publishes until `stop`. When this returns, within five seconds of the stop, the last changes were sent
    /// and the leases given back, as far as Redis takes them.
    pub async fn serve(self, stop: CancellationToken) {
        let Self { config, listener, board, tools, .. } = self;
        tracing::info!(
            redis = %config.redis, layout = config.layout.as_str(), engines = config.engines.len(),
            "what the engines hold is published"
        );
        // The door closes last, so that an agent that ends can still be asked what it is at.
        let close_door = CancellationToken::new();
        let desk = Arc::new(Desk::new(Arc::clone(&board)));
        let door = tokio::spawn(Door::new(listener, desk).serve(close_door.clone()));
        let reached = Arc::clone(&board);
        let _reach = AbortOnDropHandle::new(tokio::spawn(async move { reached.reach_redis().await }));
        let saver =
            tokio::spawn(resume::keep_saving(Arc::clone(&board), config.resume_interval, stop.clone()));
        let mut engines = JoinSet::new();
        for (number, engine) in board.engines.iter().enumerate() {
            engines.spawn(keep_running(Arc::clone(&tools), number, Arc::clone(engine), stop.clone()));
        }
        stop.cancelled().await;
        board.stop();
        let _ = saver.await;
        while let Some(ended) = engines.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "an engine's task did not end in order");
            }
        }
        board.kthena.close().await;
        close_door.cancel();
        let _ = door.await;
        tracing::info!("stopped");
    }
}

/// Runs one engine's task until the stop. A panic in it takes back what it published, and it begins anew.
async fn keep_running(tools: Arc<Tools>, number: usize, board: Arc<EngineBoard>, stop: CancellationToken) {
    loop {
        let task = || EngineTask::new(Arc::clone(&tools), number, Arc::clone(&board), stop.clone());
        match AbortOnDropHandle::new(tokio::spawn(task().run())).await {
            Err(error) if error.is_panic() => {
                tracing::error!(pod = %board.config.pod_name(), "an engine's task failed; it begins anew");
            }
            _ => return,
        }
        task().give_up().await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}
