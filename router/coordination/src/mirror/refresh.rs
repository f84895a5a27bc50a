//! Reading who is published in one stream, with leases and heads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::MirrorSink;
use redis::{FromRedisValue, Pipeline, Value};

use super::machine::{Listed, MOST_OWNERS, Refresh};
use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::delta::StreamId;
use crate::key;
use crate::snapshot::{Head, HeadFault};

/// Asks one stream. The heads of the owners that are `known` come in the same round trip; those of new ones cost
/// another.
pub(super) async fn refresh(
    redis: &Redis,
    stream: u8,
    known: Vec<Arc<str>>,
    tailed: Option<StreamId>,
    sink: &dyn MirrorSink,
    limit: Duration,
) -> Result<Refresh, StoreError> {
    let mut pipe = Pipeline::with_capacity(4 + known.len());
    pipe.cmd("GET").arg(key::store(stream));
    pipe.cmd("TIME");
    pipe.cmd("ZREVRANGE").arg(key::owners(stream)).arg(0).arg(MOST_OWNERS - 1).arg("WITHSCORES");
    for name in &known {
        ask_head(&mut pipe, name);
    }
    // After the heads: whatever they speak of is not newer than this entry.
    pipe.cmd("XREVRANGE").arg(key::deltas(stream)).arg("+").arg("-").arg("COUNT").arg(1);
    let mut values = redis.pipeline(&pipe, limit).await?.into_iter();
    let store = values.next().and_then(|value| read::<Option<String>>(&value).ok()).flatten();
    let (seconds, micros): (u64, u64) = read(&values.next().unwrap_or(Value::Nil))?;
    let now_ms = seconds * 1000 + micros / 1000;
    let leases: Vec<(Vec<u8>, f64)> = read(&values.next().unwrap_or(Value::Nil))?;
    let mut heads: HashMap<Arc<str>, Result<Head, HeadFault>> =
        known.into_iter().map(|name| (name, Head::parse(&values.next().unwrap_or(Value::Nil)))).collect();
    let last_id = newest(&values.next().unwrap_or(Value::Nil));

    let mut named = Vec::with_capacity(leases.len());
    let mut malformed = 0;
    for (name, lease_end) in leases {
        // Only numbers that a writer writes; a cast of anything else saturates.
        let lease_end = lease_end as u64;
        match String::from_utf8(name).ok().and_then(|name| Some((key::parse_owner(&name)?, name))) {
            // Another spelling of an owner's name would be a second owner.
            Some((id, name)) if key::owner(&id) == name && key::stream_of(&name) == stream => {
                named.push((Arc::<str>::from(name), id, lease_end));
            }
            _ => malformed += 1,
        }
    }
    let new: Vec<Arc<str>> = named
        .iter()
        .filter(|(name, _, lease_end)| *lease_end > now_ms && !heads.contains_key(name))
        .map(|(name, _, _)| Arc::clone(name))
        .collect();
    if !new.is_empty() {
        let mut pipe = Pipeline::with_capacity(new.len());
        new.iter().for_each(|name| ask_head(&mut pipe, name));
        let values = redis.pipeline(&pipe, limit).await?;
        heads.extend(new.into_iter().zip(values).map(|(name, value)| (name, Head::parse(&value))));
    }
    let owners = named.into_iter().map(|(name, id, lease_end)| {
        let head = heads.remove(&name).unwrap_or(Err(HeadFault::Absent));
        let slot = head.as_ref().ok().and_then(|head| sink.slot(&id, &head.model));
        Listed { name, id, lease_end, head, slot }
    });
    Ok(Refresh { now_ms, store, last_id, tailed, owners: owners.collect(), malformed })
}

/// Adds the question for an owner's head.
pub(super) fn ask_head(pipe: &mut Pipeline, name: &str) {
    pipe.cmd("HMGET").arg(key::meta(name)).arg(&Head::FIELDS[..]);
}

fn read<T: FromRedisValue>(value: &Value) -> Result<T, StoreError> {
    if let Some(refusal) = refusal(value) {
        return Err(StoreError::Refused(refusal));
    }
    redis::from_redis_value_ref(value).map_err(|_| StoreError::Refused(Refusal::Other))
}

/// The id of the first entry of an answer.
fn newest(value: &Value) -> Option<StreamId> {
    let Value::Array(entries) = value else { return None };
    let Value::Array(parts) = entries.first()? else { return None };
    let id: String = redis::from_redis_value_ref(parts.first()?).ok()?;
    StreamId::parse(&id)
}
