//! One event's fields, gathered from either encoding.

use std::fmt::Write;
use std::sync::Arc;

use kvasir_core::{EngineHash, KvEvent, Medium, Stored};
use smallvec::SmallVec;

use super::reader::{DecodeError, Int, Kind, Reader};

/// Positions of `BlockStored` in the array encoding, after the tag.
const STORED: [&str; 10] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
];

/// Positions of `BlockRemoved` in the array encoding, after the tag.
const REMOVED: [&str; 3] = ["block_hashes", "medium", "group_idx"];

/// Everything an event may say that we use, whatever its order on the wire.
#[derive(Debug, Default)]
struct Fields {
    hashes: Option<Vec<EngineHash>>,
    parent: Option<EngineHash>,
    token_ids: Option<Vec<u32>>,
    block_size: Option<u32>,
    adapter_id: Option<i128>,
    adapter_name: Option<Arc<str>>,
    extra_keys: Vec<Option<Vec<Arc<str>>>>,
    salt: Option<Arc<str>>,
    group: u32,
    spec_kind: Option<Arc<str>>,
    medium: Medium,
}

/// Reads one event; `Ok(None)` for a tag that is not known here. On an error the reader may stand anywhere.
pub(super) fn read_event(reader: &mut Reader<'_>) -> Result<Option<KvEvent>, DecodeError> {
    match reader.kind()? {
        Kind::Array => read_positional(reader),
        Kind::Map => read_named(reader),
        _ => Err(reader.unexpected("an event")),
    }
}

fn read_positional(reader: &mut Reader<'_>) -> Result<Option<KvEvent>, DecodeError> {
    let length = reader.array_len()?;
    if length == 0 {
        return Err(DecodeError::Missing("tag"));
    }
    let tag = reader.text()?;
    let names: &[&str] = match tag {
        "BlockStored" => &STORED,
        "BlockRemoved" => &REMOVED,
        _ => &[],
    };
    let mut fields = Fields::default();
    for position in 0..length - 1 {
        match names.get(position) {
            Some(name) => fields.read(name, reader)?,
            None => reader.skip()?,
        }
    }
    fields.into_event(tag)
}

fn read_named(reader: &mut Reader<'_>) -> Result<Option<KvEvent>, DecodeError> {
    let start = reader.clone();
    let length = reader.map_len()?;
    let mut tag = None;
    let mut fields = Fields::default();
    let mut failed = None;
    for _ in 0..length {
        let name = reader.text()?;
        if name == "type" {
            tag = Some(reader.text()?);
        } else if let Err(error) = fields.read(name, reader) {
            failed = Some(error);
            break;
        }
    }
    let Some(error) = failed else {
        return fields.into_event(tag.ok_or(DecodeError::Missing("type"))?);
    };
    // A kind we do not know may give our names another meaning: then it is unknown, not broken.
    let tag = match tag {
        Some(tag) => tag,
        None => find_tag(start)?.ok_or(error)?,
    };
    if matches!(tag, "BlockStored" | "BlockRemoved" | "AllBlocksCleared") { Err(error) } else { Ok(None) }
}

fn find_tag(mut reader: Reader<'_>) -> Result<Option<&str>, DecodeError> {
    for _ in 0..reader.map_len()? {
        if reader.text()? == "type" {
            return reader.text().map(Some);
        }
        reader.skip()?;
    }
    Ok(None)
}

impl Fields {
    fn read(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        if reader.take_nil() {
            return Ok(());
        }
        match name {
            "block_hashes" => self.hashes = Some(read_hashes(reader)?),
            "parent_block_hash" => self.parent = Some(read_hash(reader)?),
            "token_ids" => self.token_ids = Some(read_tokens(reader)?),
            "block_size" => self.block_size = Some(reader.u32("block_size")?),
            "lora_id" => {
                self.adapter_id = Some(match reader.int()? {
                    Int::Unsigned(id) => i128::from(id),
                    Int::Negative(id) => i128::from(id),
                });
            }
            "lora_name" => self.adapter_name = Some(reader.text()?.into()),
            "extra_keys" => self.extra_keys = read_extra_keys(reader)?,
            "cache_salt" => self.salt = Some(reader.text()?.into()),
            "group_idx" => self.group = reader.u32("group_idx")?,
            "kv_cache_spec_kind" => self.spec_kind = Some(reader.text()?.into()),
            "medium" => self.medium = read_medium(reader)?,
            _ => reader.skip()?,
        }
        Ok(())
    }

    fn into_event(mut self, tag: &str) -> Result<Option<KvEvent>, DecodeError> {
        Ok(Some(match tag {
            "BlockStored" => {
                self.spread_salt();
                KvEvent::Stored(Stored {
                    hashes: self.hashes.ok_or(DecodeError::Missing("block_hashes"))?,
                    parent: self.parent,
                    token_ids: self.token_ids.ok_or(DecodeError::Missing("token_ids"))?,
                    block_size: self.block_size.ok_or(DecodeError::Missing("block_size"))?,
                    adapter: self.adapter_name.or_else(|| self.adapter_id.map(|id| id.to_string().into())),
                    extra_keys: self.extra_keys,
                    group: self.group,
                    spec_kind: self.spec_kind,
                    medium: self.medium,
                })
            }
            "BlockRemoved" => KvEvent::Removed {
                hashes: self.hashes.ok_or(DecodeError::Missing("block_hashes"))?,
                group: self.group,
                medium: self.medium,
            },
            "AllBlocksCleared" => KvEvent::AllCleared,
            _ => return Ok(None),
        }))
    }

    /// SGLang names the salt once for the whole prompt; in a chain it belongs to the first block, as in vLLM.
    fn spread_salt(&mut self) {
        let blocks = self.hashes.as_ref().map_or(0, Vec::len);
        if let Some(salt) = self.salt.take()
            && self.parent.is_none()
            && blocks > 0
        {
            self.extra_keys.resize(blocks, None);
            if let Some(first) = self.extra_keys.first_mut() {
                first.get_or_insert_default().push(salt);
            }
        }
    }
}

fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<EngineHash>, DecodeError> {
    let length = reader.array_len()?;
    // A hash here is far larger than its shortest form on the wire, so the header alone reserves little.
    let mut hashes = Vec::with_capacity(length.min(8192));
    for _ in 0..length {
        hashes.push(read_hash(reader)?);
    }
    Ok(hashes)
}

fn read_hash(reader: &mut Reader<'_>) -> Result<EngineHash, DecodeError> {
    Ok(match reader.kind()? {
        Kind::Bytes => EngineHash::Bytes(SmallVec::from_slice(reader.binary()?)),
        Kind::Text => EngineHash::Bytes(SmallVec::from_slice(reader.text()?.as_bytes())),
        _ => match reader.int()? {
            Int::Unsigned(bits) => EngineHash::Int { bits, negative: false },
            Int::Negative(value) => EngineHash::Int { bits: value.cast_unsigned(), negative: true },
        },
    })
}

/// Token ids. SGLang's bigram pages carry pairs (this token, next token): the first of each is the token.
fn read_tokens(reader: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let length = reader.array_len()?;
    let mut tokens = Vec::with_capacity(length);
    for _ in 0..length {
        if reader.kind()? == Kind::Array {
            let inner = reader.array_len()?;
            if inner == 0 {
                return Err(reader.unexpected("a token id"));
            }
            tokens.push(reader.u32("token_ids")?);
            for _ in 1..inner {
                reader.skip()?;
            }
        } else {
            tokens.push(reader.u32("token_ids")?);
        }
    }
    Ok(tokens)
}

fn read_medium(reader: &mut Reader<'_>) -> Result<Medium, DecodeError> {
    let text = reader.text()?;
    Ok(if text.is_empty() || text.eq_ignore_ascii_case("GPU") {
        Medium::Gpu
    } else {
        Medium::Other(text.to_ascii_uppercase().into())
    })
}

fn read_extra_keys(reader: &mut Reader<'_>) -> Result<Vec<Option<Vec<Arc<str>>>>, DecodeError> {
    let blocks = reader.array_len()?;
    let mut all = Vec::with_capacity(blocks.min(8192));
    for _ in 0..blocks {
        if reader.take_nil() {
            all.push(None);
            continue;
        }
        let length = reader.array_len()?;
        let mut keys = Vec::with_capacity(length.min(16));
        for _ in 0..length {
            if reader.kind()? == Kind::Text {
                keys.push(reader.text()?.into());
            } else {
                let mut text = String::new();
                write_key(reader, &mut text, 0)?;
                keys.push(text.into());
            }
        }
        all.push(Some(keys));
    }
    Ok(all)
}

/// A key that is no plain string, as text that no plain string of a client is likely to equal: each form starts
/// with a control character and its own letter.
fn write_key(reader: &mut Reader<'_>, out: &mut String, depth: usize) -> Result<(), DecodeError> {
    if depth > 4 {
        return Err(reader.unexpected("a flatter extra key"));
    }
    match reader.kind()? {
        Kind::Text => {
            let text = reader.text()?;
            let _ = write!(out, "\u{1}t{}:{text}", text.len());
        }
        Kind::Int => {
            let _ = match reader.int()? {
                Int::Unsigned(value) => write!(out, "\u{1}i{value}"),
                Int::Negative(value) => write!(out, "\u{1}i{value}"),
            };
        }
        Kind::Float => {
            let _ = write!(out, "\u{1}f{:x}", reader.number()?.to_bits());
        }
        Kind::Bytes => {
            out.push_str("\u{1}b");
            for byte in reader.binary()? {
                let _ = write!(out, "{byte:02x}");
            }
        }
        Kind::Array => {
            let length = reader.array_len()?;
            let _ = write!(out, "\u{1}a{length}:");
            for _ in 0..length {
                write_key(reader, out, depth + 1)?;
            }
        }
        Kind::Nil => {
            reader.skip()?;
            out.push_str("\u{1}n");
        }
        Kind::Bool | Kind::Map | Kind::Extension => return Err(reader.unexpected("an extra key")),
    }
    Ok(())
}
