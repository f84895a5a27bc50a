//! Which replica leads: the one that holds a Lease of the cluster.
//!
//! The rule that keeps two from leading: whoever holds the lease stops to lead [`LEADS_FOR`] after it *asked* for its
//! last renewal, if no other succeeded; whoever wants it waits until it has *seen* the same record for as long as the
//! record says, on its own clock. Times that others wrote are never compared with anything.

mod api;
mod candidate;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::retry::{Complaints, spread};
pub(crate) use api::ClusterLease;
use api::LeaseApi;
use candidate::{Candidate, Step};

/// What the record says: how long others wait after the last renewal that they saw.
const LEASE_LASTS: Duration = Duration::from_secs(15);
/// How long one leads after it asked for a renewal. The rest up to [`LEASE_LASTS`] is for clocks that run differently
/// and for what is under way when it ends.
const LEADS_FOR: Duration = Duration::from_secs(10);
/// How often the leader renews.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// The longest wait between looks of those that do not lead, and of a leader whose renewal failed.
const RETRY_EVERY: Duration = Duration::from_secs(2);
/// How long an attempt may take, its two calls together.
const ATTEMPT_LASTS: Duration = Duration::from_secs(5);
/// How long giving the lease back may take when the router stops.
const RELEASE_LASTS: Duration = Duration::from_secs(3);

/// Whether this replica leads. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: Arc<Mutex<Term>>,
    changes: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Term {
    until: Option<Instant>,
    holder: Option<String>,
}

impl Leadership {
    /// Whether this replica leads at this moment. Asked right before everything that only a leader may do.
    pub fn holds(&self) -> bool {
        self.term.lock().until.is_some_and(|until| Instant::now() < until)
    }

    /// Who holds the lease, as far as is known.
    pub fn holder(&self) -> Option<String> {
        self.term.lock().holder.clone()
    }

    /// Tells when leading begins and ends; the end a moment late where the task did not get to run.
    pub(crate) fn changes(&self) -> watch::Receiver<bool> {
        self.changes.clone()
    }

    /// A leadership that is given and taken by hand: by the sender, after [`Leadership::set`].
    #[cfg(test)]
    pub(crate) fn by_hand() -> (watch::Sender<bool>, Self) {
        let (sender, changes) = watch::channel(false);
        (sender, Self { term: Arc::default(), changes })
    }

    /// Gives or takes it.
    #[cfg(test)]
    pub(crate) fn set(&self, sender: &watch::Sender<bool>, leads: bool) {
        self.term.lock().until = leads.then(|| Instant::now() + Duration::from_secs(1_000_000));
        sender.send_replace(leads);
    }
}

/// One replica that stands for the lease.
#[derive(Debug)]
pub(crate) struct Campaign<A> {
    api: A,
    candidate: Candidate,
    term: Arc<Mutex<Term>>,
    changes: watch::Sender<bool>,
    complaints: Complaints,
}

impl<A: LeaseApi> Campaign<A> {
    /// A replica of this name, which must be its own.
    pub(crate) fn new(api: A, name: impl Into<String>) -> (Self, Leadership) {
        let (changes, receiver) = watch::channel(false);
        let term = Arc::new(Mutex::new(Term::default()));
        let leadership = Leadership { term: Arc::clone(&term), changes: receiver };
        let candidate = Candidate::new(name.into());
        (Self { api, candidate, term, changes, complaints: Complaints::default() }, leadership)
    }

    /// Stands for the lease until told to stop, then gives it back.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.stand()).await;
        let held = self.candidate.leads_until().is_some();
        self.candidate.resign();
        self.publish();
        if held && tokio::time::timeout(RELEASE_LASTS, self.release()).await.is_err() {
            tracing::debug!("the lease could not be given back in time; it runs out by itself");
        }
    }

    async fn stand(&mut self) {
        loop {
            let renewed = self.attempt().await;
            self.publish();
            let wait = if renewed { RENEW_EVERY } else { spread(RETRY_EVERY) };
            let next = Instant::now() + wait;
            if let Some(end) = self.candidate.leads_until().filter(|end| *end < next) {
                tokio::time::sleep_until(end).await;
                self.publish();
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Looks at the lease, and takes or renews it if that is due. Says whether it is ours now.
    async fn attempt(&mut self) -> bool {
        let started = Instant::now();
        let left = self.candidate.leads_until().map_or(ATTEMPT_LASTS, |end| end.duration_since(started));
        let limit = if left.is_zero() { ATTEMPT_LASTS } else { left.min(ATTEMPT_LASTS) };
        match tokio::time::timeout(limit, self.look_and_take()).await {
            Ok(Ok(ours)) => {
                self.complaints.over();
                ours
            }
            Ok(Err(problem)) => {
                if self.complaints.due_once("failed") {
                    tracing::warn!(
                        "the lease cannot be had, so statuses are not written from here: {problem}"
                    );
                }
                false
            }
            Err(_) => {
                if self.complaints.due_once("slow") {
                    tracing::warn!("the API server does not answer about the lease");
                }
                false
            }
        }
    }

    async fn look_and_take(&mut self) -> Result<bool, A::Problem> {
        let found = self.api.read().await?;
        let spec = found.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        let step = self.candidate.look(spec, Instant::now(), jiff::Timestamp::now());
        let started = Instant::now();
        let written = match (step, found) {
            (Step::Wait, _) => return Ok(false),
            (Step::Write(spec), Some(lease)) => self.api.replace(Lease { spec: Some(spec), ..lease }).await?,
            (Step::Write(spec), None) => self.api.create(spec).await?,
        };
        let Some(written) = written else { return Ok(false) };
        self.candidate.took(written.spec.unwrap_or_default(), started, Instant::now());
        Ok(true)
    }

    /// Takes our name off the lease, so that another may have it at once.
    async fn release(&mut self) {
        let Ok(Some(lease)) = self.api.read().await else { return };
        let spec = lease.spec.clone().unwrap_or_default();
        let Some(spec) = self.candidate.released(spec, jiff::Timestamp::now()) else { return };
        if let Err(problem) = self.api.replace(Lease { spec: Some(spec), ..lease }).await {
            tracing::debug!("the lease could not be given back: {problem}");
        }
    }

    fn publish(&mut self) {
        let until = self.candidate.leads_until();
        *self.term.lock() = Term { until, holder: self.candidate.holder().map(str::to_owned) };
        let leads = until.is_some_and(|until| Instant::now() < until);
        let changed = self.changes.send_if_modified(|before| std::mem::replace(before, leads) != leads);
        if changed && leads {
            tracing::info!("this replica leads: it writes statuses");
        } else if changed {
            tracing::info!("this replica no longer leads");
        }
    }
}

#[cfg(test)]
mod tests;
