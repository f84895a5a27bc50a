//! Who may write a pod's blocks: one writer at a time, while its lease lasts.

use std::time::{Duration, Instant};

use crate::connection::{Redis, StoreError};
use crate::key;

use super::WriterNames;

/// Claims, see there.
const CLAIM: &str = include_str!("claim.lua");
/// Gives the lease up where it is ours.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// How long the mark outlives its writer, seconds.
const MARK_SECONDS: u64 = 7 * 86_400;
/// How long the lease outlives its writer. A dead agent's successor waits that long.
pub(super) const LEASE: Duration = Duration::from_secs(6);
/// How often the lease is renewed, and asked for while another has it.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// What a claim came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The lease is ours.
    Ours {
        /// The store has our mark from before, so what we wrote is there.
        known: bool,
    },
    /// Another living writer has it.
    Theirs,
}

/// One writer's part of the lease.
#[derive(Debug)]
pub(super) struct Lease {
    /// This writer's life.
    id: String,
    /// When it was last asked for, and what came of it.
    last: Option<(Instant, Claim)>,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self { id: uuid::Uuid::new_v4().to_string(), last: None }
    }

    /// Whether it is time to claim.
    pub(super) fn is_due(&self) -> bool {
        self.last.is_none_or(|(at, _)| at.elapsed() >= RENEW_EVERY)
    }

    /// Whether commands that take at most `limit` may be sent now: they must have ended when the lease does.
    pub(super) fn allows(&self, limit: Duration) -> bool {
        let held = self.last.filter(|(_, claim)| matches!(claim, Claim::Ours { .. }));
        held.is_some_and(|(at, _)| at.elapsed() + limit < LEASE)
    }

    /// Whether another writer was found at work.
    pub(super) fn stands_by(&self) -> bool {
        self.last.is_some_and(|(_, claim)| claim == Claim::Theirs)
    }

    /// The next call claims.
    pub(super) fn doubt(&mut self) {
        self.last = None;
    }

    /// Asks for the lease, or renews it.
    pub(super) async fn claim(
        &mut self,
        redis: &Redis,
        names: &WriterNames,
        limit: Duration,
    ) -> Result<Claim, StoreError> {
        let begun = Instant::now();
        let mut claim = redis::cmd("EVAL");
        claim.arg(CLAIM).arg(2);
        claim.arg(key::kthena_writer(&names.model, &names.pod));
        claim.arg(key::kthena_writer_lease(&names.model, &names.pod));
        claim.arg(&self.id).arg(MARK_SECONDS).arg(u64::try_from(LEASE.as_millis()).unwrap_or(0));
        let (ours, mark): (bool, Option<String>) = redis.query(&claim, limit).await?;
        let claim = if ours { Claim::Ours { known: mark.as_ref() == Some(&self.id) } } else { Claim::Theirs };
        self.last = Some((begun, claim));
        Ok(claim)
    }

    /// Gives the lease up, so that a successor need not wait for its end.
    pub(super) async fn release(
        &mut self,
        redis: &Redis,
        names: &WriterNames,
        limit: Duration,
    ) -> Result<(), StoreError> {
        self.last = None;
        let mut release = redis::cmd("EVAL");
        release.arg(RELEASE).arg(1).arg(key::kthena_writer_lease(&names.model, &names.pod)).arg(&self.id);
        redis.query::<u64>(&release, limit).await.map(drop)
    }
}
