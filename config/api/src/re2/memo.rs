//! Remembers what became of expressions, so that objects which are read again and again are not compiled again.

use std::collections::HashMap;
use std::mem;

use regex::Regex;

use super::RegexError;

/// A compiled expression, or why there is none.
pub(super) type Outcome = Result<Regex, RegexError>;

/// How much memory a remembered expression may take for each part of its weight, bytes.
pub(super) const BYTES_OF_WEIGHT: usize = 64 << 10;

/// The most that both halves weigh together: 4,096 expressions, and 256 MiB where they are large.
pub(super) const MOST_WEIGHT: usize = 4_096;

/// Outcomes by expression, in two halves. What is asked for is in the newer one; when that is full it becomes the older
/// one, and what was in the older one and not asked for meanwhile is forgotten.
#[derive(Debug)]
pub(super) struct Memo {
    newer: HashMap<Box<str>, Remembered>,
    older: HashMap<Box<str>, Remembered>,
    weight: usize,
    most_of_half: usize,
}

#[derive(Debug)]
struct Remembered {
    outcome: Outcome,
    weight: usize,
}

impl Memo {
    /// Remembers this much.
    pub(super) fn new(most: usize) -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), weight: 0, most_of_half: most / 2 }
    }

    /// What became of an expression.
    pub(super) fn recall(&mut self, pattern: &str) -> Option<Outcome> {
        if let Some(known) = self.newer.get(pattern) {
            return Some(known.outcome.clone());
        }
        let (pattern, known) = self.older.remove_entry(pattern)?;
        let outcome = known.outcome.clone();
        self.admit(pattern, known);
        Some(outcome)
    }

    /// Remembers what became of an expression whose program has this weight. Gives back what is to be used: two that
    /// compiled the same at the same time share what came first.
    pub(super) fn remember(&mut self, pattern: &str, outcome: Outcome, weight: usize) -> Outcome {
        if let Some(known) = self.recall(pattern) {
            return known;
        }
        let said = outcome.as_ref().map_or_else(|problem| problem.at.len() + problem.what.len(), |_| 0);
        let texts = 1 + (pattern.len() + said) / BYTES_OF_WEIGHT;
        let weight = weight.max(texts);
        if weight <= self.most_of_half {
            self.admit(pattern.into(), Remembered { outcome: outcome.clone(), weight });
        }
        outcome
    }

    fn admit(&mut self, pattern: Box<str>, known: Remembered) {
        if self.weight + known.weight > self.most_of_half {
            self.older = mem::take(&mut self.newer);
            self.weight = 0;
        }
        self.weight += known.weight;
        self.newer.insert(pattern, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Outcome {
        Err(RegexError::new("no", name))
    }

    fn reason(outcome: Outcome) -> String {
        outcome.map_or_else(|problem| problem.at, |regex| regex.to_string())
    }

    fn knows(memo: &Memo, name: &str) -> bool {
        memo.newer.contains_key(name) || memo.older.contains_key(name)
    }

    fn weight(memo: &Memo) -> usize {
        memo.newer.values().chain(memo.older.values()).map(|known| known.weight).sum()
    }

    #[test]
    fn it_never_weighs_more_than_it_may() {
        let mut memo = Memo::new(64);
        for number in 0..10_000 {
            assert!(memo.remember(&number.to_string(), failed("x"), 1 + number % 7).is_err());
            assert!(weight(&memo) <= 64 && memo.newer.len() + memo.older.len() <= 64);
        }
        assert!(memo.recall("9999").is_some() && memo.recall("0").is_none());
    }

    #[test]
    fn what_is_asked_for_stays() {
        let mut memo = Memo::new(64);
        assert!(memo.remember("often", failed("x"), 1).is_err());
        for number in 0..1_000 {
            assert!(memo.remember(&number.to_string(), failed("x"), 1).is_err());
            assert!(memo.recall("often").is_some(), "forgotten after {number}");
        }
        assert!(!knows(&memo, "0"));
    }

    #[test]
    fn long_texts_weigh_too_and_giants_are_not_remembered() {
        let mut memo = Memo::new(64);
        let long = "a".repeat(3 * BYTES_OF_WEIGHT);
        assert_eq!(reason(memo.remember(&long, failed("x"), 1)), "x");
        assert_eq!(weight(&memo), 4);
        assert!(memo.remember("long problem", failed(&long), 1).is_err());
        assert_eq!(weight(&memo), 8);
        let giant = "b".repeat(32 * BYTES_OF_WEIGHT);
        assert!(memo.remember(&giant, failed("x"), 1).is_err());
        assert!(!knows(&memo, &giant) && knows(&memo, &long));
    }

    #[test]
    fn the_first_of_two_is_the_one() {
        let mut memo = Memo::new(64);
        assert_eq!(reason(memo.remember("a", failed("first"), 1)), "first");
        assert_eq!(reason(memo.remember("a", failed("second"), 1)), "first");
        assert_eq!(weight(&memo), 1);
    }
}
