//! What one replica knows about the lease, and what follows from it: no call, no clock of its own.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use super::{LEADS_FOR, LEASE_LASTS};

/// One replica.
#[derive(Debug)]
pub(super) struct Candidate {
    name: String,
    /// The record as it was last seen, and since when it has been the same.
    seen: Option<(LeaseSpec, Instant)>,
    leads_until: Option<Instant>,
}

/// What to do after a look at the lease.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Somebody else has it.
    Wait,
    /// Write this record: it takes or renews the lease.
    Write(LeaseSpec),
}

impl Candidate {
    pub(super) fn new(name: String) -> Self {
        Self { name, seen: None, leads_until: None }
    }

    /// When leading ends if nothing else happens; `None` if it never began.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    /// Who was last seen to hold the lease.
    pub(super) fn holder(&self) -> Option<&str> {
        let (spec, _) = self.seen.as_ref()?;
        spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// The lease was read; `found` is its record, `None` if there is no lease. `wall` is for people who look at the lease.
    pub(super) fn look(&mut self, found: Option<LeaseSpec>, now: Instant, wall: Timestamp) -> Step {
        let Some(found) = found else {
            self.seen = None;
            return Step::Write(self.record(None, wall));
        };
        let since = match self.seen.take() {
            Some((seen, since)) if seen == found => since,
            _ => now,
        };
        let (seen, since) = self.seen.insert((found, since));
        let holder = seen.holder_identity.as_deref().unwrap_or_default();
        if holder != self.name {
            // It belongs to somebody else now, whatever was believed here.
            self.leads_until = None;
        }
        let free = holder.is_empty() || holder == self.name || now >= *since + lasts(seen);
        if free {
            let seen = seen.clone();
            Step::Write(self.record(Some(&seen), wall))
        } else {
            Step::Wait
        }
    }

    /// The record was written; the call began at `asked`.
    pub(super) fn took(&mut self, written: LeaseSpec, asked: Instant, now: Instant) {
        self.seen = Some((written, now));
        self.leads_until = Some(asked + LEADS_FOR);
    }

    /// Stops to lead at once.
    pub(super) fn resign(&mut self) {
        self.leads_until = None;
    }

    /// The record that gives the lease back; `None` if it is not ours.
    pub(super) fn released(&self, found: LeaseSpec, wall: Timestamp) -> Option<LeaseSpec> {
        (found.holder_identity.as_deref() == Some(&self.name)).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            // One second, as the API server wants a positive number.
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime::from(wall)),
            ..found
        })
    }

    fn record(&self, before: Option<&LeaseSpec>, wall: Timestamp) -> LeaseSpec {
        let wall = Some(MicroTime::from(wall));
        let ours = before.filter(|before| before.holder_identity.as_deref() == Some(&self.name));
        let transitions = before.map_or(-1, |before| before.lease_transitions.unwrap_or(0));
        LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: i32::try_from(LEASE_LASTS.as_secs()).ok(),
            acquire_time: ours.map_or_else(|| wall.clone(), |before| before.acquire_time.clone()),
            renew_time: wall,
            lease_transitions: Some(if ours.is_some() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

/// How long a holder was promised the lease; what it wrote counts, since another version may write another number.
fn lasts(spec: &LeaseSpec) -> Duration {
    spec.lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(LEASE_LASTS, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(name: &str, renewed: i64) -> LeaseSpec {
        let renewed = Timestamp::from_second(renewed).expect("in range");
        LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime::from(renewed)),
            ..LeaseSpec::default()
        }
    }

    fn wall() -> Timestamp {
        Timestamp::from_second(1_000_000).expect("in range")
    }

    fn second(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_lease_that_nobody_has_is_taken() {
        let now = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        assert!(matches!(candidate.look(None, now, wall()), Step::Write(_)));
        let free = LeaseSpec { holder_identity: Some(String::new()), ..held_by("b", 0) };
        let Step::Write(spec) = candidate.look(Some(free), now, wall()) else { panic!("it is free") };
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(1)));
    }

    #[test]
    fn the_wait_begins_with_the_first_look_and_anew_with_every_renewal() {
        let begin = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        // Renewed long ago by the writer's clock, which says nothing.
        assert_eq!(candidate.look(Some(held_by("b", 5)), begin, wall()), Step::Wait);
        assert_eq!(candidate.look(Some(held_by("b", 5)), begin + second(14), wall()), Step::Wait);
        assert_eq!(candidate.look(Some(held_by("b", 6)), begin + second(14), wall()), Step::Wait);
        assert_eq!(candidate.look(Some(held_by("b", 6)), begin + second(28), wall()), Step::Wait);
        assert!(matches!(candidate.look(Some(held_by("b", 6)), begin + second(29), wall()), Step::Write(_)));
        assert_eq!(candidate.holder(), Some("b"));
    }

    #[test]
    fn a_longer_promise_is_kept() {
        let begin = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        let long = LeaseSpec { lease_duration_seconds: Some(60), ..held_by("b", 5) };
        assert_eq!(candidate.look(Some(long.clone()), begin, wall()), Step::Wait);
        assert_eq!(candidate.look(Some(long.clone()), begin + second(59), wall()), Step::Wait);
        assert!(matches!(candidate.look(Some(long), begin + second(60), wall()), Step::Write(_)));
    }

    #[test]
    fn leading_is_counted_from_the_question_and_ends_when_another_holds() {
        let asked = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        candidate.took(held_by("a", 5), asked, asked + second(4));
        assert_eq!(candidate.leads_until(), Some(asked + second(10)));
        let Step::Write(renewed) = candidate.look(Some(held_by("a", 5)), asked + second(5), wall()) else {
            panic!("it is ours")
        };
        assert_eq!(renewed.lease_transitions, Some(0));
        assert_eq!(candidate.look(Some(held_by("b", 9)), asked + second(6), wall()), Step::Wait);
        assert_eq!(candidate.leads_until(), None);
    }

    #[test]
    fn only_our_own_lease_is_given_back() {
        let candidate = Candidate::new("a".to_owned());
        assert_eq!(candidate.released(held_by("b", 5), wall()), None);
        let released = candidate.released(held_by("a", 5), wall()).expect("ours");
        assert_eq!(released.holder_identity.as_deref(), Some(""));
    }
}
