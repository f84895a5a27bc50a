//! Evidence for and against a source: does the engine count as many prompt tokens as the source gave?

use parking_lot::Mutex;
use serde::Serialize;

/// Contradictions that end the trust in a source.
const MOST_CONTRADICTIONS: u32 = 3;

/// Agreements in a row that make up for earlier contradictions: a date that changed at midnight in another time zone
/// must not, over weeks, demote a tokenizer that is right.
const FORGIVING_AGREEMENTS: u32 = 1_000;

/// What is known about a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// No answer has been compared yet.
    #[default]
    Unverified,
    /// Answers agreed.
    Exact,
    /// Some answers disagreed.
    Differs,
}

impl Proof {
    /// Lower-case name, as in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unverified => "unverified",
            Self::Exact => "exact",
            Self::Differs => "differs",
        }
    }
}

/// What an observation led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing changed.
    Unchanged,
    /// The source has just been demoted.
    Demoted,
}

/// The record of one source.
#[derive(Debug, Default)]
pub struct Record(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    agreements: u64,
    agreements_in_a_row: u32,
    contradictions: u64,
    unforgiven: u32,
    demoted: bool,
}

impl Record {
    /// Notes one comparison.
    pub fn note(&self, agrees: bool) -> Verdict {
        let mut counts = self.0.lock();
        if agrees {
            counts.agreements += 1;
            counts.agreements_in_a_row = counts.agreements_in_a_row.saturating_add(1);
            if counts.agreements_in_a_row >= FORGIVING_AGREEMENTS {
                counts.unforgiven = 0;
            }
            return Verdict::Unchanged;
        }
        counts.contradictions += 1;
        counts.agreements_in_a_row = 0;
        counts.unforgiven += 1;
        if counts.unforgiven >= MOST_CONTRADICTIONS && !counts.demoted {
            counts.demoted = true;
            return Verdict::Demoted;
        }
        Verdict::Unchanged
    }

    /// Trusts the source anew: what it was compared with has changed. The counts stay.
    pub fn reset(&self) {
        let mut counts = self.0.lock();
        counts.unforgiven = 0;
        counts.agreements_in_a_row = 0;
        counts.demoted = false;
    }

    /// Whether the source is not asked any more.
    pub fn is_demoted(&self) -> bool {
        self.0.lock().demoted
    }

    /// Agreements and contradictions so far.
    pub fn counts(&self) -> (u64, u64) {
        let counts = self.0.lock();
        (counts.agreements, counts.contradictions)
    }

    /// What is known.
    pub fn proof(&self) -> Proof {
        let counts = self.0.lock();
        match (counts.unforgiven, counts.agreements) {
            (1.., _) => Proof::Differs,
            (0, 1..) => Proof::Exact,
            (0, 0) => Proof::Unverified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_contradictions_demote_once() {
        let record = Record::default();
        assert_eq!(record.proof(), Proof::Unverified);
        record.note(true);
        assert_eq!(record.proof(), Proof::Exact);
        let verdicts: Vec<_> = (0..4).map(|_| record.note(false)).collect();
        assert_eq!(verdicts, [Verdict::Unchanged, Verdict::Unchanged, Verdict::Demoted, Verdict::Unchanged]);
        assert!(record.is_demoted());
        assert_eq!((record.proof(), record.counts()), (Proof::Differs, (1, 4)));
    }

    #[test]
    fn a_long_run_of_agreement_forgives() {
        let record = Record::default();
        for _ in 0..5 {
            record.note(false);
            record.note(false);
            assert!((0..FORGIVING_AGREEMENTS).all(|_| record.note(true) == Verdict::Unchanged));
            assert_eq!(record.proof(), Proof::Exact);
        }
        assert!(!record.is_demoted());
    }
}
