//! kthena's on-flight counters, where its routers share the Redis.
//!
//! kthena counts up and down with two commands for each request, and what a router had in flight when it died stays
//! in the count. Here each replica puts its share right every tick, all pods in one script, and the share of a replica
//! that died is taken back by the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kvasir_core::{EndpointId, LoadBoard, SharedLoad};

use crate::connection::{Redis, StoreError};
use crate::key;

/// Puts our share right, see there.
const SHARE: &str = concat!(include_str!("../script/clock.lua"), include_str!("counters.lua"));
/// Whether anybody else counts, see there.
const FOREIGN: &str = include_str!("foreign.lua");
/// How long a replica's share outlives it. Longer than a pause of its process, for it is others who take it back.
const LEASE: Duration = Duration::from_secs(10);
/// Pods in one exchange.
const MOST_PODS: usize = 4096;

pub(super) struct Counters {
    replica: String,
    /// Our share at the last exchange, by field. Pods that are gone are told once more, as having nothing.
    told: BTreeMap<String, u32>,
    peers: Vec<(EndpointId, SharedLoad)>,
    heard: Option<Instant>,
    /// Replicas whose lease had ended at the last exchange: their shares are taken back with the next one.
    ended: Vec<String>,
}

impl Counters {
    pub(super) fn new(replica: String) -> Self {
        Self { replica, told: BTreeMap::new(), peers: Vec::new(), heard: None, ended: Vec::new() }
    }

    /// Tells our share and hears the totals. How many counters were healed.
    pub(super) async fn exchange(
        &mut self,
        redis: &Redis,
        board: &dyn LoadBoard,
        begun: Instant,
        limit: Duration,
    ) -> Result<u64, StoreError> {
        let mut pods: BTreeMap<String, Vec<EndpointId>> = BTreeMap::new();
        for endpoint in board.endpoints() {
            let field = key::kthena_pod_slash(&endpoint.namespace, &endpoint.pod);
            if pods.len() < MOST_PODS || pods.contains_key(&field) {
                pods.entry(field).or_default().push(endpoint);
            }
        }
        let mut shares: BTreeMap<String, u32> =
            self.told.keys().chain(pods.keys()).map(|pod| (pod.clone(), 0)).collect();
        for (endpoint, load) in board.own() {
            if let Some(share) = shares.get_mut(&key::kthena_pod_slash(&endpoint.namespace, &endpoint.pod)) {
                *share = share.saturating_add(load.in_flight);
            }
        }
        let (totals, healed, ended) = self.send(redis, &shares, LEASE, limit).await?;
        self.ended = ended.into_iter().filter(|replica| *replica != self.replica).collect();
        self.peers.clear();
        for ((field, share), total) in shares.iter().zip(totals) {
            let others = u32::try_from(total.saturating_sub(i64::from(*share)).max(0)).unwrap_or(u32::MAX);
            self.peers.extend(pods.get(field).into_iter().flat_map(|ranks| split(ranks, others)));
        }
        self.heard = Some(begun);
        self.told =
            shares.into_iter().filter(|(field, share)| *share > 0 || pods.contains_key(field)).collect();
        Ok(healed)
    }

    /// What others have in flight, and whether anybody has; `None` when it was not heard lately.
    pub(super) fn peers(
        &self,
        now: Instant,
        believed: Duration,
    ) -> Option<(Vec<(EndpointId, SharedLoad)>, usize)> {
        let fresh = self.heard.is_some_and(|at| now.saturating_duration_since(at) <= believed);
        fresh.then(|| (self.peers.clone(), usize::from(!self.peers.is_empty())))
    }

    pub(super) async fn withdraw(&mut self, redis: &Redis, limit: Duration) -> Result<(), StoreError> {
        let shares = self.told.keys().map(|field| (field.clone(), 0)).collect();
        self.send(redis, &shares, Duration::ZERO, limit).await?;
        self.told.clear();
        Ok(())
    }

    async fn send(
        &self,
        redis: &Redis,
        shares: &BTreeMap<String, u32>,
        lease: Duration,
        limit: Duration,
    ) -> Result<(Vec<i64>, u64, Vec<String>), StoreError> {
        let mut script = redis::cmd("EVAL");
        script.arg(SHARE).arg(3 + self.ended.len());
        script.arg(key::KTHENA_ON_FLIGHT).arg(key::kthena_shares(&self.replica)).arg(key::kthena_replicas());
        self.ended.iter().for_each(|replica| {
            script.arg(key::kthena_shares(replica));
        });
        script.arg(&self.replica).arg(u64::try_from(lease.as_millis()).unwrap_or(0));
        script.arg(self.ended.len()).arg(&self.ended);
        for (field, share) in shares {
            script.arg(field).arg(*share);
        }
        redis.query(&script, limit).await
    }
}

/// Whether anybody but these replicas has something in flight in the counters.
pub(super) async fn is_foreign(
    redis: &Redis,
    replicas: impl Iterator<Item = &str>,
    limit: Duration,
) -> Result<bool, StoreError> {
    let shares: Vec<String> = replicas.map(key::kthena_shares).collect();
    let mut script = redis::cmd("EVAL");
    script.arg(FOREIGN).arg(1 + shares.len()).arg(key::KTHENA_ON_FLIGHT).arg(shares);
    redis.query(&script, limit).await
}

/// A pod's requests over its ranks: the counters do not tell them apart, nor prefill from decode. They are taken for
/// decoding, which most requests are most of the time.
fn split(ranks: &[EndpointId], requests: u32) -> impl Iterator<Item = (EndpointId, SharedLoad)> {
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX).max(1);
    ranks.iter().zip(0_u32..).filter_map(move |(rank, place)| {
        let share = requests / count + u32::from(place < requests % count);
        let load = SharedLoad { in_flight: share, prefill_tokens: 0, decoding: share };
        (share > 0).then(|| (rank.clone(), load))
    })
}
