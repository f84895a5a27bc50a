use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// A lease that several replicas reach over bad networks.
#[derive(Debug, Default)]
struct Server {
    lease: Mutex<Option<Lease>>,
    writes: AtomicU64,
}

/// One replica's way to it. What was sent arrives even if nobody waits for the answer any more.
#[derive(Debug)]
struct Road {
    server: Arc<Server>,
    chance: Mutex<StdRng>,
    slowest: Duration,
    cut: Arc<AtomicBool>,
}

impl Road {
    fn delay(&self) -> Duration {
        self.slowest.mul_f64(self.chance.lock().random_range(0.0..=1.0))
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Server) -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let (there, back) = (self.delay(), self.delay());
        let (server, cut) = (Arc::clone(&self.server), Arc::clone(&self.cut));
        let sent = tokio::spawn(async move {
            if cut.load(Ordering::Relaxed) {
                return Err("cut");
            }
            tokio::time::sleep(there).await;
            let answer = work(&server);
            tokio::time::sleep(back).await;
            if cut.load(Ordering::Relaxed) { Err("cut") } else { Ok(answer) }
        });
        sent.await.expect("the server does not panic")
    }
}

impl Server {
    fn store(&self, lease: &mut Option<Lease>, spec: Option<LeaseSpec>) -> Option<Lease> {
        let version = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let mut stored = Lease { spec, ..Lease::default() };
        stored.metadata.resource_version = Some(version.to_string());
        *lease = Some(stored.clone());
        Some(stored)
    }
}

impl LeaseApi for Road {
    type Problem = &'static str;

    async fn read(&self) -> Result<Option<Lease>, &'static str> {
        self.call(|server| server.lease.lock().clone()).await
    }

    async fn create(&self, spec: LeaseSpec) -> Result<Option<Lease>, &'static str> {
        self.call(|server| {
            let mut lease = server.lease.lock();
            if lease.is_some() { None } else { server.store(&mut lease, Some(spec)) }
        })
        .await
    }

    async fn replace(&self, wanted: Lease) -> Result<Option<Lease>, &'static str> {
        self.call(move |server| {
            let mut lease = server.lease.lock();
            let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            if version == wanted.metadata.resource_version {
                server.store(&mut lease, wanted.spec)
            } else {
                None
            }
        })
        .await
    }
}

struct Replica {
    leadership: Leadership,
    cut: Arc<AtomicBool>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn replica(server: &Arc<Server>, name: &str, seed: u64, slowest: Duration) -> Replica {
    let cut = Arc::new(AtomicBool::new(false));
    let chance = Mutex::new(StdRng::seed_from_u64(seed));
    let road = Road { server: Arc::clone(server), chance, slowest, cut: Arc::clone(&cut) };
    let (campaign, leadership) = Campaign::new(road, name);
    let stop = CancellationToken::new();
    let task = tokio::spawn(campaign.run(stop.clone()));
    Replica { leadership, cut, stop, task }
}

/// Lets `replica` lead, and says how long that took.
async fn until_it_leads(replica: &Replica, limit: Duration) -> Duration {
    let begin = Instant::now();
    let mut changes = replica.leadership.changes();
    tokio::time::timeout(limit, changes.wait_for(|leads| *leads)).await.expect("it leads").expect("it runs");
    begin.elapsed()
}

const FAST: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn one_leads_and_another_follows_when_it_is_cut_off() {
    let server = Arc::new(Server::default());
    let first = replica(&server, "first", 1, FAST);
    until_it_leads(&first, SECOND).await;
    let second = replica(&server, "second", 2, FAST);
    tokio::time::sleep(SECOND * 60).await;
    assert!(first.leadership.holds() && !second.leadership.holds());
    assert_eq!(second.leadership.holder().as_deref(), Some("first"));

    first.cut.store(true, Ordering::Relaxed);
    let mut changes = first.leadership.changes();
    changes.wait_for(|leads| !leads).await.expect("it runs");
    assert!(!second.leadership.holds(), "the first lapses before the second may take it");
    let took = until_it_leads(&second, SECOND * 20).await;
    assert!(took > SECOND * 2, "{took:?}");
    assert!(!first.leadership.holds());
}

#[tokio::test(start_paused = true)]
async fn one_that_stops_hands_over_at_once() {
    let server = Arc::new(Server::default());
    let first = replica(&server, "first", 1, FAST);
    until_it_leads(&first, SECOND).await;
    let second = replica(&server, "second", 2, FAST);
    first.stop.cancel();
    first.task.await.expect("it ends");
    assert!(!first.leadership.holds());
    until_it_leads(&second, SECOND * 3).await;
    let transitions = server.lease.lock().as_ref().and_then(|lease| lease.spec.as_ref()?.lease_transitions);
    assert_eq!(transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn one_that_restarts_under_its_name_does_not_wait() {
    let server = Arc::new(Server::default());
    let crashed = replica(&server, "first", 1, FAST);
    until_it_leads(&crashed, SECOND).await;
    crashed.task.abort();
    let restarted = replica(&server, "first", 3, FAST);
    until_it_leads(&restarted, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_no_more_often_than_it_must() {
    let server = Arc::new(Server::default());
    let only = replica(&server, "only", 1, FAST);
    until_it_leads(&only, SECOND).await;
    let before = server.writes.load(Ordering::Relaxed);
    tokio::time::sleep(SECOND * 100).await;
    let writes = server.writes.load(Ordering::Relaxed) - before;
    assert!((18..=20).contains(&writes), "{writes}");
}

/// Slow roads, cuts, stops and crashes: at no time do two lead, and in quiet times one does.
#[tokio::test(start_paused = true)]
async fn two_never_lead_at_once() {
    let mut led = 0_u32;
    for seed in 0..150_u64 {
        let mut chance = StdRng::seed_from_u64(seed);
        let server = Arc::new(Server::default());
        let slowest = Duration::from_millis(chance.random_range(1..=9_000));
        let name = ["first", "second", "third"];
        let mut replicas: Vec<Replica> =
            (0..3).map(|number| replica(&server, name[number], seed * 10 + number as u64, slowest)).collect();
        for step in 0..600 {
            tokio::time::sleep(Duration::from_millis(chance.random_range(50..=400))).await;
            let leaders = replicas.iter().filter(|replica| replica.leadership.holds()).count();
            assert!(leaders <= 1, "seed {seed}, step {step}: {leaders} lead");
            led += u32::try_from(leaders).expect("few");
            let which = chance.random_range(0..3_usize);
            match chance.random_range(0..60_u32) {
                0..=2 => replicas[which].cut.store(true, Ordering::Relaxed),
                3..=7 => replicas.iter().for_each(|replica| replica.cut.store(false, Ordering::Relaxed)),
                8 => {
                    // A stopped replica gives the lease back and comes again under another name.
                    replicas[which].stop.cancel();
                    let fresh = format!("{}-{step}", name[which]);
                    replicas[which] = replica(&server, &fresh, seed * 1000 + step, slowest);
                }
                _ => {}
            }
        }
        for replica in &replicas {
            replica.stop.cancel();
        }
    }
    assert!(led > 15_000, "a simulation in which nobody leads shows nothing: {led}");
}
