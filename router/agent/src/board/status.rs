//! The board as JSON: `/status`, and the detail of `/readyz`.

use std::time::Duration;

use kvasir_coordination::{PublisherState, PublisherStatus};
use kvasir_kvcache::OwnerStats;
use kvasir_kvcache::follow::{Link, SavedState};
use serde::Serialize;

use super::{Board, EngineBoard, EngineState, OwnerView, Phase};

/// The whole agent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// What is written: native, kthena or both.
    pub layout: &'static str,
    /// Where, and whether that works.
    pub redis: RedisLine,
    /// Each engine.
    pub engines: Vec<EngineLine>,
    /// Each pod in kthena's layout; empty when that is not written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kthena: Vec<KthenaLine>,
}

/// The connection to Redis.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisLine {
    /// Where it is, without user and password.
    pub at: String,
    /// Whether commands can be sent.
    pub connected: bool,
    /// For how long that is so, milliseconds.
    pub since_ms: u64,
    /// Connections made after the first one.
    pub reconnects: u64,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// One engine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineLine {
    /// `NAME.NAMESPACE`.
    pub pod: String,
    /// Its URL.
    pub url: String,
    /// vllm or sglang.
    pub engine: &'static str,
    /// How far it has come.
    pub phase: Phase,
    /// Whether it answers over HTTP.
    pub answers: bool,
    /// Whether it sleeps: its cache is empty then.
    pub asleep: bool,
    /// What is wrong, with the fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What it says of its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The model's name in native keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model's name in kthena's keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kthena_model: Option<String>,
    /// Its ranks.
    pub owners: Vec<OwnerLine>,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerLine {
    /// As routers know it: `NAMESPACE/POD:PORT#RANK`.
    pub owner: String,
    /// Where its events come from.
    pub source: String,
    /// The connection to them.
    pub link: Link,
    /// How far its content is known.
    pub completeness: &'static str,
    /// What became of the state saved by an earlier agent.
    pub resume: SavedState,
    /// Blocks in GPU memory.
    pub blocks: usize,
    /// Tokens in a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// Tokens in a block by the engine's metrics and by its events, when they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size_conflict: Option<(u32, u32)>,
    /// Number of the last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sequence: Option<u64>,
    /// Its age, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event_ms: Option<u64>,
    /// Gaps seen.
    pub gaps: u64,
    /// Gaps repaired.
    pub repairs: u64,
    /// Times everything was forgotten.
    pub resets: u64,
    /// What could not be read.
    pub decode_failures: u64,
    /// Bytes of the last saved resume state.
    pub saved_bytes: usize,
    /// The last thing that went wrong with the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How publishing does; absent when the native layout is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherLine>,
}

/// One rank's publisher.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PublisherLine {
    /// What it is about.
    pub state: PublisherState,
    /// The epoch that is published.
    pub epoch: String,
    /// Number of the last delta that Redis has.
    pub sequence: u64,
    /// Blocks published.
    pub blocks: usize,
    /// Chunks they are in.
    pub chunks: u32,
    /// How long the lease still lasts, milliseconds.
    pub lease_left_ms: u64,
    /// How long the oldest unconfirmed change waits, milliseconds.
    pub lag_ms: u64,
    /// Times the whole was published.
    pub snapshots: u64,
    /// Times Redis had lost it.
    pub losses: u64,
    /// Times another agent took over.
    pub fenced: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Why the last one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// One pod in kthena's layout.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KthenaLine {
    /// `NAME.NAMESPACE`.
    pub pod: String,
    /// The model's part of the keys.
    pub model: String,
    /// Contents that the pod owns.
    pub keys: usize,
    /// Blocks of the engine behind them, over all ranks and groups.
    pub blocks: usize,
    /// Removals of blocks that were not known.
    pub unknown_removals: u64,
    /// Blocks whose tokens do not say who may reuse them (salts, images): not written.
    pub not_by_tokens: u64,
    /// Entries that Redis does not have as they should be.
    pub pending: usize,
    /// Whether Redis is being gone through for entries of an earlier life.
    pub reconciling: bool,
    /// Entries of an earlier life that were removed.
    pub stale_removed: u64,
    /// Times everything was written anew because the store was another one.
    pub rewrites: u64,
    /// Writes that failed; each is tried again.
    pub failures: u64,
    /// Why the last write failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Board {
    /// Everything, for people.
    pub fn status(&self) -> Status {
        let redis = self.redis.status();
        let engines = self.owners().into_iter().map(|(engine, state, owners)| {
            let owners = owners.into_iter().map(|owner| self.owner_line(owner)).collect();
            engine_line(&engine, state, owners)
        });
        Status {
            layout: self.layout.as_str(),
            redis: RedisLine {
                at: self.redis_name.clone(),
                connected: redis.connected,
                since_ms: millis(redis.since.elapsed()),
                reconnects: redis.reconnects,
                last_error: redis.last_error,
            },
            engines: engines.collect(),
            kthena: self.kthena.lines(),
        }
    }

    fn owner_line(&self, view: OwnerView) -> OwnerLine {
        let OwnerView { name, stats, published, .. } = view;
        let OwnerStats { follower, .. } = stats;
        OwnerLine {
            owner: name,
            source: stats.source,
            link: follower.link,
            completeness: stats.completeness.as_str(),
            resume: follower.saved,
            blocks: stats.blocks,
            block_size: stats.block_size.map(u32::from),
            block_size_conflict: stats
                .block_size_conflict
                .map(|(told, seen)| (u32::from(told), u32::from(seen))),
            last_sequence: stats.last_seq,
            last_event_ms: stats.last_event_age.map(millis),
            gaps: stats.gaps,
            repairs: stats.repairs,
            resets: stats.resets,
            decode_failures: stats.decode_failures + stats.malformed_events + follower.bad_messages,
            saved_bytes: self.saves.of(&view.id).bytes,
            last_error: follower.last_error,
            publisher: published.map(publisher_line),
        }
    }
}

fn engine_line(engine: &EngineBoard, state: EngineState, owners: Vec<OwnerLine>) -> EngineLine {
    let text = |name: Option<kvasir_core::ModelName>| name.map(|name| name.as_str().to_owned());
    EngineLine {
        pod: engine.config.pod_name(),
        url: engine.config.address.url(),
        engine: engine.config.kind.as_str(),
        phase: state.phase,
        answers: state.answers,
        asleep: state.asleep,
        problem: state.problem,
        version: state.version,
        model: text(state.model),
        kthena_model: text(state.kthena_model),
        owners,
    }
}

fn publisher_line(status: PublisherStatus) -> PublisherLine {
    PublisherLine {
        state: status.state,
        epoch: status.epoch.to_string(),
        sequence: status.seq,
        blocks: status.blocks,
        chunks: status.chunks,
        lease_left_ms: status.lease_left_ms,
        lag_ms: status.lag_ms,
        snapshots: status.snapshots,
        losses: status.losses,
        fenced: status.fenced,
        failures: status.failures,
        last_error: status.last_error,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
