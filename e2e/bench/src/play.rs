//! A closed loop of clients: each sends its next request when the answer to the one before is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::exchange::{Connection, Site};
use crate::figures::Figures;
use crate::prompt::Conversations;

/// A client gives up after this many failures in a row: the other side is gone.
const FAILURES_IN_A_ROW: u32 = 20;

/// How connections are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connections {
    /// One for each client, opened before the clock starts.
    Kept,
    /// A new one for each request, its opening part of the request's time.
    New,
}

/// Which bodies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Each conversation by one client, from turn `from` on, `turns` turns.
    Turns {
        /// The first turn that is sent.
        from: u32,
        /// How many are.
        turns: u32,
    },
    /// Requests that share the first part of one of so many conversations.
    Shared {
        /// How many.
        groups: u64,
    },
}

/// What is played.
#[derive(Clone, Debug)]
pub struct Work {
    /// Where to.
    pub site: Site,
    /// How many clients.
    pub clients: usize,
    /// Connections.
    pub connections: Connections,
    /// Bodies.
    pub plan: Plan,
    /// Conversations (for [`Plan::Shared`]: requests) at most.
    pub most: u64,
    /// No request is begun later than this.
    pub time: Duration,
}

/// Plays `work` to its end and gives what all clients saw, with the time it took.
///
/// # Errors
/// When the first connections cannot be opened.
pub async fn play(
    work: Work,
    conversations: Arc<Conversations<'static>>,
) -> anyhow::Result<(Figures, Duration)> {
    let work = Arc::new(work);
    let next = Arc::new(AtomicU64::new(0));
    let mut open = Vec::with_capacity(work.clients);
    for _ in 0..work.clients {
        open.push(match work.connections {
            Connections::Kept => Some(Connection::open(&work.site).await?),
            Connections::New => None,
        });
    }
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for connection in open {
        let client = Client {
            work: Arc::clone(&work),
            conversations: Arc::clone(&conversations),
            next: Arc::clone(&next),
            connection,
            deadline: started + work.time,
            failures: 0,
        };
        clients.spawn(client.run());
    }
    let mut all = Figures::new()?;
    while let Some(figures) = clients.join_next().await {
        all.add(&figures??)?;
    }
    Ok((all, started.elapsed()))
}

struct Client {
    work: Arc<Work>,
    conversations: Arc<Conversations<'static>>,
    next: Arc<AtomicU64>,
    connection: Option<Connection>,
    deadline: Instant,
    failures: u32,
}

impl Client {
    async fn run(mut self) -> anyhow::Result<Figures> {
        let mut figures = Figures::new()?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.work.most {
                return Ok(figures);
            }
            let turns = match self.work.plan {
                Plan::Turns { from, turns } => from..from + turns,
                Plan::Shared { .. } => 0..1,
            };
            for turn in turns {
                if Instant::now() >= self.deadline || self.failures >= FAILURES_IN_A_ROW {
                    return Ok(figures);
                }
                let body = match self.work.plan {
                    Plan::Turns { .. } => self.conversations.body(number, turn),
                    Plan::Shared { groups } => self.conversations.shared_body(number % groups.max(1), number),
                };
                match self.send(body, &mut figures).await {
                    Ok(()) => self.failures = 0,
                    Err(error) => {
                        self.failures += 1;
                        self.connection = None;
                        figures.fail(|| format!("{error:#}"));
                    }
                }
            }
        }
    }

    async fn send(&mut self, body: Bytes, figures: &mut Figures) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut connection = match self.connection.take() {
            Some(mut kept) => match kept.is_usable().await {
                true => kept,
                false => Connection::open(&self.work.site).await?,
            },
            None => Connection::open(&self.work.site).await?,
        };
        connection.exchange(&self.work.site, body, started, figures).await?;
        if self.work.connections == Connections::Kept {
            self.connection = Some(connection);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
