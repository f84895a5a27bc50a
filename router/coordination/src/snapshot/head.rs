//! An owner's head: the hash that says what its chunks and deltas mean.

use std::fmt;

use kvasir_core::{AdapterName, BlockSize, Completeness, ModelName};
use redis::{FromRedisValue, Value};

use super::MOST_CHUNKS;
use crate::delta::StreamId;
use crate::key::SCHEMA;

/// The longest model name that is taken.
const MOST_MODEL_BYTES: usize = 1024;
/// The most adapters that are taken of one owner; the text of more is ignored.
const MOST_ADAPTERS_BYTES: usize = 64 * 1024;

/// One line of numbered deltas of one owner. Drawn at random whenever the owner's content is published as a whole: at
/// each start of the engine, at each change of the writer, and when a store lost what was in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

impl Epoch {
    /// As in the head.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl serde::Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a reader needs of an owner's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The deltas' line.
    pub epoch: Epoch,
    /// Number of its last delta.
    pub seq: u64,
    /// Deltas up to this one are in the chunks.
    pub floor: u64,
    /// The stream's entry of that delta.
    pub floor_id: StreamId,
    /// Which chunks are meant.
    pub generation: u64,
    /// How many they are; a power of two.
    pub chunks: u32,
    /// Blocks held after the last delta.
    pub blocks: u64,
    /// The engine's served name.
    pub model: ModelName,
    /// Tokens in a block; `None` until the engine has told.
    pub block_size: Option<BlockSize>,
    /// How far the content is known.
    pub completeness: Completeness,
    /// Adapters that the engine serves.
    pub adapters: Vec<AdapterName>,
}

/// Why there is no head to use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadFault {
    /// There is none, or nothing was published yet.
    #[error("nothing is published")]
    Absent,
    /// Written by a version that this one does not understand.
    #[error("schema {0} is not understood here")]
    Schema(String),
    /// A field is missing or no value that a writer writes.
    #[error("the field {0:?} is malformed")]
    Malformed(&'static str),
}

impl Head {
    /// The fields, in the order in which [`Head::parse`] wants their values.
    pub const FIELDS: [&'static str; 12] = [
        "schema",
        "epoch",
        "seq",
        "floor",
        "floor_id",
        "generation",
        "chunks",
        "blocks",
        "model",
        "block_size",
        "completeness",
        "adapters",
    ];

    /// Reads the answer to `HMGET` of [`Head::FIELDS`].
    ///
    /// # Errors
    /// There is none, or it is not understood.
    pub fn parse(answer: &Value) -> Result<Self, HeadFault> {
        let Value::Array(values) = answer else { return Err(HeadFault::Absent) };
        let [
            schema,
            epoch,
            seq,
            floor,
            floor_id,
            generation,
            chunks,
            blocks,
            model,
            size,
            complete,
            adapters,
        ] = values.as_slice()
        else {
            return Err(HeadFault::Absent);
        };
        match text(schema) {
            None => return Err(HeadFault::Absent),
            Some(schema) if schema != SCHEMA.to_string() => {
                return Err(HeadFault::Schema(
                    schema.chars().filter(char::is_ascii_graphic).take(16).collect(),
                ));
            }
            Some(_) => {}
        }
        // A writer that has the lease and has not published yet.
        let Some(epoch) = text(epoch) else { return Err(HeadFault::Absent) };
        let bad = HeadFault::Malformed;
        let head = Self {
            epoch: Epoch::parse(&epoch).ok_or(bad("epoch"))?,
            seq: number(seq).ok_or(bad("seq"))?,
            floor: number(floor).ok_or(bad("floor"))?,
            floor_id: text(floor_id).and_then(|id| StreamId::parse(&id)).ok_or(bad("floor_id"))?,
            generation: number(generation).ok_or(bad("generation"))?,
            chunks: number(chunks).ok_or(bad("chunks"))?,
            blocks: number(blocks).ok_or(bad("blocks"))?,
            model: text(model)
                .filter(|model| !model.is_empty() && model.len() <= MOST_MODEL_BYTES)
                .map(ModelName::from)
                .ok_or(bad("model"))?,
            block_size: match number::<u32>(size).ok_or(bad("block_size"))? {
                0 => None,
                tokens => BlockSize::new(tokens),
            },
            completeness: number(complete).and_then(completeness_of_code).ok_or(bad("completeness"))?,
            adapters: text(adapters)
                .filter(|text| text.len() <= MOST_ADAPTERS_BYTES)
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
        };
        if !head.chunks.is_power_of_two() || head.chunks > MOST_CHUNKS {
            return Err(bad("chunks"));
        }
        if head.floor > head.seq {
            return Err(bad("floor"));
        }
        Ok(head)
    }
}

/// How far an owner's content is known, as one byte.
pub(crate) fn completeness_code(completeness: Completeness) -> u8 {
    match completeness {
        Completeness::Exact => 0,
        Completeness::Partial => 1,
        Completeness::Approximate => 2,
    }
}

/// The other way round.
pub(crate) fn completeness_of_code(code: u8) -> Option<Completeness> {
    match code {
        0 => Some(Completeness::Exact),
        1 => Some(Completeness::Partial),
        2 => Some(Completeness::Approximate),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    Option::<String>::from_redis_value_ref(value).ok().flatten()
}

fn number<T: std::str::FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 12] =
        ["1", "00000000000000ff", "9", "4", "17-3", "5", "4", "100", "m", "16", "1", r#"["lora"]"#];

    fn parse(fields: &[&str]) -> Result<Head, HeadFault> {
        let values = fields.iter().map(|field| match *field {
            "-" => Value::Nil,
            text => Value::BulkString(text.as_bytes().to_vec()),
        });
        Head::parse(&Value::Array(values.collect()))
    }

    #[test]
    fn a_head_is_read() {
        let head = parse(&GOOD).unwrap();
        assert_eq!(
            (head.epoch, head.seq, head.floor, head.floor_id),
            (Epoch(255), 9, 4, StreamId { ms: 17, seq: 3 })
        );
        assert_eq!((head.generation, head.chunks, head.blocks), (5, 4, 100));
        assert_eq!((head.model.as_str(), head.block_size), ("m", BlockSize::new(16)));
        assert_eq!(
            (head.completeness, head.adapters),
            (Completeness::Partial, vec![AdapterName::from("lora")])
        );
    }

    #[test]
    fn what_is_no_head_says_why() {
        let with = |at: usize, value: &'static str| {
            let mut fields = GOOD;
            fields[at] = value;
            parse(&fields).unwrap_err()
        };
        assert_eq!(Head::parse(&Value::Nil), Err(HeadFault::Absent));
        assert_eq!(with(0, "-"), HeadFault::Absent);
        assert_eq!(with(1, "-"), HeadFault::Absent);
        assert_eq!(with(0, "2"), HeadFault::Schema("2".to_owned()));
        for (at, value, field) in [
            (1, "ff", "epoch"),
            (2, "-1", "seq"),
            (3, "10", "floor"),
            (4, "17", "floor_id"),
            (5, "-", "generation"),
            (6, "3", "chunks"),
            (6, "8192", "chunks"),
            (6, "0", "chunks"),
            (8, "", "model"),
            (9, "-", "block_size"),
            (10, "3", "completeness"),
        ] {
            assert_eq!(with(at, value), HeadFault::Malformed(field), "{value:?}");
        }
    }

    #[test]
    fn adapters_that_cannot_be_read_are_left_out() {
        let mut fields = GOOD;
        fields[11] = "[1]";
        assert!(parse(&fields).unwrap().adapters.is_empty());
        fields[11] = "-";
        assert!(parse(&fields).unwrap().adapters.is_empty());
    }
}
