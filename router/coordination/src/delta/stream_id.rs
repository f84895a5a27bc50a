//! The id of a stream's entry.

use std::fmt;

/// When an entry was added (server's milliseconds), and its number within that millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StreamId {
    /// Milliseconds since 1970 on the server's clock.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// Before every entry.
    pub const START: Self = Self { ms: 0, seq: 0 };

    /// Reads `MS-SEQ`.
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, seq: seq.parse().ok()? })
    }

    /// The smallest id after this one.
    pub fn next(self) -> Self {
        match self.seq.checked_add(1) {
            Some(seq) => Self { seq, ..self },
            None => Self { ms: self.ms.saturating_add(1), seq: 0 },
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_written_and_ordered() {
        let id = StreamId { ms: 1_700_000_000_000, seq: 7 };
        assert_eq!(StreamId::parse(&id.to_string()), Some(id));
        assert!(id < id.next() && id.next() < StreamId { ms: id.ms + 1, seq: 0 });
        assert_eq!(StreamId { ms: 1, seq: u64::MAX }.next(), StreamId { ms: 2, seq: 0 });
        for text in ["", "1", "1-", "-1", "1-x", "1-2-3"] {
            assert_eq!(StreamId::parse(text), None, "{text}");
        }
    }
}
