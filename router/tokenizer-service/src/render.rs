//! The engine `render`: for each model a `vllm launch render` child, watched and started again.

mod command;
mod group;
mod health;
mod lines;
mod ports;
mod renderer;

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::SideClient;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::board::{Backend, Entry};
use crate::restarts::{Pause, RestartBudget};
use crate::timings::Timings;

pub use command::{RenderCommand, Rendering};
pub use ports::{Port, Ports};

use group::Group;
use health::Health;
use lines::Tail;
use renderer::{ReadySince, Renderer, Waited};

/// Starts and watches renderers.
#[derive(Debug)]
pub struct RenderEngine {
    /// Their command.
    pub command: RenderCommand,
    /// More environment for them.
    pub environment: Vec<(String, String)>,
    /// Not to be seen in any log.
    pub secret: Option<String>,
    /// Their ports.
    pub ports: Ports,
    /// Restarts of each before its model counts as failed.
    pub max_restarts: u32,
    /// How long things may take.
    pub timings: Timings,
    health: Health,
}

/// How serving a model ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// As asked.
    Stopped,
    /// It failed.
    Failed {
        /// Why.
        reason: String,
        /// How long it had been ready at the end.
        ready: Duration,
    },
}

impl End {
    /// A failure without ever having been ready.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), ready: Duration::ZERO }
    }
}

impl RenderEngine {
    /// An engine that looks at its renderers with `client`.
    pub fn new(
        command: RenderCommand,
        ports: Ports,
        max_restarts: u32,
        timings: Timings,
        client: Arc<dyn SideClient>,
    ) -> Self {
        let health = Health::new(client, timings.health);
        Self { command, environment: Vec::new(), secret: None, ports, max_restarts, timings, health }
    }

    /// Serves a model until it is stopped or fails. No process is left when this returns.
    pub async fn serve(&self, model: &str, entry: &Entry, stop: &CancellationToken) -> End {
        let mut budget = RestartBudget::new(self.max_restarts, self.timings.refill);
        let mut pause = Pause::new(self.timings.restart);
        loop {
            let (why, ready) = match self.one_life(model, entry, stop).await {
                Life::Stopped => return End::Stopped,
                Life::NotStarted(reason) => return End::failed(reason),
                Life::Lost { reason, ready } => (reason, ready),
            };
            budget.earn(ready);
            // It ran well for a while: what ended it is new.
            if ready >= self.timings.refill / 10 {
                pause.reset();
            }
            if !budget.take() {
                let most = budget.most();
                return End::Failed { reason: format!("restart budget exhausted ({most}): {why}"), ready };
            }
            let before = pause.lengthen();
            tracing::warn!(
                model,
                reason = why,
                restarts_left = budget.left(),
                ?before,
                "renderer lost; started again"
            );
            tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = sleep(before) => entry.restarted(),
            }
        }
    }

    async fn one_life(&self, model: &str, entry: &Entry, stop: &CancellationToken) -> Life {
        let mut renderer = match self.launch(model, entry) {
            Ok(renderer) => renderer,
            Err(reason) => return Life::NotStarted(reason),
        };
        let port = renderer.port();
        entry.loading("render", port);
        tracing::info!(model, port, source = entry.spec().source, "renderer started");
        let life = match renderer.started(stop).await {
            Waited::Stopped => Life::Stopped,
            Waited::Lost(reason) => {
                tracing::warn!(
                    model,
                    port,
                    reason,
                    last_lines = renderer.last_lines(),
                    "renderer did not start"
                );
                Life::NotStarted(reason)
            }
            Waited::Ready => {
                entry.ready(Backend::Render(port));
                tracing::info!(model, port, "renderer ready");
                let since = ReadySince::now();
                match renderer.lost(stop).await {
                    Waited::Lost(reason) => {
                        entry.interrupted(&reason);
                        Life::Lost { reason, ready: since.elapsed() }
                    }
                    Waited::Stopped | Waited::Ready => Life::Stopped,
                }
            }
        };
        renderer.end().await;
        life
    }

    fn launch(&self, model: &str, entry: &Entry) -> Result<Renderer, String> {
        let port = self.ports.take().ok_or("no free port for a renderer")?;
        let spec = entry.spec();
        let line = self.command.line(&Rendering {
            source: &spec.source,
            model,
            port: port.number(),
            chat_template: spec.chat_template.as_deref(),
        });
        let tail = Tail::new(model, self.secret.as_deref());
        let group = Group::start(&line, &self.environment, &tail).map_err(|error| {
            let program = line.first().map_or("", String::as_str);
            format!("cannot run {program:?}: {error}")
        })?;
        Ok(Renderer::new(model, group, port, tail, self.health.clone(), self.timings))
    }
}

enum Life {
    Stopped,
    NotStarted(String),
    Lost { reason: String, ready: Duration },
}
