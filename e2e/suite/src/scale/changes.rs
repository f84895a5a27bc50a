//! Changes at an even rate: routes point elsewhere, pods stop and begin to be ready, pods come and go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{Fleet, PodNumber};

/// For so long a pod is not ready, and one that was added stays.
const AWAY: Duration = Duration::from_secs(1);

/// How many, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changes {
    /// A second, at least one.
    pub per_second: u32,
    /// For so long.
    pub lasts: Duration,
}

/// What was changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Made {
    /// Routes pointed elsewhere.
    pub routes: u64,
    /// Pods that stopped or began to be ready.
    pub flips: u64,
    /// Pods that came.
    pub added: u64,
    /// Pods that went.
    pub removed: u64,
    /// From the first to the answer of the last.
    pub took: Duration,
}

impl Made {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.routes + self.flips + self.added + self.removed
    }
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Point(usize, usize),
    Ready(PodNumber, bool),
    Add(PodNumber),
    Remove(PodNumber),
}

impl Changes {
    /// Makes them, then lets every pod be as it was at first; routes stay where they point.
    ///
    /// # Errors
    /// The API refuses one.
    pub async fn make(&self, fleet: &Arc<Fleet>) -> Result<Made> {
        let mut next = Next::new(fleet);
        let mut made = Made::default();
        let mut calls = JoinSet::new();
        let mut ticks = interval(Duration::from_secs(1) / self.per_second.max(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let began = Instant::now();
        while began.elapsed() < self.lasts {
            ticks.tick().await;
            let change = next.choose(Instant::now());
            made.count(change);
            calls.spawn(carry_out(Arc::clone(fleet), change));
            while let Some(ended) = calls.try_join_next() {
                ended??;
            }
        }
        while let Some(ended) = calls.join_next().await {
            ended??;
        }
        made.took = began.elapsed();
        for change in next.back() {
            carry_out(Arc::clone(fleet), change).await?;
        }
        Ok(made)
    }
}

impl Made {
    fn count(&mut self, change: Change) {
        let counter = match change {
            Change::Point(..) => &mut self.routes,
            Change::Ready(..) => &mut self.flips,
            Change::Add(_) => &mut self.added,
            Change::Remove(_) => &mut self.removed,
        };
        *counter += 1;
    }
}

async fn carry_out(fleet: Arc<Fleet>, change: Change) -> Result<()> {
    match change {
        Change::Point(route, server) => fleet.point(route, server).await,
        Change::Ready(pod, is_ready) => fleet.set_ready(pod, is_ready).await,
        Change::Add(pod) => fleet.add(pod).await,
        Change::Remove(pod) => fleet.remove(pod).await,
    }
    .map(drop)
}

/// Which change is next. Always the same ones: of five, two routes, two pods' readiness, one pod that comes or goes; every
/// second of each kind where requests go.
#[derive(Debug)]
struct Next<'a> {
    fleet: &'a Fleet,
    turn: usize,
    routes: usize,
    flips: usize,
    adds: usize,
    unready: VecDeque<(Instant, PodNumber)>,
    extra: VecDeque<(Instant, PodNumber)>,
}

impl<'a> Next<'a> {
    fn new(fleet: &'a Fleet) -> Self {
        Self {
            fleet,
            turn: 0,
            routes: 0,
            flips: 0,
            adds: 0,
            unready: VecDeque::new(),
            extra: VecDeque::new(),
        }
    }

    fn choose(&mut self, now: Instant) -> Change {
        self.turn += 1;
        match self.turn % 5 {
            0 | 2 => self.point(),
            4 => self.come_or_go(now),
            _ => self.flip(now),
        }
    }

    /// Hot routes in turns, and between them the others.
    fn point(&mut self) -> Change {
        let size = self.fleet.size;
        let turn = self.routes;
        self.routes += 1;
        let cold = size.routes - size.hot;
        let (route, servers) = if turn.is_multiple_of(2) || cold == 0 {
            (turn / 2 % size.hot.max(1), size.hot_servers())
        } else {
            (size.hot + turn / 2 % cold, size.servers)
        };
        let now = self.fleet.truth.target(route).unwrap_or_default();
        Change::Point(route, (now + 1) % servers.max(1))
    }

    fn flip(&mut self, now: Instant) -> Change {
        if let Some((_, pod)) = self.unready.pop_front_if(|(since, _)| now >= *since + AWAY) {
            return Change::Ready(pod, true);
        }
        let (server, round) = self.server(self.flips);
        self.flips += 1;
        let pod = PodNumber { server, number: round % self.fleet.size.pods_each.max(1) };
        self.unready.push_back((now, pod));
        Change::Ready(pod, false)
    }

    fn come_or_go(&mut self, now: Instant) -> Change {
        if let Some((_, pod)) = self.extra.pop_front_if(|(since, _)| now >= *since + AWAY) {
            return Change::Remove(pod);
        }
        let (server, round) = self.server(self.adds);
        self.adds += 1;
        // A name and an address come back after a while, as another pod.
        let pod = PodNumber { server, number: self.fleet.size.pods_each + round % 50 };
        self.extra.push_back((now, pod));
        Change::Add(pod)
    }

    /// Hot servers in turns, and between them the others; with how often it was the server's turn.
    fn server(&self, turn: usize) -> (usize, usize) {
        let size = self.fleet.size;
        let (hot, all) = (size.hot_servers().max(1), size.servers.max(1));
        if turn.is_multiple_of(2) || hot == all {
            (turn / 2 % hot, turn / 2 / hot)
        } else {
            (hot + turn / 2 % (all - hot), turn / 2 / (all - hot))
        }
    }

    /// What makes every pod be as it was.
    fn back(&mut self) -> Vec<Change> {
        let unready = self.unready.drain(..).map(|(_, pod)| Change::Ready(pod, true));
        unready.chain(self.extra.drain(..).map(|(_, pod)| Change::Remove(pod))).collect()
    }
}
