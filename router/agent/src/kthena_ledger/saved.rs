//! One rank's part of a ledger as bytes, so that an agent that starts anew can go on where another one was.
//!
//! Layout, little-endian: tag, number of the last batch, adapter names, groups without whole prefixes, then each group
//! with its blocks. A block with an integer name and no adapter takes 17 bytes. There are no token ids and no salts in
//! it, only what kthena's keys show too.

use std::sync::Arc;

use kvasir_core::EngineHash;

use super::generations::Place;
use super::{Adapter, BlockId, Entry, KthenaLedger};

/// Start of every saved ledger; changes with the layout.
const TAG: &[u8; 8] = b"kvkthl01";

/// Kinds of names, in the lowest two bits of a block's first byte.
const INTEGER: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const KIND: u8 = 3;
/// A content hash follows.
const OWNED: u8 = 1 << 2;
/// The number of an adapter follows.
const OF_ADAPTER: u8 = 1 << 3;
/// The number of copies follows.
const COPIES: u8 = 1 << 4;

/// What one rank held after its last batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedLedger {
    seq: u64,
    adapters: Vec<Arc<str>>,
    partial: Vec<u32>,
    entries: Vec<(u32, EngineHash, Entry)>,
}

/// Why bytes are no saved ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the saved state of kthena's keys is damaged, or of another version")]
pub struct DamagedLedger;

impl SavedLedger {
    /// Number of the last batch that is in it.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Blocks of the engine.
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }

    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.entries.len() * 17);
        bytes.extend_from_slice(TAG);
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        put_u32(&mut bytes, self.adapters.len());
        for name in &self.adapters {
            put_u32(&mut bytes, name.len());
            bytes.extend_from_slice(name.as_bytes());
        }
        put_u32(&mut bytes, self.partial.len());
        self.partial.iter().for_each(|group| bytes.extend_from_slice(&group.to_le_bytes()));
        for run in self.entries.chunk_by(|one, other| one.0 == other.0) {
            let group = run.first().map_or(0, |(group, ..)| *group);
            bytes.extend_from_slice(&group.to_le_bytes());
            put_u32(&mut bytes, run.len());
            run.iter().for_each(|(_, name, entry)| put_entry(&mut bytes, name, entry));
        }
        bytes
    }

    /// Reads them back.
    ///
    /// # Errors
    /// They are none, or not whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedLedger> {
        let mut reader = Reader(bytes);
        if reader.take(TAG.len())? != TAG {
            return Err(DamagedLedger);
        }
        let seq = u64::from_le_bytes(reader.array()?);
        let adapters = (0..reader.count(4)?).map(|_| reader.text()).collect::<Result<Vec<_>, _>>()?;
        let partial = (0..reader.count(4)?).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        let mut entries = Vec::new();
        while !reader.0.is_empty() {
            let group = reader.u32()?;
            // The shortest block is a first byte and the length of an empty name.
            let blocks = reader.count(2)?;
            entries.reserve(blocks);
            for _ in 0..blocks {
                let (name, entry) = reader.entry(adapters.len())?;
                entries.push((group, name, entry));
            }
        }
        Ok(Self { seq, adapters, partial, entries })
    }
}

impl KthenaLedger {
    /// What a rank holds after its last batch; `None` when it had none.
    pub fn save(&self, rank: u32) -> Option<SavedLedger> {
        let seq = *self.last_seq.get(&rank)?;
        let here = self.entries.iter().filter(|(place, ..)| place.rank == rank);
        let mut entries: Vec<_> =
            here.map(|(place, name, entry)| (place.group, name.clone(), *entry)).collect();
        // In runs of one group, with a name once in each.
        entries.sort_unstable_by_key(|(group, ..)| *group);
        let partial = self.partial.iter().filter(|place| place.rank == rank).map(|place| place.group);
        Some(SavedLedger { seq, adapters: self.adapters.clone(), partial: partial.collect(), entries })
    }

    /// Replaces what a rank holds by a saved state, as if the batches up to its last one had just been applied.
    pub fn restore(&mut self, rank: u32, saved: &SavedLedger) {
        self.reset(rank);
        self.last_seq.insert(rank, saved.seq);
        self.partial.extend(saved.partial.iter().map(|group| Place { rank, group: *group }));
        // Adapters have other numbers here.
        let numbers: Vec<Option<Adapter>> =
            saved.adapters.iter().map(|name| self.adapter(Some(name))).collect();
        for (group, name, entry) in saved.entries.iter().take(self.limit) {
            let place = Place { rank, group: *group };
            self.places.insert(place);
            let block = entry.block.and_then(|block| {
                let adapter = match usize::from(block.adapter).checked_sub(1) {
                    None => 0,
                    Some(at) => numbers.get(at).copied().flatten()?,
                };
                Some(BlockId { adapter, hash: block.hash })
            });
            self.hold(place, name, block);
            if let Some(held) = self.entries.get_mut(place, name) {
                held.copies = entry.copies;
            }
        }
    }
}

fn put_u32(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_entry(bytes: &mut Vec<u8>, name: &EngineHash, entry: &Entry) {
    let (kind, integer) = match name {
        EngineHash::Int { bits, negative } => (if *negative { NEGATIVE } else { INTEGER }, Some(*bits)),
        EngineHash::Bytes(_) => (BYTES, None),
    };
    let adapter = entry.block.map(|block| block.adapter).filter(|adapter| *adapter > 0);
    let mut first = kind;
    first |= if entry.block.is_some() { OWNED } else { 0 };
    first |= if adapter.is_some() { OF_ADAPTER } else { 0 };
    first |= if entry.copies > 1 { COPIES } else { 0 };
    bytes.push(first);
    match (integer, name) {
        (Some(bits), _) => bytes.extend_from_slice(&bits.to_le_bytes()),
        (None, EngineHash::Bytes(name)) => {
            // Engines send 32 bytes; a name that does not fit one length byte is not kept by the decoder either.
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend(name.iter().take(usize::from(u8::MAX)));
        }
        (None, EngineHash::Int { .. }) => {}
    }
    if let Some(block) = entry.block {
        bytes.extend_from_slice(&block.hash.to_le_bytes());
    }
    if let Some(adapter) = adapter {
        bytes.extend_from_slice(&adapter.to_le_bytes());
    }
    if entry.copies > 1 {
        bytes.extend_from_slice(&entry.copies.to_le_bytes());
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], DamagedLedger> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DamagedLedger)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DamagedLedger> {
        self.take(N)?.try_into().map_err(|_| DamagedLedger)
    }

    fn u32(&mut self) -> Result<u32, DamagedLedger> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number of things that each take at least `least` bytes, so that a lie cannot ask for memory.
    fn count(&mut self, least: usize) -> Result<usize, DamagedLedger> {
        let count = usize::try_from(self.u32()?).map_err(|_| DamagedLedger)?;
        if count.saturating_mul(least) > self.0.len() { Err(DamagedLedger) } else { Ok(count) }
    }

    fn text(&mut self) -> Result<Arc<str>, DamagedLedger> {
        let length = self.count(1)?;
        std::str::from_utf8(self.take(length)?).map(Arc::from).map_err(|_| DamagedLedger)
    }

    fn entry(&mut self, adapters: usize) -> Result<(EngineHash, Entry), DamagedLedger> {
        let [first] = self.array()?;
        let name = match first & KIND {
            BYTES => {
                let [length] = self.array()?;
                EngineHash::Bytes(self.take(usize::from(length))?.into())
            }
            kind @ (INTEGER | NEGATIVE) => {
                EngineHash::Int { bits: u64::from_le_bytes(self.array()?), negative: kind == NEGATIVE }
            }
            _ => return Err(DamagedLedger),
        };
        let hash = if first & OWNED > 0 { Some(u64::from_le_bytes(self.array()?)) } else { None };
        let adapter = if first & OF_ADAPTER > 0 { Adapter::from_le_bytes(self.array()?) } else { 0 };
        let copies = if first & COPIES > 0 { self.u32()? } else { 1 };
        if usize::from(adapter) > adapters || copies == 0 {
            return Err(DamagedLedger);
        }
        Ok((name, Entry { block: hash.map(|hash| BlockId { adapter, hash }), copies }))
    }
}
