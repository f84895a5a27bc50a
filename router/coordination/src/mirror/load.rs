//! Reading owners as a whole: heads, chunks, and the deltas after them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::machine::{LoadFault, Loaded};
use super::refresh::ask_head;
use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::delta::{Delta, Entry, StreamId};
use crate::key;
use crate::snapshot::{Blocks, CHUNK_BLOCKS, ChunkLabel, Epoch, Head, decode_chunk};

/// Chunks in one command: half a megabyte at the intended size.
const CHUNKS_IN_COMMAND: u32 = 16;
/// Chunks in one round trip.
const CHUNKS_AT_ONCE: usize = 4 * CHUNKS_IN_COMMAND as usize;
/// Entries in one round trip: a few milliseconds of the server's time.
const ENTRIES_AT_ONCE: usize = 1000;
/// Round trips through one stream; it is trimmed far below that.
const MOST_PAGES: usize = 100;

type Outcome = Result<Loaded, LoadFault>;

/// Reads owners of one stream. The deltas of all are read in one pass, for there may be thousands of others' between them.
pub(super) async fn load(
    redis: &Redis,
    stream: u8,
    names: Vec<Arc<str>>,
    limit: Duration,
) -> Vec<(Arc<str>, Outcome)> {
    let mut pipe = Pipeline::with_capacity(names.len());
    names.iter().for_each(|name| ask_head(&mut pipe, name));
    let heads = match redis.pipeline(&pipe, limit).await {
        Ok(heads) => heads,
        Err(error) => return names.into_iter().map(|name| (name, Err(error.into()))).collect(),
    };
    let mut outcomes = Vec::with_capacity(names.len());
    for (name, value) in names.into_iter().zip(heads) {
        let outcome = match head(&value) {
            Ok(head) => chunks(redis, &name, head, limit).await,
            Err(fault) => Err(fault),
        };
        outcomes.push((name, outcome));
    }
    if let Err(fault) = deltas(redis, stream, &mut outcomes, limit).await {
        for (_, outcome) in &mut outcomes {
            if outcome.is_ok() {
                *outcome = Err(fault.into());
            }
        }
    }
    for (_, outcome) in &mut outcomes {
        if let Ok(loaded) = outcome
            && loaded.deltas.last().map_or(loaded.head.floor, |delta| delta.seq) < loaded.head.seq
        {
            *outcome = Err(LoadFault::Hole);
        }
    }
    outcomes
}

fn head(value: &Value) -> Result<Head, LoadFault> {
    refused(value)?;
    Ok(Head::parse(value)?)
}

/// An error that one command of a pipeline got.
fn refused(value: &Value) -> Result<(), StoreError> {
    refusal(value).map_or(Ok(()), |refusal| Err(StoreError::Refused(refusal)))
}

async fn chunks(redis: &Redis, name: &str, head: Head, limit: Duration) -> Outcome {
    let mut blocks = Blocks::default();
    // As many as its head says, but no more than would be in so many chunks.
    let most = 2 * CHUNK_BLOCKS * head.chunks as usize;
    blocks.gpu.reserve(usize::try_from(head.blocks).map_or(most, |blocks| blocks.min(most)));
    let indexes: Vec<u32> = (0..head.chunks).collect();
    for some in indexes.chunks(CHUNKS_AT_ONCE) {
        let mut pipe = Pipeline::new();
        for part in some.chunks(CHUNKS_IN_COMMAND as usize) {
            let command = pipe.cmd("MGET");
            for index in part {
                command.arg(key::chunk(name, head.generation, *index));
            }
        }
        let answers = redis.pipeline(&pipe, limit).await?;
        let mut found = Vec::with_capacity(some.len());
        for answer in answers {
            refused(&answer)?;
            let Value::Array(values) = answer else { return Err(LoadFault::ChunkMissing) };
            found.extend(values);
        }
        for (index, value) in some.iter().zip(&found) {
            let Value::BulkString(bytes) = value else { return Err(LoadFault::ChunkMissing) };
            let label = ChunkLabel { epoch: head.epoch, generation: head.generation, index: *index };
            decode_chunk(bytes, label, head.chunks, &mut blocks)?;
        }
        if found.len() != some.len() {
            return Err(LoadFault::ChunkMissing);
        }
    }
    Ok(Loaded { head, blocks, deltas: Vec::new() })
}

/// Reads the stream from the lowest floor on, and gives each owner its deltas up to the first hole.
async fn deltas(
    redis: &Redis,
    stream: u8,
    outcomes: &mut [(Arc<str>, Outcome)],
    limit: Duration,
) -> Result<(), StoreError> {
    let mut wanted: HashMap<Epoch, &mut Loaded> = HashMap::new();
    let mut from: Option<StreamId> = None;
    for (_, outcome) in outcomes.iter_mut() {
        if let Ok(loaded) = outcome
            && loaded.head.seq > loaded.head.floor
        {
            from = Some(from.map_or(loaded.head.floor_id, |from| from.min(loaded.head.floor_id)));
            wanted.insert(loaded.head.epoch, loaded);
        }
    }
    let Some(mut from) = from else { return Ok(()) };
    for _ in 0..MOST_PAGES {
        let mut command = redis::cmd("XRANGE");
        command.arg(key::deltas(stream)).arg(from.to_string()).arg("+").arg("COUNT").arg(ENTRIES_AT_ONCE);
        let answer: Value = redis.query(&command, limit).await?;
        let Value::Array(entries) = answer else { return Err(StoreError::Refused(Refusal::Other)) };
        for entry in &entries {
            let (id, entry) = Entry::parse(entry);
            from = id.map_or(from, StreamId::next);
            if let Ok(Entry::Delta(delta)) = entry
                && let Some(loaded) = wanted.get_mut(&delta.epoch)
            {
                append(loaded, delta);
            }
        }
        if entries.len() < ENTRIES_AT_ONCE {
            break;
        }
    }
    Ok(())
}

/// Adds a delta that follows those that are there.
fn append(loaded: &mut Loaded, delta: Delta) {
    let last = loaded.deltas.last().map_or(loaded.head.floor, |delta| delta.seq);
    if delta.seq == last + 1 {
        loaded.deltas.push(delta);
    }
}
