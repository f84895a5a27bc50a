//! KV events and how they are written: msgpack in vLLM's two encodings and SGLang's.

use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::EngineKind;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeTuple, Serializer};

use crate::config::{Encoding, HashForm};
use crate::hash::{Hash, widen};

/// Something happened to the cache.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// Blocks became reusable.
    Stored(Stored),
    /// One block was evicted.
    Removed(Hash),
    /// The cache was emptied.
    Cleared,
}

/// Blocks of one sequence that became reusable together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) hashes: Vec<Hash>,
    pub(crate) parent: Option<Hash>,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) block_size: usize,
    pub(crate) adapter: Option<(u32, Arc<str>)>,
    /// The request's salt, when the first block is among these.
    pub(crate) salt: Option<Arc<str>>,
}

/// Everything since the last batch, in order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Batch {
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) events: Vec<Event>,
}

/// How one engine writes its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) engine: EngineKind,
    pub(crate) encoding: Encoding,
    pub(crate) hash: HashForm,
    pub(crate) rank: u32,
}

impl Style {
    /// The payload frame: `[ts, [event...], rank]`.
    pub(crate) fn encode(self, batch: &Batch) -> Result<Bytes, rmp_serde::encode::Error> {
        rmp_serde::to_vec(&BatchOnWire { style: self, batch }).map(Bytes::from)
    }
}

struct BatchOnWire<'a> {
    style: Style,
    batch: &'a Batch,
}

impl Serialize for BatchOnWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(3)?;
        tuple.serialize_element(&self.batch.at)?;
        tuple.serialize_element(&EventsOnWire { style: self.style, events: &self.batch.events })?;
        tuple.serialize_element(&self.style.rank)?;
        tuple.end()
    }
}

struct EventsOnWire<'a> {
    style: Style,
    events: &'a [Event],
}

impl Serialize for EventsOnWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let style = self.style;
        // vLLM writes one removal for each block; SGLang one for each radix node, which here are the blocks that
        // left together.
        let groups: Vec<&[Event]> = match style.engine {
            EngineKind::Vllm => self.events.chunks(1).collect(),
            EngineKind::Sglang => self
                .events
                .chunk_by(|a, b| matches!((a, b), (Event::Removed(_), Event::Removed(_))))
                .collect(),
        };
        let mut list = serializer.serialize_seq(Some(groups.len()))?;
        for group in groups {
            list.serialize_element(&GroupOnWire { style, group })?;
        }
        list.end()
    }
}

/// One event of the wire: a single event, or several removals.
struct GroupOnWire<'a> {
    style: Style,
    group: &'a [Event],
}

impl Serialize for GroupOnWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let map = self.style.encoding == Encoding::Map;
        match self.group.first() {
            Some(Event::Stored(stored)) if map => self.stored_map(stored, serializer),
            Some(Event::Stored(stored)) => self.stored_array(stored, serializer),
            Some(Event::Removed(_)) => {
                let removed: Vec<Hash> = self
                    .group
                    .iter()
                    .filter_map(|event| match event {
                        Event::Removed(hash) => Some(*hash),
                        _ => None,
                    })
                    .collect();
                if map {
                    self.removed_map(&removed, serializer)
                } else {
                    let mut tuple = serializer.serialize_tuple(3)?;
                    tuple.serialize_element("BlockRemoved")?;
                    tuple.serialize_element(&self.hashes(&removed))?;
                    tuple.serialize_element("GPU")?;
                    tuple.end()
                }
            }
            Some(Event::Cleared) | None if map => {
                let mut entries = serializer.serialize_map(Some(1))?;
                entries.serialize_entry("type", "AllBlocksCleared")?;
                entries.end()
            }
            Some(Event::Cleared) | None => {
                let mut tuple = serializer.serialize_tuple(1)?;
                tuple.serialize_element("AllBlocksCleared")?;
                tuple.end()
            }
        }
    }
}

impl GroupOnWire<'_> {
    fn hashes<'h>(&self, hashes: &'h [Hash]) -> HashesOnWire<'h> {
        HashesOnWire { form: self.style.hash, hashes }
    }

    fn stored_map<S: Serializer>(&self, stored: &Stored, serializer: S) -> Result<S::Ok, S::Error> {
        let sglang = self.style.engine == EngineKind::Sglang;
        let with_salt = sglang && stored.salt.is_some();
        let mut entries =
            serializer.serialize_map(Some(if sglang { 8 + usize::from(with_salt) } else { 11 }))?;
        entries.serialize_entry("type", "BlockStored")?;
        entries.serialize_entry("block_hashes", &self.hashes(&stored.hashes))?;
        entries.serialize_entry(
            "parent_block_hash",
            &stored.parent.map(|hash| HashOnWire { form: self.style.hash, hash }),
        )?;
        entries.serialize_entry("token_ids", &stored.token_ids)?;
        entries.serialize_entry("block_size", &stored.block_size)?;
        entries.serialize_entry("lora_id", &stored.adapter.as_ref().map(|(id, _)| id))?;
        entries.serialize_entry("medium", "GPU")?;
        if with_salt {
            entries.serialize_entry("cache_salt", &stored.salt.as_deref())?;
        }
        entries.serialize_entry("lora_name", &stored.adapter.as_ref().map(|(_, name)| &**name))?;
        if !sglang {
            entries.serialize_entry("extra_keys", &ExtraKeys(stored))?;
            entries.serialize_entry("group_idx", &0)?;
            entries.serialize_entry("kv_cache_spec_kind", "full_attention")?;
        }
        entries.end()
    }

    fn stored_array<S: Serializer>(&self, stored: &Stored, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(9)?;
        tuple.serialize_element("BlockStored")?;
        tuple.serialize_element(&self.hashes(&stored.hashes))?;
        tuple.serialize_element(&stored.parent.map(|hash| HashOnWire { form: self.style.hash, hash }))?;
        tuple.serialize_element(&stored.token_ids)?;
        tuple.serialize_element(&stored.block_size)?;
        tuple.serialize_element(&stored.adapter.as_ref().map(|(id, _)| id))?;
        tuple.serialize_element("GPU")?;
        tuple.serialize_element(&stored.adapter.as_ref().map(|(_, name)| &**name))?;
        tuple.serialize_element(&ExtraKeys(stored))?;
        tuple.end()
    }

    fn removed_map<S: Serializer>(&self, removed: &[Hash], serializer: S) -> Result<S::Ok, S::Error> {
        let vllm = self.style.engine == EngineKind::Vllm;
        let mut entries = serializer.serialize_map(Some(3 + usize::from(vllm)))?;
        entries.serialize_entry("type", "BlockRemoved")?;
        entries.serialize_entry("block_hashes", &self.hashes(removed))?;
        entries.serialize_entry("medium", "GPU")?;
        if vllm {
            entries.serialize_entry("group_idx", &0)?;
        }
        entries.end()
    }
}

struct HashesOnWire<'a> {
    form: HashForm,
    hashes: &'a [Hash],
}

impl Serialize for HashesOnWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.hashes.iter().map(|hash| HashOnWire { form: self.form, hash: *hash }))
    }
}

struct HashOnWire {
    form: HashForm,
    hash: Hash,
}

impl Serialize for HashOnWire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.form {
            HashForm::U64 => serializer.serialize_u64(self.hash),
            HashForm::I64 => serializer.serialize_i64(self.hash.cast_signed()),
            HashForm::Bytes => serializer.serialize_bytes(&widen(self.hash)),
        }
    }
}

/// One entry for each block: the adapter's name, and on the request's first block the salt; nil without either.
struct ExtraKeys<'a>(&'a Stored);

impl Serialize for ExtraKeys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = self.0;
        let adapter = stored.adapter.as_ref().map(|(_, name)| &**name);
        serializer.collect_seq((0..stored.hashes.len()).map(|index| {
            let salt = stored.salt.as_deref().filter(|_| index == 0);
            let keys: Vec<&str> = adapter.into_iter().chain(salt).collect();
            (!keys.is_empty()).then_some(keys)
        }))
    }
}

#[cfg(test)]
mod tests;
