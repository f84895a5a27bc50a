//! What was used here, cut into segments of time, until a window has gone by.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use kvasir_core::{UsageKey, UsageShare};

use super::record::{self, Head};

/// Segments of a window; one more is kept, since the oldest counts in part.
const PARTS: u32 = 60;
/// The shortest segment.
const SHORTEST: Duration = Duration::from_secs(1);
/// Users of one segment. What more use is not told, see [`Segments::untold`].
const MOST_USERS: usize = record::MOST_USERS;
/// Segments that are written at once, so that catching up after an outage does not take longer than an exchange may.
const MOST_AT_ONCE: usize = 8;

/// How a window is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) segment: Duration,
    /// Whole segments in the window.
    pub(super) parts: u64,
}

impl Cut {
    pub(super) fn of(window: Duration) -> Self {
        // Whole milliseconds, as a head tells them.
        let millis = u64::try_from((window / PARTS).max(SHORTEST).as_millis()).unwrap_or(u64::MAX);
        let segment = Duration::from_millis(millis);
        let parts = window.as_millis().div_ceil(segment.as_millis().max(1));
        Self { segment, parts: u64::try_from(parts).unwrap_or(u64::MAX).min(record::MOST_SEGMENTS - 2) }
    }

    /// Whether a segment still counts when `current` is under way.
    pub(super) fn counts(&self, number: u64, current: u64) -> bool {
        current.saturating_sub(number) <= self.parts
    }

    /// Segments that end in a while.
    pub(super) fn passed(&self, time: Duration) -> u64 {
        u64::try_from(time.as_millis() / self.segment.as_millis().max(1)).unwrap_or(u64::MAX)
    }

    /// How long a segment has to be kept, while `current` is under way.
    pub(super) fn keep(&self, number: u64, current: u64) -> Duration {
        let left = (self.parts + 2).saturating_sub(current.saturating_sub(number)).max(1);
        self.segment * u32::try_from(left).unwrap_or(u32::MAX)
    }
}

struct Segment {
    number: u64,
    uses: HashMap<UsageKey, (u64, u32)>,
    /// Whether it has to be written.
    dirty: bool,
}

/// This replica's own segments.
pub(super) struct Segments {
    cut: Cut,
    origin: Instant,
    current: u64,
    revision: u64,
    /// Those with something in them, the oldest first.
    filled: VecDeque<Segment>,
    untold: u64,
}

impl Segments {
    pub(super) fn new(cut: Cut, now: Instant) -> Self {
        Self { cut, origin: now, current: 0, revision: 0, filled: VecDeque::new(), untold: 0 }
    }

    /// Forgets what does not count any more.
    pub(super) fn advance(&mut self, now: Instant) {
        self.current = self.cut.passed(now.saturating_duration_since(self.origin)).max(self.current);
        while self.filled.front().is_some_and(|oldest| !self.cut.counts(oldest.number, self.current)) {
            self.filled.pop_front();
        }
    }

    /// Something was used now.
    pub(super) fn add(&mut self, shares: &[UsageShare]) {
        if shares.is_empty() {
            return;
        }
        if self.filled.back().is_none_or(|latest| latest.number != self.current) {
            self.filled.push_back(Segment { number: self.current, uses: HashMap::new(), dirty: true });
        }
        let Some(segment) = self.filled.back_mut() else { return };
        segment.dirty = true;
        for share in shares {
            if segment.uses.len() >= MOST_USERS && !segment.uses.contains_key(&share.key) {
                self.untold += 1;
                continue;
            }
            let (cost, requests) = segment.uses.entry(share.key).or_default();
            *cost = cost.saturating_add(share.cost);
            *requests = requests.saturating_add(share.requests);
        }
    }

    /// The store does not have what was written: all of it has to be written again.
    pub(super) fn lost(&mut self) {
        self.filled.iter_mut().for_each(|segment| segment.dirty = true);
    }

    /// Segments that have to be written, the latest first and not too many at once: number, content, how long to keep.
    pub(super) fn to_write(&self) -> Vec<(u64, Vec<u8>, Duration)> {
        let dirty = self.filled.iter().rev().filter(|segment| segment.dirty).take(MOST_AT_ONCE);
        dirty
            .map(|segment| {
                let uses = segment.uses.iter();
                let shares = uses.map(|(key, (cost, requests))| UsageShare {
                    key: *key,
                    cost: *cost,
                    requests: *requests,
                });
                let (bytes, _) = record::write(shares.collect());
                (segment.number, bytes, self.cut.keep(segment.number, self.current))
            })
            .collect()
    }

    /// What is to be told once the segments of that list are written too.
    pub(super) fn head(&mut self, writing: &[(u64, Vec<u8>, Duration)]) -> Head {
        self.revision += u64::from(!writing.is_empty());
        let mut filled = 0;
        for segment in &self.filled {
            if !segment.dirty || writing.iter().any(|(number, ..)| *number == segment.number) {
                filled |= 1_u64.checked_shl((self.current - segment.number) as u32).unwrap_or_default();
            }
        }
        Head { segment: self.cut.segment, current: self.current, revision: self.revision, filled }
    }

    /// Those of the list are written.
    pub(super) fn written(&mut self, written: &[(u64, Vec<u8>, Duration)]) {
        for segment in &mut self.filled {
            segment.dirty &= !written.iter().any(|(number, ..)| *number == segment.number);
        }
    }

    /// Use that could not be told.
    pub(super) fn untold(&self) -> u64 {
        self.untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(key: u64, cost: u64) -> UsageShare {
        UsageShare { key: UsageKey(key), cost, requests: 1 }
    }

    fn numbers(writing: &[(u64, Vec<u8>, Duration)]) -> Vec<u64> {
        writing.iter().map(|(number, ..)| *number).collect()
    }

    #[test]
    fn windows_are_cut_into_sixty() {
        let cut = |seconds| Cut::of(Duration::from_secs(seconds));
        assert_eq!(cut(300), Cut { segment: Duration::from_secs(5), parts: 60 });
        assert_eq!(cut(3600), Cut { segment: Duration::from_secs(60), parts: 60 });
        assert_eq!(cut(10), Cut { segment: Duration::from_secs(1), parts: 10 });
        let odd = Cut::of(Duration::from_millis(61_337));
        assert!(
            odd.parts <= 62 && odd.segment * odd.parts as u32 >= Duration::from_millis(61_337),
            "{odd:?}"
        );
    }

    #[test]
    fn only_what_changed_is_written_until_the_store_forgets() {
        let begun = Instant::now();
        let mut segments = Segments::new(Cut::of(Duration::from_secs(300)), begun);
        segments.add(&[share(1, 5), share(1, 6)]);
        let writing = segments.to_write();
        assert_eq!(
            record::read(&writing[0].1).unwrap(),
            [UsageShare { key: UsageKey(1), cost: 11, requests: 2 }]
        );
        assert_eq!(writing[0].2, Duration::from_secs(310));
        // Not said to be written, so it is written again, and the same.
        assert_eq!(segments.to_write(), writing);
        let head = segments.head(&writing);
        segments.written(&writing);
        assert!(segments.to_write().is_empty());
        assert_eq!((segments.head(&[]), head.filled), (head, 1));
        segments.advance(begun + Duration::from_secs(7));
        segments.add(&[share(2, 1)]);
        assert_eq!(numbers(&segments.to_write()), [1]);
        segments.lost();
        let writing = segments.to_write();
        assert_eq!(numbers(&writing), [1, 0]);
        let head = segments.head(&writing);
        assert_eq!((head.current, head.revision, head.filled), (1, 2, 0b11));
    }

    #[test]
    fn catching_up_is_done_in_parts_and_the_old_is_forgotten() {
        let begun = Instant::now();
        let mut segments = Segments::new(Cut::of(Duration::from_secs(60)), begun);
        for second in 0..200 {
            segments.advance(begun + Duration::from_secs(second));
            segments.add(&[share(second, 1)]);
        }
        assert_eq!(segments.filled.len(), 61);
        let mut told = 0;
        while let writing = segments.to_write()
            && !writing.is_empty()
        {
            assert!(writing.len() <= MOST_AT_ONCE);
            let head = segments.head(&writing);
            assert!(numbers(&writing).iter().all(|number| head.filled().any(|filled| filled == *number)));
            segments.written(&writing);
            told += writing.len();
        }
        assert_eq!((told, segments.head(&[]).filled().count()), (61, 61));
    }

    #[test]
    fn users_of_a_segment_are_bounded() {
        let mut segments = Segments::new(Cut::of(Duration::from_secs(60)), Instant::now());
        let shares: Vec<UsageShare> = (0..5000).map(|key| share(key, 1)).collect();
        segments.add(&shares);
        segments.add(&shares[..10]);
        assert_eq!((segments.untold(), segments.filled[0].uses.len()), (904, MOST_USERS));
    }
}
