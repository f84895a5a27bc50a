//! One entry of a stream, from its fields.
//!
//! A delta has `e` (the epoch, eight bytes, little-endian), `s` (its number) and `d` (the changes). An owner's epochs
//! are its own, so a delta needs no owner; that halves the entry. The word that an owner was published anew has `e`, `o`
//! (the owner) and `k` (why).

use std::sync::Arc;

use kvasir_core::{BlockChange, Completeness};
use redis::Value;

use super::{DeltaError, StreamId, decode_changes};
use crate::snapshot::Epoch;

/// The longest owner name that is taken.
const MOST_OWNER_BYTES: usize = 1024;

/// Changes of one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// Which line of deltas.
    pub epoch: Epoch,
    /// Its number in it, from 1.
    pub seq: u64,
    /// How far the content is known after it.
    pub completeness: Completeness,
    /// What changed.
    pub changes: Vec<BlockChange>,
}

/// Why an owner was published anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The engine started anew, or lost its cache: what it held before is gone.
    Reset,
    /// The writer lost its place, or is a new one; what was known is likely still true.
    Snapshot,
}

impl Reason {
    /// As in the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Snapshot => "snapshot",
        }
    }
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Changes.
    Delta(Delta),
    /// An owner was published anew.
    Published {
        /// The owner's name.
        owner: Arc<str>,
        /// Its epoch from here on.
        epoch: Epoch,
        /// Why.
        reason: Reason,
    },
}

/// Why fields are no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// A field is missing or has no value that a writer writes.
    #[error("the entry's field {0:?} is missing or malformed")]
    Field(&'static str),
    /// The changes are malformed.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

impl Entry {
    /// Reads one entry as `XREAD` and `XRANGE` answer it: its id, and a list of names and values in turn.
    ///
    /// # Errors
    /// As the kind says. The id is `None` where even that cannot be read.
    pub fn parse(answer: &Value) -> (Option<StreamId>, Result<Self, EntryError>) {
        let Value::Array(parts) = answer else { return (None, Err(EntryError::Field("id"))) };
        let [id, Value::Array(fields)] = parts.as_slice() else {
            return (None, Err(EntryError::Field("id")));
        };
        let id = text(id).and_then(StreamId::parse);
        (id, Self::from_fields(fields))
    }

    fn from_fields(fields: &[Value]) -> Result<Self, EntryError> {
        let field = |name: &'static str| {
            let mut pairs = fields.chunks_exact(2);
            pairs
                .find(|pair| bytes(&pair[0]) == Some(name.as_bytes()))
                .map(|pair| &pair[1])
                .ok_or(EntryError::Field(name))
        };
        let epoch = bytes(field("e")?)
            .and_then(|epoch| epoch.try_into().ok())
            .map(|epoch| Epoch(u64::from_le_bytes(epoch)))
            .ok_or(EntryError::Field("e"))?;
        if let Ok(changes) = field("d") {
            let (completeness, changes) = decode_changes(bytes(changes).ok_or(EntryError::Field("d"))?)?;
            let seq = text(field("s")?).and_then(|seq| seq.parse().ok()).ok_or(EntryError::Field("s"))?;
            return Ok(Self::Delta(Delta { epoch, seq, completeness, changes }));
        }
        let reason = match text(field("k")?) {
            Some("reset") => Reason::Reset,
            Some("snapshot") => Reason::Snapshot,
            _ => return Err(EntryError::Field("k")),
        };
        let owner = text(field("o")?)
            .filter(|owner| owner.len() <= MOST_OWNER_BYTES)
            .map(Arc::from)
            .ok_or(EntryError::Field("o"))?;
        Ok(Self::Published { owner, epoch, reason })
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    bytes(value).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use kvasir_core::{BlockHash, HeldOn};

    use super::*;
    use crate::delta::encode_changes;

    fn entry(fields: &[(&str, &[u8])]) -> Result<Entry, EntryError> {
        let bulk = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let fields = fields.iter().flat_map(|(name, value)| [bulk(name.as_bytes()), bulk(value)]).collect();
        let (id, entry) = Entry::parse(&Value::Array(vec![bulk(b"5-1"), Value::Array(fields)]));
        assert_eq!(id, Some(StreamId { ms: 5, seq: 1 }));
        entry
    }

    #[test]
    fn both_kinds_are_read() {
        let changes = vec![BlockChange { block: BlockHash(3), on: HeldOn::Gpu, held: true }];
        let packed = encode_changes(Completeness::Exact, &changes);
        let epoch = 9u64.to_le_bytes();
        assert_eq!(
            entry(&[("e", &epoch), ("s", b"12"), ("d", &packed)]),
            Ok(Entry::Delta(Delta { epoch: Epoch(9), seq: 12, completeness: Completeness::Exact, changes }))
        );
        assert_eq!(
            entry(&[("o", b"ns/a:1#0"), ("e", &epoch), ("k", b"reset"), ("later", b"x")]),
            Ok(Entry::Published { owner: "ns/a:1#0".into(), epoch: Epoch(9), reason: Reason::Reset })
        );
    }

    #[test]
    fn others_are_refused() {
        let epoch = 9u64.to_le_bytes();
        for (fields, name) in [
            (vec![], "e"),
            (vec![("e", b"1".as_slice())], "e"),
            (vec![("e", epoch.as_slice())], "k"),
            (vec![("e", epoch.as_slice()), ("k", b"other")], "k"),
            (vec![("e", epoch.as_slice()), ("k", b"reset")], "o"),
            (vec![("e", epoch.as_slice()), ("d", b"\0")], "s"),
            (vec![("e", epoch.as_slice()), ("d", b"\0"), ("s", b"-1")], "s"),
        ] {
            assert_eq!(entry(&fields), Err(EntryError::Field(name)), "{fields:?}");
        }
        assert_eq!(
            entry(&[("e", &epoch), ("s", b"1"), ("d", b"\x09")]),
            Err(EntryError::Delta(DeltaError::Mark))
        );
        assert_eq!(Entry::parse(&Value::Nil).0, None);
    }
}
