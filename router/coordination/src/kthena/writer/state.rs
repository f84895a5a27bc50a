//! What a pod holds, and what of it the store does not know yet.

use std::collections::{HashMap, HashSet};

use kvasir_core::EngineHash;

use super::KthenaChange;

/// One entry that is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    Held(u64),
    Lost(u64),
    Mapped(EngineHash, u64),
    Unmapped(EngineHash),
}

/// A written entry's time stamp, server's seconds; 0 before it is written.
type WrittenAt = u64;

#[derive(Debug, Default)]
pub(super) struct State {
    held: HashMap<u64, WrittenAt>,
    mapped: HashMap<EngineHash, (u64, WrittenAt)>,
    /// Contents whose entry is not as `held` says.
    unwritten: HashSet<u64>,
    /// Names whose entry is not as `mapped` says.
    unwritten_names: HashSet<EngineHash>,
}

impl State {
    pub(super) fn apply(&mut self, change: KthenaChange) {
        match change {
            // A block that is stored again gets a new time stamp, as it would from another writer of this layout.
            KthenaChange::Gained(hash) => {
                self.held.insert(hash, 0);
                self.unwritten.insert(hash);
            }
            KthenaChange::Lost(hash) => {
                if self.held.remove(&hash).is_some() {
                    self.unwritten.insert(hash);
                }
            }
            KthenaChange::Mapped(name, hash) => {
                self.unwritten_names.insert(name.clone());
                self.mapped.insert(name, (hash, 0));
            }
            KthenaChange::Unmapped(name) => {
                if self.mapped.remove(&name).is_some() {
                    self.unwritten_names.insert(name);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.unwritten.extend(std::mem::take(&mut self.held).into_keys());
        self.unwritten_names.extend(std::mem::take(&mut self.mapped).into_keys());
    }

    /// Everything is to be written again.
    pub(super) fn rewrite(&mut self) {
        self.unwritten.extend(self.held.keys());
        self.unwritten_names.extend(self.mapped.keys().cloned());
    }

    /// Entries older than this at `now` are to be written again, each at an age of its own within a sixth more.
    pub(super) fn renew_older(&mut self, now: u64, age: u64) {
        let spread = (age / 6).max(1);
        let due =
            |written: WrittenAt, key: u64| written != 0 && now.saturating_sub(written) >= age + key % spread;
        let held = self.held.iter().filter(|(hash, written)| due(**written, **hash));
        self.unwritten.extend(held.map(|(hash, _)| *hash));
        let mapped = self.mapped.iter().filter(|(_, (hash, written))| due(*written, *hash));
        self.unwritten_names.extend(mapped.map(|(name, _)| name.clone()));
    }

    /// Forgets the removals that are not written yet, if there are more than `most`. Whether there were.
    pub(super) fn forget_removals(&mut self, most: usize) -> bool {
        let removals = self.unwritten.len().saturating_sub(self.held.len())
            + self.unwritten_names.len().saturating_sub(self.mapped.len());
        if removals <= most {
            return false;
        }
        self.unwritten.retain(|hash| self.held.contains_key(hash));
        self.unwritten_names.retain(|name| self.mapped.contains_key(name));
        true
    }

    /// Some of what is to be written.
    pub(super) fn batch(&self, most: usize) -> Vec<Pending> {
        let contents = self.unwritten.iter().map(|hash| match self.held.contains_key(hash) {
            true => Pending::Held(*hash),
            false => Pending::Lost(*hash),
        });
        let names = self.unwritten_names.iter().map(|name| match self.mapped.get(name) {
            Some((hash, _)) => Pending::Mapped(name.clone(), *hash),
            None => Pending::Unmapped(name.clone()),
        });
        contents.chain(names).take(most).collect()
    }

    /// The store has this entry since `now`.
    pub(super) fn written(&mut self, pending: &Pending, now: u64) {
        match pending {
            Pending::Held(hash) | Pending::Lost(hash) => {
                self.unwritten.remove(hash);
                if let Some(written) = self.held.get_mut(hash) {
                    *written = now;
                }
            }
            Pending::Mapped(name, _) | Pending::Unmapped(name) => {
                self.unwritten_names.remove(name);
                if let Some((_, written)) = self.mapped.get_mut(name) {
                    *written = now;
                }
            }
        }
    }

    pub(super) fn holds(&self, hash: u64) -> bool {
        self.held.contains_key(&hash)
    }

    /// Whether a name is mapped, as the keys spell it. Some spellings are of an integer and of bytes alike.
    pub(super) fn maps(&self, shown: &str) -> bool {
        let negative = || shown.parse::<i64>().ok().map(|value| (value.cast_unsigned(), value.is_negative()));
        let integer = shown.parse::<u64>().ok().map(|bits| (bits, false)).or_else(negative);
        let integer = integer.map(|(bits, negative)| EngineHash::Int { bits, negative });
        let bytes = bytes_of(shown);
        [integer, bytes].into_iter().flatten().any(|name| self.mapped.contains_key(&name))
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn mapped(&self) -> usize {
        self.mapped.len()
    }

    pub(super) fn pending(&self) -> usize {
        self.unwritten.len() + self.unwritten_names.len()
    }
}

/// Bytes from their hexadecimal digits.
fn bytes_of(shown: &str) -> Option<EngineHash> {
    let digits = shown.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    Some(EngineHash::Bytes(digits.chunks_exact(2).map(pair).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_renewed_spread_over_a_while_before_they_are_old() {
        let mut state = State::default();
        for hash in 0..6000 {
            state.apply(KthenaChange::Gained(hash));
            state.written(&Pending::Held(hash), 1_000_000);
        }
        let age = 12 * 3600;
        let due = |state: &mut State, after: u64| {
            state.renew_older(1_000_000 + after, age);
            let due = state.pending();
            state.unwritten.clear();
            due
        };
        assert_eq!(due(&mut state, age - 1), 0);
        let halfway = due(&mut state, age + 3000);
        assert!((2900..=3100).contains(&halfway), "{halfway}");
        assert_eq!(due(&mut state, age + age / 6), 6000);
        assert!(age + age / 6 < 24 * 3600);
    }

    #[test]
    fn removals_are_bounded_and_additions_are_not_lost() {
        let mut state = State::default();
        (0..100).for_each(|hash| state.apply(KthenaChange::Gained(hash)));
        (0..90).for_each(|hash| state.apply(KthenaChange::Lost(hash)));
        assert!(!state.forget_removals(90));
        assert!(state.forget_removals(50));
        assert_eq!(state.batch(1000).len(), 10);
        assert!(state.batch(1000).iter().all(|pending| matches!(pending, Pending::Held(90..))));
    }

    #[test]
    fn a_name_is_found_by_its_spelling() {
        let names = [
            EngineHash::Int { bits: 11, negative: false },
            EngineHash::Int { bits: u64::MAX, negative: false },
            EngineHash::Int { bits: (-5_i64).cast_unsigned(), negative: true },
            EngineHash::Bytes([0xab, 0x01].into_iter().collect()),
            EngineHash::Bytes([0x17].into_iter().collect()),
        ];
        let mut state = State::default();
        for name in &names {
            assert!(!state.maps(&super::super::shown(name)), "{name:?}");
            state.apply(KthenaChange::Mapped(name.clone(), 1));
            assert!(state.maps(&super::super::shown(name)), "{name:?}");
        }
        for other in ["", "12", "-11", "5", "ab", "abc", "zz", "18446744073709551616", "\u{e9}\u{e9}"] {
            assert!(!state.maps(other), "{other}");
        }
    }
}
