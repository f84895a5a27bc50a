//! Whether two engines give equal blocks equal hashes, so that one's history can anchor the other's blocks.

use std::collections::HashMap;

/// Pairs that must agree before the other's map is used. vLLM 0.32 engines agree for all blocks, 0.18 engines
/// for none, so a handful would do; 64 leaves no room for chance.
const NEEDED: u32 = 64;

/// One life of one owner: a restart may change its hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Life(pub(crate) u64);

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    agreeing: u32,
    disagreeing: bool,
}

/// What one owner found out about the others.
#[derive(Debug, Default)]
pub(crate) struct Agreements {
    pairs: HashMap<Life, Pair>,
}

impl Agreements {
    /// Notes one block that both hold. True at the moment the other becomes trusted.
    pub(crate) fn note(&mut self, other: Life, agrees: bool) -> bool {
        let pair = self.pairs.entry(other).or_default();
        if !agrees {
            pair.disagreeing = true;
            return false;
        }
        pair.agreeing = pair.agreeing.saturating_add(1);
        pair.agreeing == NEEDED && !pair.disagreeing
    }

    pub(crate) fn trusts(&self, other: Life) -> bool {
        self.pairs.get(&other).is_some_and(|pair| pair.agreeing >= NEEDED && !pair.disagreeing)
    }

    /// Whether another comparison with `other` can change anything: a trusted one may still prove wrong.
    pub(crate) fn is_open(&self, other: Life) -> bool {
        self.pairs.get(&other).is_none_or(|pair| !pair.disagreeing)
    }

    /// Forgets others that are gone.
    pub(crate) fn retain(&mut self, lives: impl Fn(Life) -> bool) {
        self.pairs.retain(|life, _| lives(*life));
    }

    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_needs_many_agreements_and_no_doubt() {
        let mut agreements = Agreements::default();
        for number in 1..=NEEDED {
            assert_eq!(agreements.note(Life(1), true), number == NEEDED);
        }
        assert!(agreements.trusts(Life(1)) && !agreements.trusts(Life(2)));
        assert!(!agreements.note(Life(1), false));
        assert!(!agreements.note(Life(1), true));
        assert!(!agreements.trusts(Life(1)) && !agreements.is_open(Life(1)));
    }
}
