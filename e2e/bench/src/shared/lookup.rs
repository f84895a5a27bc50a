//! Lookups for each request in kthena's layout, beside one `HGETALL` for every block in the same run.

use std::time::{Duration, Instant};

use kvasir_coordination::kthena::{
    KthenaChange, KthenaEngine, KthenaLookup, KthenaWriter, LookupOptions, WriterNames, WriterOptions,
};
use kvasir_coordination::testing::TestServer;
use kvasir_coordination::{Redis, key};
use kvasir_core::{BlockLookup as _, BlockQuery, QueryOwner};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redis::Pipeline;
use serde_json::{Value, json};

use super::bare::Bare;
use super::until;
use crate::figures::Spread;

/// How the model is called.
const MODEL: &str = "bench";

/// Prompts of each kind, so that not the same few keys are asked for.
const PROMPTS: usize = 16;

/// What one lookup of a request may take where nobody says otherwise.
const BUDGET: Duration = Duration::from_millis(5);

/// A limit that is never reached: how many lookups keep to the usual budget is counted.
const LIMIT: Duration = Duration::from_secs(5);

/// How blocks are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The router's lookup.
    Query,
    /// One `HGETALL` for every block, over the same client.
    Whole,
    /// The same over a bare socket.
    Bare,
}

const WAYS: [Way; 3] = [Way::Query, Way::Whole, Way::Bare];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Amounts {
    /// Pods that are asked about.
    pub pods: usize,
    /// Lengths of prompts, blocks.
    pub blocks: Vec<usize>,
    /// For each row.
    pub time: Duration,
}

/// Who holds a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    All,
    One,
    Nobody,
}

impl Held {
    fn by(self, pod: usize) -> bool {
        match self {
            Self::All => true,
            Self::One => pod == 0,
            Self::Nobody => false,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One => "one",
            Self::Nobody => "nobody",
        }
    }
}

/// Prompts of one kind.
struct Kind {
    held: Held,
    prompts: Vec<Vec<u64>>,
}

/// Fills a server and times lookups in it.
///
/// # Errors
/// The server cannot be reached, or an answer is wrong.
pub async fn measure(amounts: &Amounts) -> anyhow::Result<Value> {
    let server = TestServer::start().await;
    let pods: Vec<String> = (0..amounts.pods).map(|number| format!("vllm-{number}")).collect();
    let mut rng = StdRng::seed_from_u64(17);
    let longest = amounts.blocks.iter().copied().max().unwrap_or_default();
    let kinds: Vec<Kind> = [Held::All, Held::One, Held::Nobody]
        .into_iter()
        .map(|held| Kind {
            held,
            prompts: (0..PROMPTS)
                .map(|_| (0..longest).map(|_| rng.random_range(0..=u64::MAX >> 1)).collect())
                .collect(),
        })
        .collect();
    fill(&server.redis().await, &pods, &kinds).await?;
    let options = LookupOptions { budget: LIMIT, ..LookupOptions::default() };
    let lookup = KthenaLookup::new(server.redis().await, options);
    let mut contest = Contest {
        lookup,
        redis: server.redis().await,
        bare: Bare::connect(server.port()).await?,
        pods,
        time: amounts.time,
    };
    let mut rows = Vec::new();
    for kind in &kinds {
        for blocks in &amounts.blocks {
            rows.push(contest.row(kind, *blocks).await?);
        }
    }
    Ok(
        json!({ "pods": amounts.pods, "prompts": PROMPTS, "budget_us": BUDGET.as_micros() as u64, "rows": rows }),
    )
}

async fn fill(redis: &Redis, pods: &[String], kinds: &[Kind]) -> anyhow::Result<()> {
    for (number, pod) in pods.iter().enumerate() {
        let names = WriterNames {
            model: MODEL.to_owned(),
            pod: key::kthena_pod_dot("default", pod),
            engine: KthenaEngine::Vllm,
        };
        let mut writer = KthenaWriter::new(redis.clone(), names, WriterOptions::default());
        let held = kinds.iter().filter(|kind| kind.held.by(number));
        writer.apply(
            held.flat_map(|kind| kind.prompts.iter().flatten()).map(|hash| KthenaChange::Gained(*hash)),
        );
        while writer.flush().await? > 0 {}
    }
    let reached = redis.status();
    until("the server is reached", || reached.connected).await
}

/// All ways over one server, each with a connection of its own.
struct Contest {
    lookup: KthenaLookup,
    redis: Redis,
    bare: Bare,
    pods: Vec<String>,
    time: Duration,
}

impl Contest {
    async fn row(&mut self, kind: &Kind, blocks: usize) -> anyhow::Result<Value> {
        /// Lookups that nobody counts: connections, caches and the server's tables warm up.
        const WARM_UP: usize = 2 * PROMPTS;
        let owners: Vec<QueryOwner<'_>> = self
            .pods
            .iter()
            .map(|pod| QueryOwner { pod, namespace: "default", started_at: Some(1_700_000_000) })
            .collect();
        let fields: Vec<String> = self.pods.iter().map(|pod| key::kthena_pod_dot("default", pod)).collect();
        let wanted: Vec<u32> =
            (0..owners.len()).map(|pod| if kind.held.by(pod) { blocks as u32 } else { 0 }).collect();
        let fresh = || anyhow::Ok([Spread::new()?, Spread::new()?, Spread::new()?]);
        let (mut times, mut in_time) = (fresh()?, 0u64);
        let mut began = Instant::now();
        for turn in 0.. {
            if turn == WARM_UP {
                (times, in_time, began) = (fresh()?, 0, Instant::now());
            } else if turn > WARM_UP && began.elapsed() >= self.time {
                break;
            }
            let prompt = kind.prompts.get(turn % PROMPTS).map(Vec::as_slice).unwrap_or_default();
            let hashes = prompt.get(..blocks).unwrap_or(prompt);
            // Each is first in every third turn.
            for place in 0..WAYS.len() {
                let way = (turn + place) % WAYS.len();
                let started = Instant::now();
                let found = match WAYS.get(way) {
                    Some(Way::Query) => {
                        self.lookup
                            .leading_blocks(BlockQuery { models: &[MODEL], hashes, owners: &owners })
                            .await?
                    }
                    Some(Way::Whole) => self.whole(hashes, &fields).await?,
                    _ => {
                        let keys: Vec<String> =
                            hashes.iter().map(|hash| key::kthena_block(MODEL, *hash)).collect();
                        self.bare.leading(&keys, &fields).await?
                    }
                };
                let took = started.elapsed();
                if let Some(times) = times.get_mut(way) {
                    times.record(took);
                }
                in_time += u64::from(way == 0 && took <= BUDGET);
                anyhow::ensure!(found == wanted, "{found:?} blocks, not {wanted:?}");
            }
        }
        let [query, whole, bare] = times;
        Ok(json!({
            "blocks": blocks, "held_by": kind.held.as_str(), "lookups": query.len(),
            "query_us": query.json(), "hgetall_us": whole.json(), "bare_us": bare.json(),
            "within_budget": in_time as f64 / query.len().max(1) as f64,
        }))
    }

    /// Leading blocks by one `HGETALL` for every block in one pipeline, over the router's own client.
    async fn whole(&self, hashes: &[u64], fields: &[String]) -> anyhow::Result<Vec<u32>> {
        let mut pipe = Pipeline::with_capacity(hashes.len());
        for hash in hashes {
            pipe.cmd("HGETALL").arg(key::kthena_block(MODEL, *hash));
        }
        let mut leading = vec![0; fields.len()];
        let mut matching = vec![true; fields.len()];
        for answer in self.redis.pipeline(&pipe, LIMIT).await? {
            let holders: Vec<(Vec<u8>, Vec<u8>)> = redis::from_redis_value(answer)?;
            for ((field, matches), blocks) in fields.iter().zip(&mut matching).zip(&mut leading) {
                *matches &= holders.iter().any(|(holder, _)| holder == field.as_bytes());
                *blocks += u32::from(*matches);
            }
        }
        Ok(leading)
    }
}
