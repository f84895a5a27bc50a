//! One renderer from its start to its end.

use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::group::Group;
use super::health::Health;
use super::lines::Tail;
use super::ports::Port;
use crate::timings::Timings;

/// A renderer's process and the port it has.
#[derive(Debug)]
pub struct Renderer {
    model: String,
    group: Group,
    port: Port,
    tail: Tail,
    health: Health,
    timings: Timings,
}

/// What a wait for a renderer ended with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waited {
    /// It answers; only while it starts.
    Ready,
    /// The service stops, or the model is not wanted any more.
    Stopped,
    /// It died, hangs, or did not start.
    Lost(String),
}

impl Renderer {
    /// A process that was just started.
    pub fn new(model: &str, group: Group, port: Port, tail: Tail, health: Health, timings: Timings) -> Self {
        Self { model: model.to_owned(), group, port, tail, health, timings }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Waits until it answers, within the time for a start.
    pub async fn started(&mut self, stop: &CancellationToken) -> Waited {
        let limit = self.timings.startup;
        match timeout(limit, self.first_answer(stop)).await {
            Ok(waited) => waited,
            Err(_) => {
                Waited::Lost(format!("start-up timeout: no health answer within {} s", limit.as_secs()))
            }
        }
    }

    async fn first_answer(&mut self, stop: &CancellationToken) -> Waited {
        let mut stranger = false;
        loop {
            let look = async {
                sleep(self.timings.poll_starting).await;
                let answers = self.health.answers(self.port.number()).await;
                answers.then_some(self.health.is_ours(self.port.number(), &self.model).await)
            };
            // The exit is looked at first: with the process gone, whoever answers on its port is another.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Waited::Stopped,
                exit = self.group.exited() => {
                    self.group.last_words().await;
                    return Waited::Lost(self.exited("during startup", exit));
                }
                answer = look => match answer {
                    Some(true) => return Waited::Ready,
                    Some(false) if !stranger => {
                        stranger = true;
                        tracing::warn!(model = self.model, port = self.port.number(),
                            "who answers on the renderer's port does not list the model");
                    }
                    _ => {}
                },
            }
        }
    }

    /// Waits until it dies or hangs.
    pub async fn lost(&mut self, stop: &CancellationToken) -> Waited {
        let mut unanswered = 0;
        loop {
            let look = async {
                sleep(self.timings.poll_ready).await;
                self.health.answers(self.port.number()).await
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Waited::Stopped,
                exit = self.group.exited() => return Waited::Lost(self.exited("while ready", exit)),
                answers = look => unanswered = if answers { 0 } else { unanswered + 1 },
            }
            if unanswered >= self.timings.strikes {
                return Waited::Lost(format!("hangs: {unanswered} health checks in a row were not answered"));
            }
        }
    }

    /// Ends it, and everything it started. The port is free again after that.
    pub async fn end(self) {
        let number = self.port.number();
        if !self.group.end(self.timings.grace).await {
            tracing::error!(
                model = self.model,
                port = number,
                "a killed renderer is still there; its port stays taken"
            );
            std::mem::forget(self.port);
        }
    }

    /// The last lines it wrote.
    pub fn last_lines(&self) -> String {
        self.tail.lines().join("\n")
    }

    fn exited(&self, when: &str, exit: std::io::Result<ExitStatus>) -> String {
        let how = exit.map_or_else(|error| error.to_string(), |status| status.to_string());
        // What it wrote before it was ready is about its start; later lines may be about prompts.
        match self.tail.reason().filter(|_| when == "during startup") {
            Some(line) => format!("exited {when} ({how}): {line}"),
            None => format!("exited {when} ({how})"),
        }
    }
}

/// How long something was ready, told by tokio's clock, which tests may stop.
#[derive(Clone, Copy, Debug)]
pub struct ReadySince(tokio::time::Instant);

impl ReadySince {
    /// From now on.
    pub fn now() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// So long.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
