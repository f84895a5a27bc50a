//! Requests at a low, even rate by clients that keep their connections: through the router, and to pods directly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::{Fleet, Line, PodNumber, model_name, served_name};

/// How many clients ask whom, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The router.
    pub router: SocketAddr,
    /// The port of the pods, for those who ask them directly; `None`: nobody does.
    pub pods: Option<u16>,
    /// Clients of the router, and as many of pods.
    pub clients: u32,
    /// Requests a second of all clients of the router together, and as many to pods.
    pub per_second: u32,
}

/// What all clients saw.
#[derive(Debug, Default)]
pub struct Heard {
    /// From the first byte of a request to the last of its answer, through the router.
    pub routed: Vec<Duration>,
    /// The same by direct calls.
    pub direct: Vec<Duration>,
    /// Requests through the router that were not answered with 200.
    pub failed: u64,
    /// Answers that the cluster's state does not explain.
    pub wrong: u64,
    /// The first of either.
    pub first: Option<String>,
}

impl Load {
    /// Asks until `stop`.
    ///
    /// # Errors
    /// A direct call failed: what is compared with is broken.
    pub async fn run(&self, fleet: &Arc<Fleet>, stop: &CancellationToken) -> Result<Heard> {
        let mut clients: JoinSet<Result<Heard>> = JoinSet::new();
        let every = Duration::from_secs(1) * self.clients / self.per_second.max(1);
        let start = tokio::time::Instant::now();
        for number in 0..self.clients {
            // One after the other, and the two kinds in turns.
            let begins = start + every * number / self.clients;
            let place = usize::try_from(number)?;
            clients.spawn(ask(Arc::clone(fleet), self.router, place, ticks(begins, every), stop.clone()));
            if let Some(port) = self.pods {
                let pod = PodNumber { server: place % fleet.size.servers.max(1), number: 0 };
                let begins = begins + every / self.clients / 2;
                clients.spawn(call(pod, port, ticks(begins, every), stop.clone()));
            }
        }
        let mut all = Heard::default();
        while let Some(ended) = clients.join_next().await {
            all.take(ended??);
        }
        Ok(all)
    }
}

fn ticks(begins: tokio::time::Instant, every: Duration) -> Interval {
    let mut ticks = interval_at(begins, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// One client of the router; it asks for the hot routes in turns.
async fn ask(
    fleet: Arc<Fleet>,
    router: SocketAddr,
    first: usize,
    mut ticks: Interval,
    stop: CancellationToken,
) -> Result<Heard> {
    let mut heard = Heard::default();
    let (mut line, mut turn) = (Line::new(router), first);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        heard.ask(&mut line, &fleet, turn % fleet.size.hot.max(1)).await;
        turn += 1;
    }
    Ok(heard)
}

/// One client of a pod.
async fn call(pod: PodNumber, port: u16, mut ticks: Interval, stop: CancellationToken) -> Result<Heard> {
    let mut heard = Heard::default();
    let mut line = Line::new(SocketAddr::from((pod.address(), port)));
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        heard.call(&mut line, pod).await?;
    }
    Ok(heard)
}

impl Heard {
    async fn ask(&mut self, line: &mut Line, fleet: &Fleet, route: usize) {
        let sent = Instant::now();
        let told = line.ask(&model_name(route)).await;
        let answered = Instant::now();
        let problem = match told {
            Err(error) => Err((&mut self.failed, format!("{error:#}"))),
            Ok(told) => match told.answer {
                None => Err((&mut self.failed, format!("{} for {}", told.status, model_name(route)))),
                Some((pod, served)) => {
                    self.routed.push(answered - sent);
                    let judged = fleet.truth.judge(route, (pod, &served), (sent, answered));
                    judged.map_err(|problem| (&mut self.wrong, problem))
                }
            },
        };
        if let Err((count, problem)) = problem {
            *count += 1;
            self.first.get_or_insert(problem);
        }
    }

    async fn call(&mut self, line: &mut Line, pod: PodNumber) -> Result<()> {
        let sent = Instant::now();
        let told = line.ask(&served_name(pod.server)).await?;
        self.direct.push(sent.elapsed());
        anyhow::ensure!(told.answer.is_some(), "{} does not answer: {}", pod.name(), told.status);
        Ok(())
    }

    fn take(&mut self, other: Self) {
        self.routed.extend(other.routed);
        self.direct.extend(other.direct);
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }
}
