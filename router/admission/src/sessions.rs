//! Conversations that had an answer lately.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// The latest conversations of one model, by a hash that is this process's own.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    hasher: RandomState,
    /// When each last had an answer: a number that rises.
    answered: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    answers: u64,
}

impl Sessions {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            hasher: RandomState::new(),
            answered: HashMap::new(),
            order: BTreeMap::new(),
            answers: 0,
        }
    }

    pub(crate) fn key(&self, session: &str) -> u64 {
        self.hasher.hash_one(session)
    }

    /// How lately a conversation had an answer: the higher, the later. Asking changes nothing.
    pub(crate) fn warm(&self, key: u64) -> Option<u64> {
        self.answered.get(&key).copied()
    }

    /// A conversation had an answer now.
    pub(crate) fn answered(&mut self, key: u64) {
        self.answers += 1;
        if let Some(before) = self.answered.insert(key, self.answers) {
            self.order.remove(&before);
        }
        self.order.insert(self.answers, key);
        if self.order.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.answered.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conversation_that_is_silent_longest_is_forgotten() {
        let mut sessions = Sessions::new(2);
        let keys = ["a", "b", "c"].map(|name| sessions.key(name));
        sessions.answered(keys[0]);
        sessions.answered(keys[1]);
        assert!(sessions.warm(keys[0]).is_some(), "asking is no answer");
        sessions.answered(keys[2]);
        assert_eq!(keys.map(|key| sessions.warm(key)), [None, Some(2), Some(3)]);
        sessions.answered(keys[1]);
        sessions.answered(keys[0]);
        assert_eq!(keys.map(|key| sessions.warm(key)), [Some(5), Some(4), None]);
        assert_eq!((sessions.answered.len(), sessions.order.len()), (2, 2));
    }
}
