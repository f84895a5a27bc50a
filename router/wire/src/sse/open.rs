//! The event that is being received and over which nothing is decided yet.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::event::{Facts, Verdict, is_settled};
use super::lines::data_value;
use super::tap::MAX_EVENT_BYTES;

/// Most `data` lines of one event; engines send one.
const MAX_DATA_LINES: usize = 1024;

/// The open event: its bytes from earlier chunks, if any, and where its payload stands.
///
/// An event that arrives whole never gets a carry: its bytes stay in the chunk, and the methods are given them as
/// `region`. With a carry, the carry is the region. Offsets are relative to the event's first byte.
#[derive(Debug, Default)]
pub(super) struct OpenEvent {
    carry: Vec<u8>,
    /// Where the line that an earlier chunk began starts in the carry.
    begun_at: usize,
    /// The payloads of the `data` lines.
    data: SmallVec<[Range<usize>; 2]>,
    /// The first payload line was found to need more, so that it is not read again for every chunk.
    unsettled: bool,
}

impl OpenEvent {
    /// Whether bytes of it came with earlier chunks.
    pub(super) fn is_carried(&self) -> bool {
        !self.carry.is_empty()
    }

    pub(super) fn carried_len(&self) -> usize {
        self.carry.len()
    }

    /// Keeps bytes for the next chunk.
    pub(super) fn carry(&mut self, bytes: &[u8]) {
        self.carry.extend_from_slice(bytes);
    }

    /// Notes where the line starts that will end in a later chunk.
    pub(super) fn begin_line(&mut self, at: usize) {
        self.begun_at = at;
    }

    /// Carries the end of a line, which `begun` in an earlier chunk or starts with these bytes, and notes its
    /// payload. `terminator` is the length of its line end.
    pub(super) fn carry_line(&mut self, bytes: &[u8], terminator: usize, begun: bool, first_line: bool) {
        if !begun {
            self.begun_at = self.carry.len();
        }
        self.carry.extend_from_slice(bytes);
        self.note_carried(terminator, first_line);
    }

    /// Notes the payload of the carry's last line.
    pub(super) fn note_carried(&mut self, terminator: usize, first_line: bool) {
        let end = self.carry.len().saturating_sub(terminator);
        let line = self.carry.get(self.begun_at..end).unwrap_or_default();
        let value = payload_of(line, first_line);
        self.note(self.begun_at, value);
    }

    /// Notes the payload of a line of the region, which starts at `start`.
    pub(super) fn note_line(&mut self, start: usize, line: &[u8], first_line: bool) {
        self.note(start, payload_of(line, first_line));
    }

    fn note(&mut self, line_start: usize, value: Option<Range<usize>>) {
        self.data.extend(value.map(|value| line_start + value.start..line_start + value.end));
    }

    pub(super) fn has_too_many_lines(&self) -> bool {
        self.data.len() > MAX_DATA_LINES
    }

    /// Whether the payload is one line that needs no more. Events of several `data` lines wait for their blank
    /// line, so that no payload is read more than twice.
    pub(super) fn is_complete(&mut self, region: &[u8]) -> bool {
        let [only] = self.data.as_slice() else { return false };
        if self.unsettled {
            return false;
        }
        let region = if self.is_carried() { self.carry.as_slice() } else { region };
        let settled = region.get(only.clone()).is_some_and(is_settled);
        self.unsettled = !settled;
        settled
    }

    /// Reads the event. The cuts of the verdict are relative to the event.
    pub(super) fn judge(&self, facts: &mut Facts, region: &[u8]) -> Verdict {
        let region = if self.is_carried() { self.carry.as_slice() } else { region };
        match self.data.as_slice() {
            [] => Verdict::Pass,
            [.., last] if last.end > MAX_EVENT_BYTES => Verdict::Pass,
            [only] => self.in_event(facts.observe(region.get(only.clone()).unwrap_or_default())),
            lines => {
                // The event's payload is its lines with a line feed between them.
                let parts: Vec<_> = lines.iter().filter_map(|line| region.get(line.clone())).collect();
                self.in_event(facts.observe(&parts.join(&b'\n')))
            }
        }
    }

    /// Forgets the event and gives back what was carried.
    pub(super) fn take(&mut self) -> Bytes {
        self.data.clear();
        self.unsettled = false;
        std::mem::take(&mut self.carry).into()
    }

    fn in_event(&self, verdict: Verdict) -> Verdict {
        let locate = |ranges: SmallVec<[Range<usize>; 1]>| {
            ranges.into_iter().map(|range| self.locate(range.start)..self.locate(range.end)).collect()
        };
        match verdict {
            Verdict::Cut(cuts) => Verdict::Cut(locate(cuts)),
            Verdict::Correct(spans) => Verdict::Correct(locate(spans)),
            Verdict::Pass | Verdict::Drop => verdict,
        }
    }

    /// Where byte `at` of the payload stands in the event.
    fn locate(&self, at: usize) -> usize {
        let mut start = 0;
        for line in &self.data {
            if at <= start + line.len() {
                return line.start + (at - start);
            }
            start += line.len() + 1;
        }
        self.data.last().map_or(0, |line| line.end)
    }
}

/// The payload in a line. A byte order mark may stand at the very start of a stream.
fn payload_of(line: &[u8], first_line: bool) -> Option<Range<usize>> {
    let mark = if first_line && line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let value = data_value(line.get(mark..)?)?;
    Some(value.start + mark..value.end + mark)
}
