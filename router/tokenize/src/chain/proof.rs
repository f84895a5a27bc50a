//! Evidence for and against a source: does the engine count as many prompt tokens as the source gave?

use parking_lot::Mutex;
use serde::Serialize;

/// Contradictions that end the trust in a source, where they are also [`LEAST_SHARE`] of the last [`LAST`] comparisons.
const LEAST_CONTRADICTIONS: u32 = 3;

/// One in so many: 5 %. A few odd requests among many others are no reason to take the tokens from all.
const LEAST_SHARE: u32 = 20;

/// Comparisons that count. Older ones are forgotten: a date that changed at midnight in another time zone must not, over
/// weeks, demote a tokenizer that is right.
const LAST: u32 = 100;

/// Agreements in a row after which earlier contradictions are not told any more.
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
    contradictions: u64,
    /// Since the source was last trusted anew.
    recent: Recent,
    agreements_in_a_row: u32,
    unforgiven: bool,
    demoted: bool,
}

/// The last comparisons, one bit each; a contradiction is a one, the latest is the lowest.
#[derive(Debug, Default)]
struct Recent {
    bits: u128,
    compared: u32,
}

impl Recent {
    fn push(&mut self, contradiction: bool) {
        self.bits = ((self.bits << 1) | u128::from(contradiction)) & ((1 << LAST) - 1);
        self.compared = (self.compared + 1).min(LAST);
    }

    fn condemns(&self) -> bool {
        condemns(u64::from(self.bits.count_ones()), u64::from(self.compared))
    }
}

/// Whether so many contradictions among so many comparisons are too many.
fn condemns(contradictions: u64, compared: u64) -> bool {
    contradictions >= u64::from(LEAST_CONTRADICTIONS)
        && contradictions.saturating_mul(u64::from(LEAST_SHARE)) >= compared
}

impl Record {
    /// Notes one comparison.
    pub fn note(&self, agrees: bool) -> Verdict {
        let mut counts = self.0.lock();
        counts.note(agrees);
        let condemned = !agrees && counts.recent.condemns();
        counts.demote_if(condemned)
    }

    /// Notes all comparisons of one look. They are many kinds of prompt, so their own share counts, too: agreement on
    /// the prompts of one client says little about others.
    pub fn note_look(&self, agreements: usize, contradictions: usize) -> Verdict {
        let mut counts = self.0.lock();
        (0..agreements).for_each(|_| counts.note(true));
        (0..contradictions).for_each(|_| counts.note(false));
        let (wrong, all) = (contradictions as u64, (agreements + contradictions) as u64);
        let condemned = condemns(wrong, all) || (contradictions > 0 && counts.recent.condemns());
        counts.demote_if(condemned)
    }

    /// Trusts the source anew: what it was compared with has changed. The counts stay.
    pub fn reset(&self) {
        let mut counts = self.0.lock();
        let (agreements, contradictions) = (counts.agreements, counts.contradictions);
        *counts = Counts { agreements, contradictions, ..Counts::default() };
    }

    /// Knows nothing again: the source itself is another one.
    pub fn forget(&self) {
        *self.0.lock() = Counts::default();
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
        match (counts.unforgiven, counts.recent.compared) {
            (true, _) => Proof::Differs,
            (false, 1..) => Proof::Exact,
            (false, 0) => Proof::Unverified,
        }
    }
}

impl Counts {
    fn note(&mut self, agrees: bool) {
        self.recent.push(!agrees);
        if !agrees {
            self.contradictions += 1;
            self.agreements_in_a_row = 0;
            self.unforgiven = true;
            return;
        }
        self.agreements += 1;
        self.agreements_in_a_row = self.agreements_in_a_row.saturating_add(1);
        if self.agreements_in_a_row >= FORGIVING_AGREEMENTS {
            self.unforgiven = false;
        }
    }

    fn demote_if(&mut self, condemned: bool) -> Verdict {
        if condemned && !std::mem::replace(&mut self.demoted, true) {
            return Verdict::Demoted;
        }
        Verdict::Unchanged
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

    fn agree(record: &Record, times: usize) {
        assert!((0..times).all(|_| record.note(true) == Verdict::Unchanged));
    }

    #[test]
    fn contradictions_count_by_their_share_of_the_last_comparisons() {
        let record = Record::default();
        agree(&record, 1_000);
        // Four of a hundred are not enough, however long it goes on.
        for _ in 0..50 {
            assert_eq!(record.note(false), Verdict::Unchanged);
            agree(&record, 24);
        }
        assert!(!record.is_demoted());
        let verdicts: Vec<_> = (0..3).map(|_| record.note(false)).collect();
        assert!(verdicts.contains(&Verdict::Demoted), "{verdicts:?}");
    }

    #[test]
    fn one_look_is_enough_to_demote_whatever_went_before() {
        for (agreements, contradictions, verdict) in
            [(9, 2, Verdict::Unchanged), (8, 3, Verdict::Demoted), (0, 1, Verdict::Unchanged)]
        {
            let record = Record::default();
            agree(&record, 1_000);
            assert_eq!(record.note_look(agreements, contradictions), verdict, "{contradictions}");
        }
    }

    #[test]
    fn what_is_trusted_anew_is_not_proven_by_what_went_before() {
        let record = Record::default();
        record.note(true);
        record.reset();
        assert_eq!((record.proof(), record.counts()), (Proof::Unverified, (1, 0)));
        record.note(true);
        assert_eq!(record.proof(), Proof::Exact);
        record.forget();
        assert_eq!((record.proof(), record.counts()), (Proof::Unverified, (0, 0)));
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
