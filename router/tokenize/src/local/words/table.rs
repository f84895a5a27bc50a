//! The ids of words seen before: a table of fixed size, shared by threads without locks.
//!
//! What it holds never decides what ids come out, only how soon: a word is found by all of its bytes, or by 120 bits of
//! a seeded hash where it is long, and one that is not found is merged anew. A slot is written again by whatever word
//! comes there next.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Slots: 4 MiB. Some hundred long chats of prose and code have about 100,000 different words.
pub const SLOTS: usize = 1 << 17;

/// Slots in which a word may be: as many as fill a cache line.
const WAYS: usize = 2;

/// Bytes of a word that is its own key; the sixteenth holds the length.
const INLINE: usize = 15;

/// Bits of an id that is kept; none of today's vocabularies has more than a fifth of these ids.
const ID_BITS: u32 = 21;

/// Most ids of a word that is kept. More would need a longer slot, and of words not seen before one in thirty has more.
const MOST_IDS: usize = 4;

/// Bits of the number of ids, which stand above the last id.
const COUNT_BITS: u32 = 3;

/// One more writing: what is above the number of ids is odd while a slot is written, and another number each time. It
/// comes round after 2^39 words in one slot, which takes hours; a reader takes some nanoseconds.
const STAMP: u64 = 1 << (ID_BITS + COUNT_BITS);

/// Marks the key of a longer word, where others have their length.
const HASHED: u128 = 0xff << 120;

/// Spreads keys over slots: the fractional part of the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The words of one tokenizer.
pub struct Table {
    sets: Box<[Set]>,
    seed: u64,
}

/// The slots of one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Set([Slot; WAYS]);

/// A word and its ids.
#[derive(Default)]
struct Slot {
    key: [AtomicU64; 2],
    /// The first three ids.
    front: AtomicU64,
    /// The last id, the number of ids, and the stamp.
    back: AtomicU64,
}

/// What tells a word from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(u128);

impl Table {
    /// An empty table of at least so many slots.
    pub fn new(slots: usize) -> Self {
        Self {
            sets: (0..slots.div_ceil(WAYS).next_power_of_two()).map(|_| Set::default()).collect(),
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8),
        }
    }

    /// The key of a word, which is a part of the bytes.
    #[inline]
    pub fn key(&self, bytes: &[u8], word: Range<usize>) -> Key {
        let (length, start) = (word.len(), word.start);
        if length > INLINE {
            let word = bytes.get(word).unwrap_or_default();
            return Key(xxh3_128_with_seed(word, self.seed) | HASHED);
        }
        let read = match bytes.get(start..).and_then(<[u8]>::first_chunk::<16>) {
            // One wide read, and what is behind the word taken away again.
            Some(chunk) => u128::from_le_bytes(*chunk) & ((1 << (length * 8)) - 1),
            None => {
                let mut chunk = [0; 16];
                let word = bytes.get(word).unwrap_or_default();
                chunk.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
                u128::from_le_bytes(chunk)
            }
        };
        Key(read | (length as u128) << 120)
    }

    /// Appends the ids of a word when they are known.
    #[inline]
    pub fn recall(&self, key: Key, ids: &mut Vec<u32>) -> bool {
        self.set(key).and_then(|set| set.likely(key)).is_some_and(|slot| slot.read(key, ids))
    }

    /// Keeps the ids of a word, unless they are too many or another thread writes there.
    pub fn remember(&self, key: Key, ids: &[u32]) {
        let fits = ids.len() <= MOST_IDS && ids.iter().all(|id| *id < 1 << ID_BITS);
        if let Some(slot) = self.set(key).filter(|_| fits).and_then(Set::oldest) {
            slot.write(key, ids);
        }
    }

    #[inline]
    fn set(&self, key: Key) -> Option<&Set> {
        let [low, high] = halves(key);
        let mixed = (low ^ high.rotate_left(29)).wrapping_mul(SPREAD);
        let mixed = mixed ^ (mixed >> 32);
        self.sets.get(mixed as usize & (self.sets.len() - 1))
    }
}

impl Set {
    /// The only slot that may hold a word: found without a branch, which would be guessed wrong half the time.
    #[inline]
    fn likely(&self, key: Key) -> Option<&Slot> {
        let [_, second] = &self.0;
        self.0.get(usize::from(second.holds(key)))
    }

    /// The slot that was written longest ago: they take turns, so it is the one that was written least often.
    fn oldest(&self) -> Option<&Slot> {
        self.0.iter().min_by_key(|slot| slot.back.load(Ordering::Relaxed) / STAMP)
    }
}

impl Slot {
    #[inline]
    fn holds(&self, key: Key) -> bool {
        self.key.each_ref().map(|half| half.load(Ordering::Relaxed)) == halves(key)
    }

    #[inline]
    fn read(&self, key: Key, ids: &mut Vec<u32>) -> bool {
        let back = self.back.load(Ordering::Acquire);
        if !self.holds(key) {
            return false;
        }
        let front = self.front.load(Ordering::Relaxed);
        // If the key or the front came from a later writer, that writer's stamp is seen below.
        fence(Ordering::Acquire);
        if back & STAMP != 0 || self.back.load(Ordering::Relaxed) != back {
            return false;
        }
        let id = |number: u64| (number & ((1 << ID_BITS) - 1)) as u32;
        let found = [id(front), id(front >> ID_BITS), id(front >> (2 * ID_BITS)), id(back)];
        let count = (back >> ID_BITS) as usize % (1 << COUNT_BITS);
        // All four at once, and what is too much taken away: quicker than as many as there are.
        let length = ids.len() + count;
        ids.extend_from_slice(&found);
        ids.truncate(length);
        true
    }

    fn write(&self, key: Key, ids: &[u32]) {
        let back = self.back.load(Ordering::Relaxed);
        let odd = back.wrapping_add(STAMP);
        if back & STAMP != 0
            || self.back.compare_exchange(back, odd, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        // What is written from here on is not seen before the odd stamp.
        fence(Ordering::Release);
        self.key.iter().zip(halves(key)).for_each(|(half, value)| half.store(value, Ordering::Relaxed));
        let id = |place: usize| ids.get(place).copied().map_or(0, u64::from);
        self.front.store(id(0) | id(1) << ID_BITS | id(2) << (2 * ID_BITS), Ordering::Relaxed);
        let stamp = odd.wrapping_add(STAMP) / STAMP * STAMP;
        self.back.store(stamp | (ids.len() as u64) << ID_BITS | id(3), Ordering::Release);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("slots", &(self.sets.len() * WAYS)).finish_non_exhaustive()
    }
}

fn halves(key: Key) -> [u64; 2] {
    [key.0 as u64, (key.0 >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recall(table: &Table, word: &str) -> Option<Vec<u32>> {
        let mut ids = Vec::new();
        table.recall(table.key(word.as_bytes(), 0..word.len()), &mut ids).then_some(ids)
    }

    fn remember(table: &Table, word: &str, ids: &[u32]) {
        table.remember(table.key(word.as_bytes(), 0..word.len()), ids);
    }

    #[test]
    fn words_of_all_lengths_are_kept_with_their_ids() {
        let table = Table::new(SLOTS);
        let words: Vec<String> = (1..60).map(|length| "abcdefghij".repeat(6)[..length].to_owned()).collect();
        for (word, count) in words.iter().zip(0..) {
            remember(&table, word, &vec![(1 << ID_BITS) - 1 - count; count as usize]);
        }
        for (word, count) in words.iter().zip(0..) {
            let ids = vec![(1 << ID_BITS) - 1 - count; count as usize];
            let expected = Some(ids).filter(|ids| ids.len() <= MOST_IDS);
            assert_eq!(recall(&table, word), expected, "{word}");
        }
        assert_eq!(recall(&table, "abd"), None);
        assert_eq!(size_of::<Set>(), 64);
    }

    #[test]
    fn the_key_is_that_of_the_word_wherever_it_stands() {
        let table = Table::new(8);
        let word = "wörd\u{0}";
        let alone = table.key(word.as_bytes(), 0..word.len());
        for text in [format!("x{word}"), format!("{word}{}", "y".repeat(40)), format!("x{word}\u{0}")] {
            let start = text.find(word).unwrap();
            assert_eq!(table.key(text.as_bytes(), start..start + word.len()), alone, "{text:?}");
            assert_ne!(table.key(text.as_bytes(), start..start + word.len() - 1), alone, "{text:?}");
        }
    }

    #[test]
    fn a_later_word_takes_the_place_of_the_earliest() {
        let table = Table::new(WAYS);
        remember(&table, "one", &[1]);
        remember(&table, "two", &[2, 2]);
        assert_eq!((recall(&table, "one"), recall(&table, "two")), (Some(vec![1]), Some(vec![2, 2])));
        remember(&table, "three", &[3, 3, 3]);
        assert_eq!((recall(&table, "one"), recall(&table, "two")), (None, Some(vec![2, 2])));
        remember(&table, "four", &[4; 4]);
        assert_eq!((recall(&table, "two"), recall(&table, "three")), (None, Some(vec![3; 3])));
        assert_eq!(recall(&table, "four"), Some(vec![4; 4]));
        remember(&table, "many", &[4; 5]);
        remember(&table, "high", &[1 << ID_BITS]);
        assert_eq!((recall(&table, "many"), recall(&table, "high")), (None, None));
    }

    #[test]
    fn a_slot_that_is_being_written_is_left_alone() {
        let slot = Slot::default();
        let mut ids = Vec::new();
        let (one, two) = (Key(1), Key(2));
        slot.write(one, &[7, 8]);
        slot.back.fetch_add(STAMP, Ordering::Relaxed);
        slot.write(two, &[9]);
        assert!(!slot.read(one, &mut ids) && !slot.read(two, &mut ids));
        slot.back.fetch_add(STAMP, Ordering::Relaxed);
        assert!(slot.read(one, &mut ids) && !slot.read(two, &mut ids));
        assert_eq!(ids, [7, 8]);
    }

    #[test]
    fn threads_never_see_half_a_word() {
        let table = Table::new(2);
        let words: Vec<(String, Vec<u32>)> =
            (0..12_u32).map(|n| (format!("word {n}"), vec![n; 1 + n as usize % MOST_IDS])).collect();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (table, words) = (&table, &words);
                scope.spawn(move || {
                    for round in 0..200_000 {
                        let (word, ids) = &words[(round * (thread + 5) + thread) % words.len()];
                        assert!(recall(table, word).is_none_or(|found| found == *ids));
                        remember(table, word, ids);
                    }
                });
            }
        });
    }
}
