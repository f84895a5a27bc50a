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

/// The script, see there.
const SCRIPT: &str = include_str!("counters.lua");
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
}

impl Counters {
    pub(super) fn new(replica: String) -> Self {
        Self { replica, told: BTreeMap::new(), peers: Vec::new(), heard: None }
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
        let (totals, healed) = self.send(redis, &shares, LEASE, limit).await?;
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

    /// What others have in flight, as long as it is believed, and whether anybody has.
    pub(super) fn peers(
        &mut self,
        now: Instant,
        believed: Duration,
    ) -> (Vec<(EndpointId, SharedLoad)>, usize) {
        if self.heard.is_none_or(|at| now.saturating_duration_since(at) > believed) {
            self.peers.clear();
        }
        (self.peers.clone(), usize::from(!self.peers.is_empty()))
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
    ) -> Result<(Vec<i64>, u64), StoreError> {
        let mut script = redis::cmd("EVAL");
        script.arg(SCRIPT).arg(3).arg(key::KTHENA_ON_FLIGHT).arg(key::kthena_shares(&self.replica));
        script.arg(key::kthena_replicas()).arg(&self.replica);
        script.arg(u64::try_from(lease.as_millis()).unwrap_or(0)).arg(key::kthena_shares(""));
        for (field, share) in shares {
            script.arg(field).arg(*share);
        }
        redis.query(&script, limit).await
    }
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
