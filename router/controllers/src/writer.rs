//! Writes statuses: what an object should say and does not, at a bounded rate, and only while this replica leads.

mod agreed;
mod api;
mod found;
mod outbox;
mod wording;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::lease::Leadership;
use crate::retry::BackOff;
use crate::status::StatusKind;
pub(crate) use agreed::Agreed;
pub(crate) use api::ClusterStatus;
use api::{Problem, StatusApi};
use found::Wanted;
pub(crate) use found::wanted;
use outbox::Ended;
pub(crate) use outbox::{Outbox, StatusKey};
use wording::{says, says_some, wording};

/// How long one write may take, its two calls together.
const WRITE_LASTS: Duration = Duration::from_secs(10);
/// The waits after the API server had a problem.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct WriterCounts {
    /// Statuses that were written.
    pub(crate) written: AtomicU64,
    /// Writes that failed, or of which nothing was kept.
    pub(crate) failed: AtomicU64,
}

/// Writes what the outbox holds.
pub(crate) struct Writer<A> {
    api: A,
    outbox: Arc<Outbox>,
    leadership: Leadership,
    controller: String,
    pace: Pace,
    back_off: BackOff,
    counts: Arc<WriterCounts>,
    /// What was said in the log once and for all.
    told: BTreeSet<(StatusKind, &'static str)>,
}

impl<A: StatusApi> Writer<A> {
    /// A writer that speaks as `controller`.
    pub(crate) fn new(
        api: A,
        outbox: Arc<Outbox>,
        leadership: Leadership,
        controller: String,
        pace: Pace,
        counts: Arc<WriterCounts>,
    ) -> Self {
        let back_off = BackOff::new(FIRST_WAIT, LONGEST_WAIT);
        Self { api, outbox, leadership, controller, pace, back_off, counts, told: BTreeSet::new() }
    }

    /// Writes. Never returns.
    pub(crate) async fn run(mut self) {
        loop {
            let taken = self.outbox.take().await;
            if !self.leadership.holds() {
                // Whoever leads next compares everything.
                self.outbox.clear();
                continue;
            }
            tokio::time::sleep_until(self.pace.next(Instant::now())).await;
            let attempt = tokio::time::timeout(WRITE_LASTS, self.write(&taken.wanted)).await;
            let result =
                attempt.unwrap_or_else(|_| Err(Problem::Unavailable("no answer in time".to_owned())));
            let ended = self.conclude(&taken.wanted, result);
            if ended == Ended::Unavailable {
                let wait = self.back_off.wait();
                self.outbox.ended(taken, &ended, wait);
                // What is wrong with one object's write is wrong with all others.
                tokio::time::sleep(wait).await;
            } else {
                self.back_off.reset();
                self.outbox.ended(taken, &ended, Duration::ZERO);
            }
        }
    }

    async fn write(&self, wanted: &Wanted) -> Result<Ended, Problem> {
        let status = &wanted.status;
        let object = match self.api.get(status.kind, &status.name).await {
            Err(Problem::Missing) => return Ok(Ended::Overtaken),
            object => object?,
        };
        let metadata = &object["metadata"];
        let overtaken = metadata["generation"].as_i64() != status.generation
            || (wanted.uid.is_some() && metadata["uid"].as_str() != wanted.uid.as_deref());
        if overtaken || !self.leadership.holds() {
            return Ok(Ended::Overtaken);
        }
        let words = wording(&object["status"], status, &self.controller, jiff::Timestamp::now());
        if says(&object["status"], &words) {
            return Ok(Ended::Settled);
        }
        // With the version that was read: lists are merged here, and somebody else may be merging too.
        let version = &metadata["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": &words});
        let object = self.api.patch(status.kind, &status.name, &patch).await?;
        Ok(if says(&object["status"], &words) {
            Ended::Written
        } else if says_some(&object["status"], &words) {
            Ended::Partly
        } else {
            Ended::Dropped
        })
    }

    /// Counts and says how it went.
    fn conclude(&mut self, wanted: &Wanted, result: Result<Ended, Problem>) -> Ended {
        let (kind, name) = (wanted.status.kind, &wanted.status.name);
        let failed = |counts: &WriterCounts| counts.failed.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(ended @ (Ended::Written | Ended::Partly)) => {
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                if ended == Ended::Partly && self.told.insert((kind, "partly")) {
                    tracing::warn!(?kind, %name, "the API server keeps only a part of the status");
                }
                ended
            }
            Ok(Ended::Dropped) => {
                failed(&self.counts);
                if self.told.insert((kind, "dropped")) {
                    tracing::warn!(
                        ?kind,
                        %name,
                        "the API server keeps no status of this kind: its CustomResourceDefinition has none; \
                         install ours to see what the router makes of its objects"
                    );
                }
                Ended::Dropped
            }
            Ok(ended) => ended,
            Err(Problem::Conflict) => Ended::Overtaken,
            Err(Problem::Missing) => {
                failed(&self.counts);
                if self.told.insert((kind, "missing")) {
                    tracing::warn!(
                        ?kind,
                        %name,
                        "the status cannot be written: its CustomResourceDefinition has no status of its own"
                    );
                }
                Ended::Refused
            }
            Err(Problem::Forbidden(message)) => {
                failed(&self.counts);
                if self.told.insert((kind, "forbidden")) {
                    tracing::warn!(?kind, %name, "the router may not write the status: {message}");
                }
                Ended::Refused
            }
            Err(Problem::Refused(message)) => {
                failed(&self.counts);
                if !self.outbox.was_refused(wanted) {
                    tracing::warn!(?kind, %name, "the API server does not take the status: {message}");
                }
                Ended::Refused
            }
            Err(Problem::Unavailable(message)) => {
                failed(&self.counts);
                tracing::debug!(?kind, %name, "the status could not be written: {message}");
                Ended::Unavailable
            }
        }
    }
}

/// At most so many a second, some of them at once after a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    each: Duration,
    burst: u32,
    /// When the next would come if none ever came early.
    next: Option<Instant>,
}

impl Pace {
    /// `rate` a second, `burst` at once.
    pub(crate) fn new(rate: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { each: Duration::from_secs(1) / rate.get(), burst: burst.get() - 1, next: None }
    }

    /// When the next may be, which is then taken.
    fn next(&mut self, now: Instant) -> Instant {
        let even = self.next.map_or(now, |next| next.max(now));
        self.next = Some(even + self.each);
        let early = self.each.saturating_mul(self.burst);
        even.checked_sub(early).map_or(now, |early| early.max(now))
    }
}

/// The status of an object that says what it should.
#[cfg(test)]
pub(crate) fn said(status: &crate::status::Status, controller: &str) -> serde_json::Value {
    wording(&serde_json::Value::Null, status, controller, jiff::Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
