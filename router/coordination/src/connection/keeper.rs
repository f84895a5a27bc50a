//! The task that makes the connection, looks after it, and makes it anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvasir_settings::redis::{RedisNode, RedisTopology};
use rand::RngExt;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{ErrorKind, RedisError, RedisResult};

use super::answer::{StoreError, describe};
use super::plan::{CONNECT_LIMIT, Plan};
use super::sentinel::{self, Sentinels};
use super::server::{Live, Server};

/// The first wait after a failed attempt; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How often a connection that nobody complains about is looked at. Finds peers that left without a word.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long a ping may take before a connection is given up. It may wait behind a big answer on a thin line, and a
/// server that is merely slow is not to be punished with a new connection. Callers wait no longer than they want.
const PING_LIMIT: Duration = Duration::from_secs(1);
/// The shortest time between two replacements of a connection that still works.
const REPLACE_EVERY: Duration = Duration::from_secs(1);

/// Connects, for ever. Ends only by being dropped.
pub(super) async fn keep(server: Arc<Server>) {
    let mut wait = Backoff::default();
    loop {
        match connect(&server.plan).await {
            Ok((connection, node)) => {
                server.up(connection, node);
                let since = Instant::now();
                watch(&server).await;
                // A server that accepts and hangs up at once is not hammered.
                if since.elapsed() >= LONGEST_WAIT {
                    wait = Backoff::default();
                }
            }
            Err(error) => server.down(StoreError::of(&error), &describe(&error)),
        }
        tokio::time::sleep(wait.next()).await;
    }
}

/// Waits that double, each somewhere between half and the whole.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let whole = self.0;
        self.0 = (whole * 2).min(LONGEST_WAIT);
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

/// Looks after the connection until there is none.
async fn watch(server: &Server) {
    let mut replaced: Option<Instant> = None;
    loop {
        tokio::select! {
            () = server.attention.notified() => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        let Some(live) = server.live.load_full() else { return };
        if server.misplaced.load(Ordering::Relaxed) {
            if let Some(last) = replaced.replace(Instant::now()) {
                tokio::time::sleep(REPLACE_EVERY.saturating_sub(last.elapsed())).await;
            }
            server.misplaced.store(false, Ordering::Relaxed);
            replace(server, &live).await;
            continue;
        }
        match check(server, &live).await {
            Health::Good => {}
            Health::Elsewhere => server.misplaced(),
            Health::Gone(why) => {
                server.down(StoreError::Unreachable, &why);
                return;
            }
        }
    }
}

/// Makes another connection beside the one in use and changes over. Where that fails there is none: the server said
/// that it is the wrong one, and no right one is known.
async fn replace(server: &Server, live: &Live) {
    match connect(&server.plan).await {
        Ok((connection, node)) => {
            if node != live.node {
                tracing::warn!(redis = %server.name, "Redis has another master now");
            }
            server.up(connection, node);
        }
        Err(error) => server.down(StoreError::of(&error), &describe(&error)),
    }
}

enum Health {
    Good,
    /// Another server is the master.
    Elsewhere,
    Gone(String),
}

async fn check(server: &Server, live: &Live) -> Health {
    let mut connection = live.connection.clone();
    match tokio::time::timeout(PING_LIMIT, greet(&mut connection)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if matches!(StoreError::of(&error), StoreError::Refused(_)) => {
            return Health::Elsewhere;
        }
        Ok(Err(error)) => return Health::Gone(describe(&error)),
        Err(_) => return Health::Gone("the server does not answer".to_owned()),
    }
    match &server.plan.topology {
        RedisTopology::Sentinel { .. } => still_master(server, live, &mut connection).await,
        _ => Health::Good,
    }
}

/// Whether the sentinels still name the server that we use, and it still calls itself the master. Sentinels that do not
/// answer change nothing.
async fn still_master(server: &Server, live: &Live, connection: &mut MultiplexedConnection) -> Health {
    if let Ok(Ok(false)) = tokio::time::timeout(PING_LIMIT, sentinel::is_master(connection)).await {
        return Health::Elsewhere;
    }
    let Some(sentinels) = sentinels(&server.plan) else { return Health::Good };
    match sentinel::ask(&server.plan, sentinels).await {
        Ok(master) if live.node != master => Health::Elsewhere,
        _ => Health::Good,
    }
}

fn sentinels(plan: &Plan) -> Option<Sentinels<'_>> {
    match &plan.topology {
        RedisTopology::Sentinel { sentinels, master, username, password } => Some(Sentinels {
            nodes: sentinels,
            master,
            username: username.as_deref(),
            password: password.as_ref(),
        }),
        _ => None,
    }
}

async fn connect(plan: &Plan) -> RedisResult<(MultiplexedConnection, RedisNode)> {
    let attempt = async {
        let node = match (&plan.topology, sentinels(plan)) {
            (_, Some(sentinels)) => sentinel::ask(plan, sentinels).await?,
            (RedisTopology::Single(node), None) => node.clone(),
            _ => {
                return Err(RedisError::from((
                    ErrorKind::InvalidClientConfig,
                    "a Cluster is no single server",
                )));
            }
        };
        let client = plan.client(&node)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&Plan::config()).await?;
        greet(&mut connection).await?;
        if matches!(plan.topology, RedisTopology::Sentinel { .. })
            && !sentinel::is_master(&mut connection).await?
        {
            return Err(not_master());
        }
        Ok((connection, node))
    };
    // Sentinels are asked one after the other, so their time comes on top.
    let limit = match &plan.topology {
        RedisTopology::Sentinel { sentinels, .. } => CONNECT_LIMIT * (1 + sentinels.len().min(8) as u32),
        _ => CONNECT_LIMIT,
    };
    match tokio::time::timeout(limit, attempt).await {
        Ok(result) => result,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

/// Whether the server takes commands from us: it may want a password first, or still be loading. A user who may not
/// ping is taken for one who may do what was meant for it.
async fn greet(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    match connection.req_packed_command(&redis::cmd("PING")).await?.extract_error() {
        Err(error) if error.code() != Some("NOPERM") => Err(error),
        _ => Ok(()),
    }
}

fn not_master() -> RedisError {
    RedisError::from((
        ErrorKind::MasterNameNotFoundBySentinel,
        "the sentinels name a server that is no master",
    ))
}
