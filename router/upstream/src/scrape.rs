//! Visits every engine once an interval: metrics, the model list, and a health probe where one is wanted.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Clock, Endpoint, EndpointId, SampleSink, SideClient};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use visit::{Memory, Visit, Visitor};

mod visit;

/// One endpoint to visit.
#[derive(Clone, Debug)]
pub struct ScrapeTarget {
    /// The endpoint. Those that share a URL are served by one visit.
    pub endpoint: Arc<Endpoint>,
    /// Whether its health is to be probed as well: it was taken out and may be well again.
    pub probe: bool,
}

/// Gives the endpoints that exist now. Called several times an interval; must be quick.
pub type TargetSource = Arc<dyn Fn() -> Vec<ScrapeTarget> + Send + Sync>;

/// Told after every good scrape of an engine that reports it, whether the engine sleeps.
pub type SleepHook = Arc<dyn Fn(&EndpointId, bool) + Send + Sync>;

/// How often, how long, how many.
#[derive(Clone)]
pub struct ScrapeOptions {
    /// From the start of one visit to the start of the next, give or take a tenth.
    pub interval: Duration,
    /// For each call of a visit.
    pub timeout: Duration,
    /// Every so many visits the model list is asked for; the first visit does.
    pub models_every: u32,
    /// Most visits at once.
    pub parallel: usize,
    /// Largest metrics page or model list, bytes. A page of one vLLM rank has some 60 kB.
    pub max_bytes: usize,
    /// Seed of the jitter.
    pub seed: u64,
    /// Told of sleeping engines.
    pub on_sleep: Option<SleepHook>,
}

impl Default for ScrapeOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            models_every: 10,
            parallel: 100,
            max_bytes: 8 << 20,
            seed: rand::random(),
            on_sleep: None,
        }
    }
}

impl fmt::Debug for ScrapeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScrapeOptions")
            .field("interval", &self.interval)
            .field("timeout", &self.timeout)
            .field("models_every", &self.models_every)
            .field("parallel", &self.parallel)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// The running scraper. It ends with its token; dropping this value leaves it running.
#[derive(Debug)]
pub struct Scraper {
    task: JoinHandle<()>,
}

impl Scraper {
    /// Starts the scraper on the current tokio runtime. Every visit ends or is dropped when `stop` is cancelled.
    pub fn start(
        client: Arc<dyn SideClient>,
        sink: Arc<dyn SampleSink>,
        targets: TargetSource,
        options: ScrapeOptions,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let rounds = Rounds {
            random: StdRng::seed_from_u64(options.seed),
            visitor: Arc::new(Visitor { client, sink, clock, options: options.clone() }),
            targets,
            options,
            sites: HashMap::new(),
            due: BTreeSet::new(),
            slow_due: BTreeSet::new(),
            slow_running: 0,
            visits: JoinSet::new(),
            running: HashMap::new(),
        };
        Self { task: tokio::spawn(rounds.run(stop)) }
    }

    /// Waits until the scraper has ended; the token must be cancelled for that.
    ///
    /// # Errors
    /// When the scraper's task panicked.
    pub async fn stopped(self) -> Result<(), JoinError> {
        self.task.await
    }
}

/// The URL of an engine with everything that is served behind it.
struct Site {
    targets: Vec<ScrapeTarget>,
    memory: Memory,
    round: u32,
    /// Whether its last visit took longer than an interval: it hangs, or its packets are lost.
    slow: bool,
    /// The visit on its way, if there is one.
    visit: Option<AbortHandle>,
}

/// One task holds the timetable; visits run beside it, at most `parallel` at once. An engine that hangs keeps only
/// its own site waiting: those that were slow last time share half of the places, however many they are.
struct Rounds {
    visitor: Arc<Visitor>,
    targets: TargetSource,
    options: ScrapeOptions,
    random: StdRng,
    sites: HashMap<Arc<str>, Site>,
    /// Sites without a visit on its way, the most urgent first.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// The same for the sites that are slow.
    slow_due: BTreeSet<(Instant, Arc<str>)>,
    slow_running: usize,
    visits: JoinSet<Memory>,
    running: HashMap<Id, Running>,
}

/// A visit on its way.
struct Running {
    url: Arc<str>,
    began: Instant,
    slow: bool,
}

impl Rounds {
    async fn run(mut self, stop: CancellationToken) {
        // New endpoints are noticed within a quarter of an interval.
        let every = (self.options.interval / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut look = Instant::now();
        loop {
            let now = Instant::now();
            if now >= look {
                self.look_around(now);
                look = now + every;
            }
            self.send_out(now);
            let wake = self.next_due().map_or(look, |(due, _)| due.min(look));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.visits.join_next_with_id() => self.settle(ended),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.visits.shutdown().await;
    }

    /// Takes over the endpoints of now. Sites that are gone lose their visit; new ones are visited at once.
    fn look_around(&mut self, now: Instant) {
        let mut wanted: HashMap<Arc<str>, Vec<ScrapeTarget>> = HashMap::new();
        for target in (self.targets)() {
            wanted.entry(target.endpoint.address.url().into()).or_default().push(target);
        }
        let (due, slow_due) = (&mut self.due, &mut self.slow_due);
        self.sites.retain(|url, site| match wanted.remove(url) {
            Some(targets) => {
                site.targets = targets;
                true
            }
            None => {
                if let Some(visit) = &site.visit {
                    visit.abort();
                }
                due.retain(|(_, waiting)| waiting != url);
                slow_due.retain(|(_, waiting)| waiting != url);
                false
            }
        });
        for (url, targets) in wanted {
            self.due.insert((now, Arc::clone(&url)));
            self.sites
                .insert(url, Site { targets, memory: Memory::default(), round: 0, slow: false, visit: None });
        }
    }

    /// When the next visit may begin, and whether it is one of the slow. With every place taken there is none: then
    /// the end of a visit is what to wait for.
    fn next_due(&self) -> Option<(Instant, bool)> {
        if self.visits.len() >= self.options.parallel {
            return None;
        }
        let slow_may = self.slow_running < self.options.parallel.div_ceil(2);
        let slow = self.slow_due.first().filter(|_| slow_may).map(|(at, _)| (*at, true));
        let swift = self.due.first().map(|(at, _)| (*at, false));
        [swift, slow].into_iter().flatten().min()
    }

    fn send_out(&mut self, now: Instant) {
        while let Some((_, slow)) = self.next_due().filter(|(at, _)| *at <= now) {
            let due = if slow { &mut self.slow_due } else { &mut self.due };
            let Some((_, url)) = due.pop_first() else { return };
            let Some(site) = self.sites.get_mut(&url) else { continue };
            let visit = Visit {
                url: Arc::clone(&url),
                targets: site.targets.clone(),
                memory: std::mem::take(&mut site.memory),
                list_models: site.round.is_multiple_of(self.options.models_every.max(1)),
            };
            site.round = site.round.wrapping_add(1);
            let visitor = Arc::clone(&self.visitor);
            let handle = self.visits.spawn(async move { visitor.visit(visit).await });
            self.slow_running += usize::from(slow);
            self.running.insert(handle.id(), Running { url, began: now, slow });
            site.visit = Some(handle);
        }
    }

    fn settle(&mut self, ended: Result<(Id, Memory), JoinError>) {
        let (id, memory) = match ended {
            Ok(well) => well,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a scrape panicked");
                }
                (error.id(), Memory::default())
            }
        };
        let Some(Running { url, began, slow }) = self.running.remove(&id) else { return };
        self.slow_running -= usize::from(slow);
        let Some(site) = self.sites.get_mut(&url) else { return };
        // The site may have been dropped and taken up again while its first visit was being aborted.
        if site.visit.as_ref().is_none_or(|visit| visit.id() != id) {
            return;
        }
        site.visit = None;
        site.memory = memory;
        site.slow = began.elapsed() > self.options.interval;
        let pause = self.options.interval.mul_f64(self.random.random_range(0.9..1.1));
        let due = if site.slow { &mut self.slow_due } else { &mut self.due };
        due.insert(((began + pause).max(Instant::now()), url));
    }
}

#[cfg(test)]
mod tests;
