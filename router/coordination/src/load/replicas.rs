//! Each replica's own vector, under a lease on the server's clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kvasir_core::{EndpointId, LoadBoard, SharedLoad};
use redis::{Pipeline, Value};

use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::key;

use super::vector::{self, Entry};

/// Replicas that are listened to.
const MOST_REPLICAS: usize = 256;

/// Renews our lease and names the replicas whose lease has not ended, see there.
const RENEW: &str = concat!(include_str!("../script/clock.lua"), include_str!("renew.lua"));

pub(super) struct Replicas {
    own: String,
    lease: Duration,
    heard: HashMap<String, Heard>,
}

/// A peer and what it last said.
struct Heard {
    at: Option<Instant>,
    entries: Vec<Entry>,
}

impl Replicas {
    pub(super) fn new(own: String, lease: Duration) -> Self {
        Self { own, lease, heard: HashMap::new() }
    }

    /// Tells our vector and hears those of the peers that are known; new peers are heard the next time. How many
    /// vectors could not be read.
    pub(super) async fn exchange(
        &mut self,
        redis: &Redis,
        board: &dyn LoadBoard,
        begun: Instant,
        limit: Duration,
    ) -> Result<u64, StoreError> {
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let asked: Vec<String> = self.heard.keys().cloned().collect();
        let mut pipe = Pipeline::with_capacity(3);
        pipe.cmd("SET")
            .arg(key::load_vector(&self.own))
            .arg(vector::write(&board.own()))
            .arg("PX")
            .arg(lease);
        pipe.cmd("EVAL").arg(RENEW).arg(1).arg(key::REPLICAS).arg(&self.own).arg(lease).arg(MOST_REPLICAS);
        if !asked.is_empty() {
            let vectors: Vec<String> = asked.iter().map(|peer| key::load_vector(peer)).collect();
            pipe.cmd("MGET").arg(vectors);
        }
        let answers = redis.pipeline(&pipe, limit).await?;
        if let Some(refusal) = answers.iter().find_map(refusal) {
            return Err(StoreError::Refused(refusal));
        }
        let mut answers = answers.into_iter().skip(1);
        let alive: Vec<String> =
            answers.next().map_or(Ok(Vec::new()), redis::from_redis_value).map_err(strange)?;
        let vectors: Vec<Option<Vec<u8>>> =
            answers.next().map_or(Ok(Vec::new()), redis::from_redis_value).map_err(strange)?;
        let mut ignored = 0;
        for (peer, bytes) in asked.iter().zip(vectors) {
            let entries = bytes.as_deref().map(vector::read);
            ignored += u64::from(entries == Some(None));
            if let Some(heard) = self.heard.get_mut(peer) {
                // A vector that is gone or means nothing to us says that there is nothing.
                *heard = Heard { at: Some(begun), entries: entries.flatten().unwrap_or_default() };
            }
        }
        self.heard.retain(|peer, _| alive.contains(peer));
        for peer in alive.into_iter().filter(|peer| *peer != self.own) {
            self.heard.entry(peer).or_insert(Heard { at: None, entries: Vec::new() });
        }
        Ok(ignored)
    }

    /// What all peers that are still believed have in flight, and how many peers that are.
    pub(super) fn peers(
        &mut self,
        now: Instant,
        believed: Duration,
        board: &dyn LoadBoard,
    ) -> (Vec<(EndpointId, SharedLoad)>, usize) {
        let fresh = |heard: &&Heard| heard.at.is_some_and(|at| now.saturating_duration_since(at) <= believed);
        let mut sums: HashMap<u64, SharedLoad> = HashMap::new();
        let mut count = 0;
        for heard in self.heard.values().filter(fresh) {
            count += 1;
            for entry in &heard.entries {
                let sum = sums.entry(entry.endpoint).or_default();
                sum.in_flight = sum.in_flight.saturating_add(entry.load.in_flight);
                sum.prefill_tokens = sum.prefill_tokens.saturating_add(entry.load.prefill_tokens);
                sum.decoding = sum.decoding.saturating_add(entry.load.decoding);
            }
        }
        if sums.is_empty() {
            return (Vec::new(), count);
        }
        let known = board.endpoints().into_iter();
        let peers =
            known.filter_map(|endpoint| Some((endpoint.clone(), *sums.get(&vector::hash_of(&endpoint))?)));
        (peers.collect(), count)
    }

    /// The peers whose lease had not ended at the last exchange.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.heard.keys().map(String::as_str)
    }

    pub(super) async fn withdraw(&mut self, redis: &Redis, limit: Duration) -> Result<(), StoreError> {
        let mut pipe = Pipeline::with_capacity(2);
        pipe.cmd("DEL").arg(key::load_vector(&self.own));
        pipe.cmd("ZREM").arg(key::REPLICAS).arg(&self.own);
        let answers: Vec<Value> = redis.pipeline(&pipe, limit).await?;
        answers.iter().find_map(refusal).map_or(Ok(()), |refusal| Err(StoreError::Refused(refusal)))
    }
}

fn strange(_: redis::ParsingError) -> StoreError {
    StoreError::Refused(Refusal::Other)
}
