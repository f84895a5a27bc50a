//! A Redis Cluster: a connection to each master, and commands sent to whoever serves their keys.
//!
//! The client library has a Cluster connection of its own. It is not used: it reads the slots anew while the
//! requests in hand stand still, and with more requests to a server than its queue takes the two wait for each
//! other (seen with redis 1.8.1: 200 commands side by side and one slot moved). Here every server has a connection
//! that is kept for itself, so one that hangs holds up only its own keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::future::{join_all, try_join_all};
use kvasir_settings::redis::RedisNode;
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::ConnectionStatus;
use super::answer::{Refusal, StoreError, refusal};
use super::keeper;
use super::plan::Plan;
use super::server::Server;
use super::slots::{SlotMap, slot_of_command};

/// How often a command follows a redirection. Two servers that name each other end here.
const MOST_REDIRECTIONS: usize = 5;
/// How long one server may take to tell its slots.
const SLOTS_LIMIT: Duration = Duration::from_millis(500);
/// How often the slots are read when nothing is wrong.
const READ_EVERY: Duration = Duration::from_secs(10);
/// The shortest time between two readings.
const READ_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Cluster {
    plan: Plan,
    name: String,
    seeds: Vec<RedisNode>,
    map: ArcSwapOption<SlotMap>,
    /// Every server that is known, by its address, with its keeper.
    servers: Mutex<HashMap<String, Kept>>,
    /// Readings of the slots that have ended. Callers before the first end wait for it.
    readings: watch::Sender<u64>,
    /// Wakes the keeper: the map may be old.
    stale: Notify,
    status: Mutex<Status>,
    /// Reconnects of servers that are gone, and masters that were replaced.
    remade: AtomicU64,
}

struct Kept {
    server: Arc<Server>,
    _keeper: AbortOnDropHandle<()>,
}

/// Commands that go the same way, by their places.
type Parts = Vec<(Way, Vec<usize>)>;

struct Status {
    connected: bool,
    since: Instant,
    last_error: Option<String>,
    answer: StoreError,
}

/// Where a command goes next.
#[derive(PartialEq, Eq)]
struct Way {
    node: RedisNode,
    /// Only this time: the slot is being moved.
    asking: bool,
}

impl Cluster {
    pub(super) fn new(plan: Plan, name: String, seeds: &[RedisNode]) -> Self {
        Self {
            plan,
            name,
            seeds: seeds.to_vec(),
            map: ArcSwapOption::empty(),
            servers: Mutex::new(HashMap::new()),
            readings: watch::Sender::new(0),
            stale: Notify::new(),
            status: Mutex::new(Status {
                connected: false,
                since: Instant::now(),
                last_error: None,
                answer: StoreError::Unreachable,
            }),
            remade: AtomicU64::new(0),
        }
    }

    /// The connection to one server, begun where there is none.
    pub(super) fn server(&self, node: &RedisNode) -> Arc<Server> {
        let address = node.to_string();
        let mut servers = self.servers.lock();
        if let Some(kept) = servers.get(&address) {
            return Arc::clone(&kept.server);
        }
        let server =
            Arc::new(Server::new(self.plan.of(node.clone()), format!("{address} of the {}", self.name)));
        let keeper = AbortOnDropHandle::new(tokio::spawn(keeper::keep(Arc::clone(&server))));
        servers.insert(address, Kept { server: Arc::clone(&server), _keeper: keeper });
        server
    }

    pub(super) async fn command(&self, cmd: &Cmd, limit: Duration) -> Result<Value, StoreError> {
        let mut pipe = Pipeline::with_capacity(1);
        pipe.add_command(cmd.clone());
        let values = self.commands(&pipe, limit).await?;
        values.into_iter().next().ok_or(StoreError::Refused(Refusal::Other))
    }

    pub(super) async fn commands(&self, pipe: &Pipeline, limit: Duration) -> Result<Vec<Value>, StoreError> {
        let deadline = Instant::now() + limit;
        let map = self.map(deadline).await?;
        let result = if pipe.is_transaction() {
            let slot = pipe.cmd_iter().find_map(slot_of_command);
            let node = slot.and_then(|slot| map.master(slot)).ok_or(StoreError::Refused(Refusal::Moved))?;
            self.server(node).commands(pipe, left(deadline)).await
        } else {
            self.spread(&map, pipe, deadline).await
        };
        // The map is not to blame for an error that is about one command or its key.
        let suspicious = match &result {
            Ok(values) => values.iter().any(|value| {
                matches!(refusal(value), Some(Refusal::Moved | Refusal::ReadOnly | Refusal::Loading))
            }),
            Err(_) => true,
        };
        if suspicious {
            self.stale.notify_one();
        }
        result
    }

    /// Sends each command to whoever serves its slot, and once more to whom it was sent on to.
    async fn spread(
        &self,
        map: &SlotMap,
        pipe: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let commands: Vec<&Cmd> = pipe.cmd_iter().collect();
        let mut values = vec![Value::Nil; commands.len()];
        let mut todo = ways(map, &commands)?;
        for _ in 0..MOST_REDIRECTIONS {
            let parts = todo.iter().map(async |(way, places)| {
                let answers = self.send(way, places, &commands, deadline).await?;
                Ok::<_, StoreError>((places, answers))
            });
            let mut again = Parts::new();
            for (places, answers) in try_join_all(parts).await? {
                for (place, value) in places.iter().zip(answers) {
                    if let Some(way) = redirection(&value) {
                        self.stale.notify_one();
                        add(&mut again, way, *place);
                    }
                    if let Some(slot) = values.get_mut(*place) {
                        *slot = value;
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            todo = again;
        }
        Ok(values)
    }

    async fn send(
        &self,
        way: &Way,
        places: &[usize],
        commands: &[&Cmd],
        deadline: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let mut part = Pipeline::with_capacity(places.len());
        for command in places.iter().filter_map(|place| commands.get(*place)) {
            if way.asking {
                part.cmd("ASKING");
            }
            part.add_command((*command).clone());
        }
        let answers = self.server(&way.node).commands(&part, left(deadline)).await?;
        Ok(if way.asking { answers.into_iter().skip(1).step_by(2).collect() } else { answers })
    }

    /// The servers that serve slots.
    pub(super) async fn masters(&self, limit: Duration) -> Result<Vec<RedisNode>, StoreError> {
        Ok(self.map(Instant::now() + limit).await?.masters().to_vec())
    }

    async fn map(&self, deadline: Instant) -> Result<Arc<SlotMap>, StoreError> {
        if let Some(map) = self.map.load_full() {
            return Ok(map);
        }
        if *self.readings.borrow() == 0 {
            let mut readings = self.readings.subscribe();
            let first = readings.wait_for(|readings| *readings > 0);
            let _ = tokio::time::timeout(left(deadline), first).await;
        }
        self.map.load_full().ok_or_else(|| self.status.lock().answer)
    }

    pub(super) async fn connected(&self) {
        let mut readings = self.readings.subscribe();
        while !self.status.lock().connected {
            if readings.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        let servers = self.servers.lock();
        let reconnects = servers.values().map(|kept| kept.server.status().reconnects).sum::<u64>();
        let status = self.status.lock();
        ConnectionStatus {
            connected: status.connected,
            since: status.since,
            last_error: status.last_error.clone(),
            reconnects: reconnects + self.remade.load(Ordering::Relaxed),
        }
    }

    /// Reads the slots from whoever tells them first, the known masters before the seeds.
    async fn read(&self) {
        let mut candidates: Vec<RedisNode> =
            self.map.load().as_ref().map_or(Vec::new(), |map| map.masters().to_vec());
        candidates.shuffle(&mut rand::rng());
        candidates
            .extend(self.seeds.iter().filter(|seed| !candidates.contains(seed)).cloned().collect::<Vec<_>>());
        // Those that are connected answer at once; for the others one limit is enough, side by side.
        let answers = join_all(candidates.iter().map(async |node| {
            let mut question = redis::cmd("CLUSTER");
            question.arg("SLOTS");
            let answer = self.server(node).command(&question, SLOTS_LIMIT).await?;
            match refusal(&answer) {
                Some(refusal) => Err(StoreError::Refused(refusal)),
                None => SlotMap::read(&answer, node).ok_or(StoreError::Refused(Refusal::Other)),
            }
        }))
        .await;
        let mut best: Option<SlotMap> = None;
        let mut failure = StoreError::Unreachable;
        // Masters vote: the map that most of them tell is the newest, unless most are behind.
        let maps: Vec<&SlotMap> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        let votes = |map: &SlotMap| maps.iter().filter(|other| **other == map).count();
        if let Some(map) = maps.iter().max_by_key(|map| (votes(map), map.masters().len())) {
            best = Some((*map).clone());
        } else if let Some(Err(error)) =
            answers.iter().find(|answer| matches!(answer, Err(StoreError::Refused(_))))
        {
            failure = *error;
        }
        self.settle(best.filter(|map| !map.masters().is_empty()), failure);
        self.readings.send_modify(|readings| *readings += 1);
    }

    /// Counts the masters of the map so far that serve nothing in the next one, each as a connection made anew: a
    /// replica that took over is another server, and may lack the last of what its master acknowledged. A slot that
    /// moves between masters takes its keys along, and counts only with the last one of a master.
    fn count_replaced(&self, next: &SlotMap) {
        let known = self.map.load();
        let gone = known.iter().flat_map(|map| map.masters()).filter(|node| !next.masters().contains(node));
        self.remade.fetch_add(gone.count() as u64, Ordering::Relaxed);
    }

    fn settle(&self, map: Option<SlotMap>, failure: StoreError) {
        let connected = map.is_some();
        if let Some(map) = map {
            self.count_replaced(&map);
            let named: Vec<String> =
                map.masters().iter().chain(&self.seeds).map(ToString::to_string).collect();
            let gone: Vec<Kept> = self
                .servers
                .lock()
                .extract_if(|node, _| !named.contains(node))
                .map(|(_, kept)| kept)
                .collect();
            self.remade
                .fetch_add(gone.iter().map(|kept| kept.server.status().reconnects).sum(), Ordering::Relaxed);
            drop(gone);
            self.map.store(Some(Arc::new(map)));
        }
        let mut status = self.status.lock();
        let news = status.connected != connected || (!connected && status.last_error.is_none());
        if news {
            status.since = Instant::now();
        }
        status.connected = connected;
        status.answer = failure;
        if !connected {
            status.last_error = Some(failure.to_string());
        }
        drop(status);
        match (news, connected) {
            (true, true) => tracing::info!(redis = %self.name, "connected to the Redis Cluster"),
            (true, false) => {
                tracing::warn!(redis = %self.name, error = %failure, "no connection to the Redis Cluster; trying again");
            }
            (false, _) => {}
        }
    }
}

/// Keeps the map. Ends only by being dropped.
pub(super) async fn keep(cluster: Arc<Cluster>) {
    loop {
        cluster.read().await;
        let pause = if cluster.status.lock().connected { READ_EVERY } else { READ_PAUSE };
        tokio::time::sleep(READ_PAUSE).await;
        tokio::select! {
            () = cluster.stale.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Who gets which commands. Commands without a key go with the first one that has a key.
fn ways(map: &SlotMap, commands: &[&Cmd]) -> Result<Parts, StoreError> {
    let mut parts = Parts::new();
    let anywhere = commands.iter().find_map(|cmd| slot_of_command(cmd)).and_then(|slot| map.master(slot));
    for (place, cmd) in commands.iter().enumerate() {
        let node = match slot_of_command(cmd) {
            Some(slot) => map.master(slot),
            None => anywhere.or(map.masters().first()),
        };
        let node = node.ok_or(StoreError::Refused(Refusal::Moved))?;
        match parts.iter_mut().find(|(way, _)| way.node == *node) {
            Some((_, places)) => places.push(place),
            None => parts.push((Way { node: node.clone(), asking: false }, vec![place])),
        }
    }
    Ok(parts)
}

fn add(parts: &mut Parts, way: Way, place: usize) {
    match parts.iter_mut().find(|(known, _)| *known == way) {
        Some((_, places)) => places.push(place),
        None => parts.push((way, vec![place])),
    }
}

/// Where an answer says that the command belongs.
fn redirection(value: &Value) -> Option<Way> {
    let Value::ServerError(error) = value else { return None };
    let asking = match error.code() {
        "MOVED" => false,
        "ASK" => true,
        _ => return None,
    };
    // `3999 127.0.0.1:6381`; an IPv6 host comes without brackets.
    let (_, address) = error.details()?.split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    if host.is_empty() {
        return None;
    }
    Some(Way { node: RedisNode { host: host.to_owned(), port: port.parse().ok()? }, asking })
}
