//! Passive health of one endpoint: what its attempts say about it, and when it may be tried again.

use std::time::{Duration, Instant};

/// Failures in a row, other than failed connections, that take an endpoint out.
const MAX_FAILURES: u32 = 3;
/// How long an endpoint is out the first time. Doubles with each further time until an answer comes.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// Longest time out.
const MAX_BACK_OFF: Duration = Duration::from_secs(30);

/// How one attempt went, as far as it tells of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// It answered; 4xx included, for a bad request is no fault of the engine's.
    Ok,
    /// No connection was made: refused, unreachable, or not in time.
    ConnectFailed,
    /// It answered with this status of 500 or more.
    Status5xx(u16),
    /// It took the request and did not answer in time.
    FirstByteTimeout,
    /// The connection died after the request was sent.
    DiedAfterSend,
}

impl Attempt {
    /// Whether the endpoint is to blame. 501 and 505 are about the request, like 4xx.
    fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Status5xx(..=499 | 501 | 505))
    }
}

/// Where an endpoint stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// In service.
    In,
    /// Out until its back-off has passed.
    Out,
    /// Out, but one request may try it.
    Trial,
}

/// What changed, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Taken out, for this long.
    Out(Duration),
    /// Back in service.
    Back,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ejection {
    until: Instant,
    /// Whether connections failed. Only then does a good probe prove recovery: an engine that drains or hangs
    /// answers `/health` with 200 while requests fail.
    unreachable: bool,
}

/// The health of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Health {
    /// Failures in a row.
    failures: u32,
    /// Times out since the last answer.
    ejections: u32,
    ejection: Option<Ejection>,
}

impl Health {
    /// Where the endpoint stands at `now`.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        match self.ejection {
            None => Standing::In,
            Some(ejection) if now < ejection.until => Standing::Out,
            Some(_) => Standing::Trial,
        }
    }

    /// Takes in how an attempt went.
    pub(crate) fn report(&mut self, attempt: Attempt, now: Instant) -> Option<Turn> {
        if !attempt.is_failure() {
            let was_out = self.ejection.is_some();
            *self = Self::default();
            return was_out.then_some(Turn::Back);
        }
        let unreachable = attempt == Attempt::ConnectFailed;
        self.failures = self.failures.saturating_add(1);
        match &mut self.ejection {
            // Attempts that were under way when it was taken out say nothing new about its back-off.
            Some(ejection) if now < ejection.until => {
                ejection.unreachable |= unreachable;
                None
            }
            Some(_) => Some(self.eject(unreachable, now)),
            None if unreachable || self.failures >= MAX_FAILURES => Some(self.eject(unreachable, now)),
            None => None,
        }
    }

    /// Takes in an active probe. Means nothing for an endpoint in service.
    pub(crate) fn probed(&mut self, healthy: bool, now: Instant) -> Option<Turn> {
        let back_off = self.back_off();
        let ejection = self.ejection.as_mut()?;
        if !healthy {
            // No request is spent on a trial that a probe has just failed.
            ejection.until = ejection.until.max(now + back_off);
            return None;
        }
        if !ejection.unreachable {
            return None;
        }
        // The count of ejections stays: one that fails again at once is out for longer.
        self.ejection = None;
        self.failures = 0;
        Some(Turn::Back)
    }

    fn eject(&mut self, unreachable: bool, now: Instant) -> Turn {
        self.ejections = self.ejections.saturating_add(1);
        let back_off = self.back_off();
        self.ejection = Some(Ejection { until: now + back_off, unreachable });
        Turn::Out(back_off)
    }

    fn back_off(&self) -> Duration {
        let doublings = self.ejections.saturating_sub(1).min(16);
        (FIRST_BACK_OFF * (1 << doublings)).min(MAX_BACK_OFF)
    }
}

#[cfg(test)]
mod tests;
