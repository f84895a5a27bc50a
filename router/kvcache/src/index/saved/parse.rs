//! Bytes back to a saved owner: nothing in them is believed before it is checked.

use std::sync::Arc;

use kvasir_core::{BlockHash, Completeness, ModelName};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::bytes::{LONGEST_NAME, MAGIC, VERSION, definition};
use super::{SavedLedger, SavedOwner};
use crate::index::BatchMark;
use crate::index::groups::Groups;
use crate::index::ledger::MOST_TIERS;
use crate::index::pages::{Paging, SavedPage};
use crate::index::tier::{EngineKey, SavedTier};

/// What is wrong with the bytes of a saved owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DamagedState {
    /// Something else is in them.
    #[error("the bytes are no saved owner")]
    Foreign,
    /// Another layout.
    #[error("layout {0} of a saved owner is not known here, {VERSION} is")]
    Version(u16),
    /// They end early.
    #[error("{missing} bytes of a saved owner are missing")]
    Truncated {
        /// How many.
        missing: u64,
    },
    /// They go on after their end.
    #[error("{0} bytes follow a saved owner")]
    Trailing(u64),
    /// Some bit is not what was written.
    #[error("the checksum of a saved owner is wrong")]
    Checksum,
    /// The blocks are hashed in another way than here.
    #[error("the saved blocks are hashed by another definition")]
    Definition,
    /// A part that no saved owner has.
    #[error("the saved {0} cannot be")]
    Value(&'static str),
}

impl SavedOwner {
    /// Reads what [`to_bytes`](Self::to_bytes) wrote. Takes no more memory than the bytes claim by their own length.
    ///
    /// # Errors
    /// The bytes are damaged, or of another layout or definition.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedState> {
        let mut head = Input(bytes);
        if head.array() != Ok(*MAGIC) {
            return Err(DamagedState::Foreign);
        }
        let version = head.u16().map_err(|_| DamagedState::Foreign)?;
        if version != VERSION {
            return Err(DamagedState::Version(version));
        }
        let given = bytes.len() as u64;
        let length = head.u64().map_err(|_| DamagedState::Foreign)?;
        if length > given {
            return Err(DamagedState::Truncated { missing: length - given });
        }
        if length < given {
            return Err(DamagedState::Trailing(given - length));
        }
        let (body, checksum) = bytes.split_last_chunk::<8>().ok_or(DamagedState::Foreign)?;
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(DamagedState::Checksum);
        }
        let mut input = Input(head.0.get(..head.0.len().saturating_sub(8)).unwrap_or_default());
        if input.u64()? != definition() {
            return Err(DamagedState::Definition);
        }
        let owner = input.owner()?;
        if input.0.is_empty() { Ok(owner) } else { Err(DamagedState::Value("end")) }
    }
}

/// The bytes that are left.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn owner(&mut self) -> Result<SavedOwner, DamagedState> {
        let model = ModelName::new(self.text("model")?);
        let completeness = match self.u8()? {
            0 => Completeness::Exact,
            1 => Completeness::Partial,
            _ => return Err(DamagedState::Value("completeness")),
        };
        let (first, last) = (self.mark()?, self.mark()?);
        if last.digest.is_none() || first.seq > last.seq {
            return Err(DamagedState::Value("batch"));
        }
        let page = self.u32()?;
        let paging = Paging::of(page);
        if page > 0 && paging.is_none() {
            return Err(DamagedState::Value("block size"));
        }
        let followed = self.flag()?;
        let followed = Some(self.u32()?).filter(|_| followed);
        let groups = Groups { followed, partial: self.u64()? };
        let gpu = self.tier()?;
        let tiers = usize::from(self.u8()?);
        if tiers > MOST_TIERS {
            return Err(DamagedState::Value("number of tiers"));
        }
        let mut other_tiers = Vec::with_capacity(tiers);
        for _ in 0..tiers {
            let name: Arc<str> = Arc::from(self.text("tier")?);
            other_tiers.push((name, self.tier()?));
        }
        let pages = self.pages(paging)?;
        let content = SavedLedger { page, groups, gpu, other_tiers, pages };
        Ok(SavedOwner { model, completeness, first, last, content })
    }

    fn mark(&mut self) -> Result<BatchMark, DamagedState> {
        let (seq, ts) = (self.u64()?, f64::from_bits(self.u64()?));
        let has_digest = self.flag()?;
        Ok(BatchMark { seq, ts, digest: Some(self.u64()?).filter(|_| has_digest) })
    }

    fn tier(&mut self) -> Result<SavedTier, DamagedState> {
        let blocks = self.list(16, |input| Ok((input.key()?, input.key()?)))?;
        let copies = self.list(12, |input| Ok((input.key()?, input.u32()?)))?;
        Ok(SavedTier { blocks, copies })
    }

    fn pages(&mut self, paging: Option<Paging>) -> Result<Vec<SavedPage>, DamagedState> {
        // Only pages smaller than a block end none.
        let size = paging.filter(|paging| !paging.is_plain()).map(|paging| paging.page as usize);
        self.list(25, |input| {
            let key = EngineKey(input.key()?);
            let previous = Some(input.u64()?).filter(|previous| *previous != 0).map(EngineKey);
            let chain = BlockHash(input.key()?);
            let length = usize::from(input.u8()?);
            if Some(length) != size {
                return Err(DamagedState::Value("page"));
            }
            let tokens = (0..length).map(|_| input.u32()).collect::<Result<SmallVec<_>, _>>()?;
            Ok(SavedPage { key, previous, chain, tokens })
        })
    }

    /// A counted list of items that take at least `least` bytes each.
    fn list<T>(
        &mut self,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, DamagedState>,
    ) -> Result<Vec<T>, DamagedState> {
        let count = self.u32()? as usize;
        if count > self.0.len() / least {
            return Err(DamagedState::Value("count"));
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(item(self)?);
        }
        Ok(list)
    }

    fn text(&mut self, what: &'static str) -> Result<String, DamagedState> {
        let length = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(DamagedState::Value(what))?;
        self.0 = rest;
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST_NAME);
        text.map(str::to_owned).ok_or(DamagedState::Value(what))
    }

    /// A hash; 0 stands for none.
    fn key(&mut self) -> Result<u64, DamagedState> {
        match self.u64()? {
            0 => Err(DamagedState::Value("hash")),
            key => Ok(key),
        }
    }

    fn flag(&mut self) -> Result<bool, DamagedState> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DamagedState::Value("flag")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DamagedState> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(DamagedState::Value("length"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn u8(&mut self) -> Result<u8, DamagedState> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DamagedState> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DamagedState> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DamagedState> {
        self.array().map(u64::from_le_bytes)
    }
}
