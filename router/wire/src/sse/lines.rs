//! The lines of a stream: where they end and what kind they are.

use std::ops::Range;

use memchr::memchr2;

/// A complete line in some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// Without its terminator.
    pub(super) content: Range<usize>,
    /// Behind its terminator.
    pub(super) next: usize,
    /// Its terminator is a CR in the very last byte: a LF that comes next still belongs to it.
    pub(super) cut_after_cr: bool,
}

/// The line that starts at `at`, if its end is there. LF, CR and CRLF end a line.
pub(super) fn next_line(bytes: &[u8], at: usize) -> Option<Line> {
    let end = at + memchr2(b'\n', b'\r', bytes.get(at..)?)?;
    let after = bytes.get(end + 1);
    let cr = bytes.get(end) == Some(&b'\r');
    let next = if cr && after == Some(&b'\n') { end + 2 } else { end + 1 };
    Some(Line { content: at..end, next, cut_after_cr: cr && after.is_none() })
}

/// The value of a `data` field in a line without its terminator, relative to the line.
pub(super) fn data_value(line: &[u8]) -> Option<Range<usize>> {
    let rest = line.strip_prefix(b"data")?;
    match rest {
        [] => Some(4..4),
        [b':', b' ', ..] => Some(6..line.len()),
        [b':', ..] => Some(5..line.len()),
        _ => None,
    }
}

/// The comment lines of a region that starts at a line's start, with their terminators.
pub(super) fn comments(region: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < region.len() {
            let start = at;
            at = next_line(region, at).map_or(region.len(), |line| line.next);
            if region.get(start) == Some(&b':') {
                return Some(start..at);
            }
        }
        None
    })
}
