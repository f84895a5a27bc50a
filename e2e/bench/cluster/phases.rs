//! What is looked at, one after the other, in one cluster with one router.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kvasir_suite::cluster::Cluster;
use kvasir_suite::scale::{Changes, Fleet, GRACE, Heard, Hosts, Line, Load, PodNumber, model_name};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::process::{Router, Usage};
use crate::spread::spread;

/// From one single change to the next: the plan of the one before is made, and its statuses are written.
const PAUSE: Duration = Duration::from_millis(250);

/// From one question to the next while a change is waited for.
const POLL: Duration = Duration::from_millis(1);

/// How often the last plan's time is looked at while everything changes. The page that has it is a large one.
const LOOK: Duration = Duration::from_secs(2);

/// A change that has not arrived by then never does.
const ARRIVES: Duration = Duration::from_secs(20);

/// Clients of the router, and as many of pods.
const CLIENTS: u32 = 10;

/// Everything that a phase needs.
#[derive(Debug)]
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub fleet: Arc<Fleet>,
    pub hosts: &'a Hosts,
    pub router: Router,
    pub length: Duration,
    pub requests: u32,
}

/// The processor time of everybody at one moment.
#[derive(Debug)]
struct Mark {
    at: Instant,
    router: Duration,
    others: [Duration; 3],
    scrapes: u64,
    plans: f64,
}

impl Stage<'_> {
    /// Nothing happens but scrapes.
    pub async fn idle(&mut self) -> Result<Value> {
        sleep(Duration::from_secs(3)).await;
        let mark = self.mark().await?;
        sleep(self.length).await;
        let mut figures = self.since(&mark).await?;
        let (page, bytes) = self.router.metrics_page().await?;
        let usage = Usage::of(self.router.pid())?;
        put(&mut figures, "resident_mib", usage.resident_mib.into());
        put(&mut figures, "metrics_page_ms", (page.as_secs_f64() * 1e3).into());
        put(&mut figures, "metrics_page_bytes", bytes.into());
        Ok(figures)
    }

    /// Single changes, each waited for: from the API's answer to the first answer of a request that goes by it.
    pub async fn single(&mut self, count: usize) -> Result<Value> {
        let (mut edits, mut ready, mut unready, mut plans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut line = Line::new(self.router.inference);
        let route = 0;
        for _ in 0..count {
            let now = self.fleet.truth.target(route).context("no such route")?;
            let server = (now + 1) % self.fleet.size.hot_servers();
            let answered = self.fleet.point(route, server).await?;
            edits.push(
                arrives(&mut line, route, answered, |pod| pod.is_some_and(|pod| pod.server == server))
                    .await?,
            );
            sleep(PAUSE).await;
            plans.push(Duration::from_secs_f64(self.router.metric("kvasir_kubernetes_plan_seconds").await?));
        }
        // With one pod of its server left, the route answers or does not.
        let server = self.fleet.truth.target(route).context("no such route")?;
        let pods = self.fleet.size.pods_each;
        for number in 1..pods {
            self.fleet.set_ready(PodNumber { server, number }, false).await?;
        }
        sleep(GRACE).await;
        for _ in 0..count {
            let pod = PodNumber { server, number: 0 };
            let answered = self.fleet.set_ready(pod, false).await?;
            unready.push(arrives(&mut line, route, answered, |pod| pod.is_none()).await?);
            sleep(PAUSE).await;
            let answered = self.fleet.set_ready(pod, true).await?;
            ready.push(arrives(&mut line, route, answered, |pod| pod.is_some()).await?);
            sleep(PAUSE).await;
        }
        for number in 1..pods {
            self.fleet.set_ready(PodNumber { server, number }, true).await?;
        }
        sleep(GRACE).await;
        Ok(json!({
            "route_us": spread(&edits), "ready_us": spread(&ready), "unready_us": spread(&unready),
            "plan_us": spread(&plans),
        }))
    }

    /// Changes so slow that each has a plan of its own, and no requests: what one costs.
    pub async fn alone(&mut self) -> Result<Value> {
        let changes = Changes { per_second: 4, lasts: self.length };
        let mark = self.mark().await?;
        let made = changes.make(&self.fleet).await?;
        let mut figures = self.since(&mark).await?;
        put(&mut figures, "changes", made.total().into());
        Ok(figures)
    }

    /// Requests, and nothing else.
    pub async fn quiet(&mut self) -> Result<Value> {
        let stop = CancellationToken::new();
        let (load, mark) = (self.load(), self.mark().await?);
        let (heard, ()) = tokio::join!(load.run(&self.fleet, &stop), async {
            sleep(self.length).await;
            stop.cancel();
        });
        let mut figures = self.since(&mark).await?;
        put_heard(&mut figures, &heard?);
        Ok(figures)
    }

    /// Requests while everything changes.
    pub async fn changing(&mut self, per_second: u32) -> Result<Value> {
        let stop = CancellationToken::new();
        let (load, mark) = (self.load(), self.mark().await?);
        let changes = Changes { per_second, lasts: self.length };
        let (heard, made, plans) = tokio::join!(
            load.run(&self.fleet, &stop),
            async {
                let made = changes.make(&self.fleet).await;
                stop.cancel();
                made
            },
            self.plans(&stop)
        );
        let made = made?;
        let mut figures = self.since(&mark).await?;
        put_heard(&mut figures, &heard?);
        put(&mut figures, "plan_us", spread(&plans?));
        put(&mut figures, "changes", made.total().into());
        let kinds =
            json!({"routes": made.routes, "flips": made.flips, "added": made.added, "removed": made.removed});
        put(&mut figures, "kinds", kinds);
        put(&mut figures, "changes_per_second", (made.total() as f64 / made.took.as_secs_f64()).into());
        sleep(GRACE).await;
        Ok(figures)
    }

    fn load(&self) -> Load {
        Load {
            router: self.router.inference,
            pods: Some(self.hosts.port),
            clients: CLIENTS,
            per_second: self.requests,
        }
    }

    /// How long plans take, looked at now and then.
    async fn plans(&self, stop: &CancellationToken) -> Result<Vec<Duration>> {
        let mut plans = Vec::new();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            plans.push(Duration::from_secs_f64(self.router.metric("kvasir_kubernetes_plan_seconds").await?));
        }
        Ok(plans)
    }

    async fn mark(&self) -> Result<Mark> {
        let [etcd, api_server] = self.cluster.processes();
        Ok(Mark {
            plans: self.router.metric("kvasir_kubernetes_plans_total").await?,
            at: Instant::now(),
            router: Usage::of(self.router.pid())?.cpu,
            others: [Usage::of(api_server)?.cpu, Usage::of(etcd)?.cpu, Usage::of(std::process::id())?.cpu],
            scrapes: self.hosts.scrapes(),
        })
    }

    /// Everybody's share since then.
    async fn since(&self, mark: &Mark) -> Result<Value> {
        let now = self.mark().await?;
        let seconds = (now.at - mark.at).as_secs_f64();
        let cores = |now: Duration, before: Duration| (now.saturating_sub(before)).as_secs_f64() / seconds;
        let [api_server, etcd, own] =
            std::array::from_fn(|place| match (now.others.get(place), mark.others.get(place)) {
                (Some(now), Some(before)) => cores(*now, *before),
                _ => 0.0,
            });
        Ok(json!({
            "seconds": seconds,
            "cores": {"router": cores(now.router, mark.router), "api_server": api_server, "etcd": etcd, "clients_and_pods": own},
            "scrapes_per_second": (now.scrapes - mark.scrapes) as f64 / seconds,
            "plans": now.plans - mark.plans,
        }))
    }
}

/// How long after the API's answer a request is first answered as it should be from now on.
async fn arrives(
    line: &mut Line,
    route: usize,
    answered: Instant,
    is_so: impl Fn(Option<PodNumber>) -> bool,
) -> Result<Duration> {
    loop {
        let told = line.ask(&model_name(route)).await?;
        let took = answered.elapsed();
        if is_so(told.answer.map(|(pod, _)| pod)) {
            return Ok(took);
        }
        ensure!(took < ARRIVES, "a change of {} never arrives", model_name(route));
        sleep(POLL).await;
    }
}

fn put_heard(figures: &mut Value, heard: &Heard) {
    put(figures, "routed_us", spread(&heard.routed));
    put(figures, "direct_us", spread(&heard.direct));
    put(figures, "failed", heard.failed.into());
    put(figures, "wrong", heard.wrong.into());
    put(figures, "first_problem", heard.first.clone().into());
}

fn put(figures: &mut Value, name: &str, value: Value) {
    if let Some(figures) = figures.as_object_mut() {
        figures.insert(name.to_owned(), value);
    }
}
