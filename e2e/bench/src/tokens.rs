//! What a long chat's tokens cost on one thread: body to ids and block hashes, beside plain Hugging Face `tokenizers`.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use kvasir_core::{CacheScope, RequestKind};
use kvasir_kvcache::hash;
use kvasir_tokenize::request::PromptInput;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::mix::Mix;
use crate::resident::BLOCK;

/// Bytes of a chat before it is known how many bytes a token has.
const FIRST_GUESS: usize = 76_000;

/// Chats that tell how many bytes a token has.
const CALIBRATION: usize = 6;

/// What warms up plain `tokenizers`: its cache of words is small, 10,000 of them.
const PLAIN_WARM_UP_BYTES: usize = 500_000;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amounts {
    /// Tokens of a conversation at first sight.
    pub tokens: usize,
    /// Bytes of text that its next turn adds.
    pub turn_bytes: usize,
    /// Conversations in a round.
    pub conversations: usize,
    /// Rounds, in which the kinds of work take turns.
    pub rounds: usize,
    /// Bytes of other text that the encoder sees before, as a service that has run for a while has.
    pub warm_up_bytes: usize,
}

/// One tokenizer, ours and plain.
#[derive(Debug)]
pub struct Contest {
    ours: LocalTokenizer,
    plain: LocalTokenizer,
}

/// The times of one kind of work, round by round.
#[derive(Debug)]
struct Rounds {
    name: &'static str,
    each: Vec<Spread>,
}

/// A conversation now and one turn later.
struct Pair {
    first: Bytes,
    next: Bytes,
}

/// The ids of a body, and what they and their hashes cost.
struct Timed {
    ids: Vec<u32>,
    tokens: Duration,
    hashes: Duration,
}

impl Timed {
    fn whole(&self) -> Duration {
        self.tokens + self.hashes
    }
}

impl Contest {
    /// Loads a directory twice: as the router does, and with the reference encoder and no memory.
    ///
    /// # Errors
    /// The tokenizer cannot be loaded.
    pub fn load(directory: &Path) -> anyhow::Result<Self> {
        let load = |options| {
            LocalTokenizer::load_with(directory, None, options)
                .with_context(|| directory.display().to_string())
        };
        let plain =
            LoadOptions { encoder: EncoderChoice::Reference, memory_bytes: 0, ..LoadOptions::default() };
        Ok(Self { ours: load(LoadOptions::default())?, plain: load(plain)? })
    }

    /// Everything there is to measure. `known` warms up, `unseen` is measured with.
    ///
    /// # Errors
    /// A chat that the tokenizer does not take, or too little text.
    pub fn measure(&self, amounts: Amounts, known: &mut Mix, unseen: &mut Mix) -> anyhow::Result<Value> {
        self.warm_up(amounts, known)?;
        let mut bytes = self.calibrate(amounts, unseen)?;
        let mut cases = ["first sight", "next turn", "same again", "plain"].map(Rounds::new);
        let mut stages = ["read", "template", "tokens", "tokens, next turn", "hashes"].map(Rounds::new);
        let (mut compared, mut equal, mut length, mut grown, mut size) = (0, 0, 0, 0, 0);
        for _ in 0..amounts.rounds {
            cases.iter_mut().chain(&mut stages).try_for_each(Rounds::begin)?;
            let pairs = self.pairs(amounts, bytes, unseen)?;
            let [first, next, again, plain] = &mut cases;
            let [read, template, tokens, tokens_next, hashes] = &mut stages;
            let (mut seen, mut round) = (Vec::new(), 0);
            for pair in &pairs {
                let sight = run(&self.ours, &pair.first)?;
                first.record(sight.whole());
                tokens.record(sight.tokens);
                hashes.record(sight.hashes);
                let turn = run(&self.ours, &pair.next)?;
                next.record(turn.whole());
                tokens_next.record(turn.tokens);
                again.record(run(&self.ours, &pair.next)?.whole());
                grown += turn.ids.len() - sight.ids.len();
                (round, size) = (round + sight.ids.len(), size + pair.first.len());
                seen.push(sight.ids);
            }
            // Other text has other tokens: the next round's chats come as near as this one tells.
            bytes = bytes * amounts.tokens * pairs.len() / round.max(1);
            length += round;
            for (pair, ids) in pairs.iter().zip(&seen) {
                let other = run(&self.plain, &pair.first)?;
                plain.record(other.whole());
                compared += 1;
                equal += usize::from(other.ids == *ids);
            }
            for pair in &pairs {
                read.record(timed(|| PromptInput::read(RequestKind::Chat, &pair.first)).1);
                template.record(timed(|| self.ours.render_body(RequestKind::Chat, &pair.first)).1);
            }
        }
        Ok(json!({
            "encoder": self.ours.encoder_name(),
            "fallback": self.ours.fallback_reason(),
            "conversations": compared, "equal": equal,
            "tokens": length / compared.max(1), "bytes": size / compared.max(1), "turn_tokens": grown / compared.max(1),
            "cases": cases.iter().map(Rounds::json).collect::<Vec<_>>(),
            "stages": stages.iter().map(Rounds::json).collect::<Vec<_>>(),
        }))
    }

    fn warm_up(&self, amounts: Amounts, known: &mut Mix) -> anyhow::Result<()> {
        let mut seen = 0;
        while seen < amounts.warm_up_bytes {
            let Some(chat) = known.chat(FIRST_GUESS, "") else { break };
            run(&self.ours, &chat.body())?;
            if seen < PLAIN_WARM_UP_BYTES {
                run(&self.plain, &chat.body())?;
            }
            seen += FIRST_GUESS;
        }
        anyhow::ensure!(seen > 0, "the known text is too short for a chat");
        Ok(())
    }

    /// The bytes of text that make a chat of the wanted length.
    fn calibrate(&self, amounts: Amounts, unseen: &mut Mix) -> anyhow::Result<usize> {
        let mut ids = 0;
        for _ in 0..CALIBRATION {
            let chat = unseen.chat(FIRST_GUESS, "").context("the unseen text is too short")?;
            ids += run(&self.ours, &chat.body())?.ids.len();
        }
        Ok(CALIBRATION * FIRST_GUESS * amounts.tokens / ids.max(1))
    }

    fn pairs(&self, amounts: Amounts, bytes: usize, unseen: &mut Mix) -> anyhow::Result<Vec<Pair>> {
        (0..amounts.conversations)
            .map(|_| {
                let mut chat = unseen.chat(bytes, "")?;
                let first = chat.body();
                unseen.grow(&mut chat, amounts.turn_bytes)?;
                Some(Pair { first, next: chat.body() })
            })
            .collect::<Option<_>>()
            .context("the unseen text is too short for so many conversations")
    }
}

impl Rounds {
    fn new(name: &'static str) -> Self {
        Self { name, each: Vec::new() }
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.each.push(Spread::new()?);
        Ok(())
    }

    fn record(&mut self, time: Duration) {
        if let Some(round) = self.each.last_mut() {
            round.record(time);
        }
    }

    fn json(&self) -> Value {
        let rounds: Vec<Value> = self.each.iter().map(Spread::json).collect();
        json!({ "name": self.name, "rounds_us": rounds })
    }
}

/// As the router computes them: body to ids, ids to hashes.
fn run(tokenizer: &LocalTokenizer, body: &Bytes) -> anyhow::Result<Timed> {
    let (ids, tokens) = timed(|| tokenizer.encode_body(RequestKind::Chat, body));
    let ids = ids?;
    let (chain, hashes) = timed(|| hash::chain(&CacheScope::default(), BLOCK, &ids, None));
    anyhow::ensure!(chain.hashes.len() == ids.len() / BLOCK.tokens(), "a block has no hash");
    Ok(Timed { ids, tokens, hashes })
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = black_box(work());
    (result, began.elapsed())
}
