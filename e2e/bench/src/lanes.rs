//! Short chats beside long ones: how long each waits for its ids in the router's own chain and pool of threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kvasir_core::{
    BoxFuture, Endpoint, EndpointDirectory, InferenceRequest, ModelName, RequestId, RequestKind, SideClient,
    SideError, SideRequest, SideResponse, SystemClock, Tokenizer as _,
};
use kvasir_tokenize::{Chain, LocalTokenizer, ModelTokens};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::figures::Spread;
use crate::mix::{Mix, Stamped};

/// Different texts of short chats. Every copy of them has a number of its own.
const SHORT_TEXTS: usize = 256;

/// The same of long chats, which are dealt out among those in flight.
const LONG_TEXTS: usize = 12;

/// Between two bursts, so that they meet the long chats at any point.
const PAUSE: std::ops::Range<u64> = 500..4000;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amounts {
    /// Short chats that come at once.
    pub short: usize,
    /// Bytes of one.
    pub short_bytes: usize,
    /// Long chats that are in flight all the time.
    pub long: usize,
    /// Bytes of one.
    pub long_bytes: usize,
    /// Bursts of short chats in a round, without long ones and beside them.
    pub bursts: usize,
    /// Rounds.
    pub rounds: usize,
}

/// One tokenizer behind the router's chain.
pub struct Lanes {
    chain: Arc<Chain>,
    amounts: Amounts,
    shorts: Vec<Template>,
    longs: Vec<Template>,
    numbers: Arc<AtomicU64>,
    rng: StdRng,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes")
            .field("chain", &self.chain)
            .field("amounts", &self.amounts)
            .finish_non_exhaustive()
    }
}

impl Lanes {
    /// Loads a directory.
    ///
    /// # Errors
    /// The tokenizer cannot be loaded, there is too little text, or there are not enough texts for so many long chats.
    pub async fn load(directory: &Path, amounts: Amounts, known: &mut Mix) -> anyhow::Result<Self> {
        anyhow::ensure!(amounts.long <= LONG_TEXTS, "at most {LONG_TEXTS} long chats can be in flight");
        let model = ModelName::from("bench");
        let mut texts = |count: usize, bytes: usize| -> anyhow::Result<Vec<Template>> {
            (0..count).map(|_| Template::new(&model, bytes, known)).collect()
        };
        let (shorts, longs) =
            (texts(SHORT_TEXTS, amounts.short_bytes)?, texts(LONG_TEXTS, amounts.long_bytes)?);
        let tokens = ModelTokens { local_dir: Some(directory.to_owned()), ..ModelTokens::default() };
        let chain = Arc::new(Chain::with_loader(
            vec![(model.clone(), tokens)],
            Arc::new(Nobody),
            Arc::new(Nobody),
            Arc::new(SystemClock),
            Arc::new(LocalTokenizer::load),
        ));
        chain.loaded().await;
        let numbers = Arc::new(AtomicU64::new(1));
        Ok(Self { chain, amounts, shorts, longs, numbers, rng: StdRng::seed_from_u64(5) })
    }

    /// Bursts of short chats, with nothing beside them and beside long ones, in turns.
    ///
    /// # Errors
    /// A chat got no ids.
    pub async fn measure(&mut self) -> anyhow::Result<Value> {
        // Words that the encoder's caches on each thread have not met yet are no part of it.
        self.beside(Spread::new()?).await?;
        let mut rounds = Vec::new();
        for _ in 0..self.amounts.rounds {
            let mut alone = Spread::new()?;
            self.bursts(&mut alone).await?;
            let began = Instant::now();
            let (beside, long) = self.beside(Spread::new()?).await?;
            rounds.push(json!({
                "alone_us": alone.json(), "beside_us": beside.json(), "long_us": long.json(),
                "long_per_second": long.len() as f64 / began.elapsed().as_secs_f64(),
            }));
        }
        Ok(json!({ "rounds": rounds }))
    }

    /// Bursts while long chats are in flight. Gives the times of the short ones and of the long ones.
    async fn beside(&mut self, mut short: Spread) -> anyhow::Result<(Spread, Spread)> {
        let done = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        let each = self.longs.len() / self.amounts.long.max(1);
        let mut longs = std::mem::take(&mut self.longs);
        for _ in 0..self.amounts.long {
            let texts = longs.split_off(longs.len().saturating_sub(each));
            let (chain, numbers) = (Arc::clone(&self.chain), Arc::clone(&self.numbers));
            running.spawn(keep_going(chain, texts, numbers, Arc::clone(&done)));
        }
        let outcome = self.bursts(&mut short).await;
        done.store(true, Ordering::Relaxed);
        let mut long = Spread::new()?;
        while let Some(ended) = running.join_next().await {
            let (texts, times) = ended??;
            longs.extend(texts);
            long.add(&times)?;
        }
        self.longs = longs;
        outcome?;
        Ok((short, long))
    }

    async fn bursts(&mut self, times: &mut Spread) -> anyhow::Result<()> {
        for _ in 0..self.amounts.bursts {
            let requests = (0..self.amounts.short)
                .map(|_| {
                    let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                    let at = number as usize % self.shorts.len().max(1);
                    Ok(self.shorts.get_mut(at).context("no short chat")?.request(number))
                })
                .collect::<anyhow::Result<Vec<_>>>()?;
            let mut running = JoinSet::new();
            for request in requests {
                let chain = Arc::clone(&self.chain);
                running.spawn(async move { wait(&chain, &request).await });
            }
            while let Some(took) = running.join_next().await {
                times.record(took??);
            }
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(PAUSE))).await;
        }
        Ok(())
    }
}

/// From the call to the ids.
async fn wait(chain: &Chain, request: &InferenceRequest) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let ids = chain.encode(request).await?;
    let took = began.elapsed();
    anyhow::ensure!(!ids.ids.is_empty(), "a chat has no ids");
    Ok(took)
}

/// One long chat after the other.
async fn keep_going(
    chain: Arc<Chain>,
    mut texts: Vec<Template>,
    numbers: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
) -> anyhow::Result<(Vec<Template>, Spread)> {
    let mut times = Spread::new()?;
    while !done.load(Ordering::Relaxed) {
        for text in &mut texts {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            times.record(wait(&chain, &text.request(number)).await?);
        }
    }
    Ok((texts, times))
}

/// A request that was scanned once. Its copies differ in their numbers only, which are all of one length.
struct Template {
    request: InferenceRequest,
    chat: Stamped,
}

impl Template {
    fn new(model: &ModelName, bytes: usize, known: &mut Mix) -> anyhow::Result<Self> {
        let chat = known.chat(bytes, Stamped::PLACE).context("the known text is too short")?;
        let body = chat.body();
        let scan = kvasir_wire::scan(RequestKind::Chat, &body).map_err(|error| anyhow::anyhow!("{error}"))?;
        let request = InferenceRequest {
            id: RequestId::new("bench"),
            kind: RequestKind::Chat,
            requested_model: scan.model.into(),
            model: model.clone(),
            adapter: None,
            stream: scan.stream,
            prompt: scan.prompt,
            cache_salt: scan.cache_salt,
            skips_cache: scan.skips_cache,
            max_tokens: scan.max_tokens,
            session: None,
            body,
        };
        Ok(Self { request, chat: Stamped::new(&chat) })
    }

    fn request(&mut self, number: u64) -> InferenceRequest {
        InferenceRequest { body: self.chat.body(number), ..self.request.clone() }
    }
}

/// There is no engine to ask.
struct Nobody;

impl SideClient for Nobody {
    fn call(&self, _: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
        Box::pin(std::future::ready(Err(SideError::Connect("nobody is there".to_owned()))))
    }
}

impl EndpointDirectory for Nobody {
    fn endpoints_of(&self, _: &ModelName) -> Vec<Arc<Endpoint>> {
        Vec::new()
    }
}
