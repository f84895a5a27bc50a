//! Turns a workload into request bodies, the same ones for the same seed.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::body::{BodyShape, Speaker, Transcript, escape};
use crate::config::LoadConfig;
use crate::error::{ProbeError, in_range};
use crate::text::TextSource;
use crate::workload::Workload;

/// Tokens of a `short` prompt.
const SHORT_TOKENS: u32 = 16;

/// Most of an answer that is put back into a conversation, bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Everything that bodies are made of.
#[derive(Debug)]
pub(crate) struct Script {
    workload: Workload,
    shape: BodyShape,
    text: TextSource,
    seed: u64,
    tokens_per_word: f64,
    /// Escaped, with a space after it; empty without a salt.
    salt: String,
    /// Escaped prefixes of the groups, or system prompts. The salt is their beginning.
    shared: Vec<String>,
}

/// One conversation, or one single request.
#[derive(Debug)]
pub(crate) struct Dialogue<'s> {
    script: &'s Script,
    index: u64,
    rng: StdRng,
    transcript: Transcript,
    turns_sent: u32,
}

/// Keeps the random streams of a run apart.
#[derive(Clone, Copy)]
enum Purpose {
    Shared = 1,
    Dialogue = 2,
}

impl Script {
    /// Checks the workload and writes its shared texts.
    pub(crate) fn new(config: &LoadConfig) -> Result<Self, ProbeError> {
        config.workload.check()?;
        let tokens_per_word = config.tokens_per_word;
        in_range("tokens per word", "0.1 to 20", (0.1..=20.0).contains(&tokens_per_word))?;
        let text = match &config.prompt_text {
            Some(text) => TextSource::of_text(text)?,
            None => TextSource::listed(),
        };
        let salt = if config.salt.is_empty() { String::new() } else { escape(&config.salt) + " " };
        let mut script = Self {
            workload: config.workload,
            shape: BodyShape::new(&config.target)?,
            text,
            seed: config.seed,
            tokens_per_word,
            salt,
            shared: Vec::new(),
        };
        let (count, tokens) = match config.workload {
            Workload::SharedPrefix { groups, prefix_tokens, .. } => (groups, prefix_tokens),
            Workload::MultiTurn { system_prompts, system_tokens, .. } => (system_prompts, system_tokens),
            Workload::Unique { .. } | Workload::Short => (0, 0),
        };
        script.shared = (0..u64::from(count))
            .map(|index| script.salt.clone() + &script.write(&mut script.rng(Purpose::Shared, index), tokens))
            .collect();
        Ok(script)
    }

    /// The workload.
    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The conversation with this number. Numbers beyond the workload's users are new users.
    pub(crate) fn open(&self, index: u64) -> Dialogue<'_> {
        Dialogue {
            script: self,
            index,
            rng: self.rng(Purpose::Dialogue, index),
            transcript: self.shape.transcript(),
            turns_sent: 0,
        }
    }

    /// The part of a shared-prefix prompt that is shared, 0 to 1, by words.
    pub(crate) fn shared_fraction(&self) -> f64 {
        let Workload::SharedPrefix { prefix_tokens, tail_tokens, .. } = self.workload else { return 0.0 };
        let (prefix, tail) = (self.words(prefix_tokens) as f64, self.words(tail_tokens) as f64);
        prefix / (prefix + tail)
    }

    fn words(&self, tokens: u32) -> usize {
        // At least one word, so that no message is empty.
        ((f64::from(tokens) / self.tokens_per_word).round() as usize).max(1)
    }

    fn write(&self, rng: &mut StdRng, tokens: u32) -> String {
        let mut text = String::new();
        self.text.write(rng, self.words(tokens), &mut text);
        escape(&text)
    }

    fn rng(&self, purpose: Purpose, index: u64) -> StdRng {
        // Odd constants spread seed, purpose and index over 64 bits, so that near numbers give far streams.
        let mixed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (purpose as u64).wrapping_mul(0xd1b5_4a32_d192_ed03)
            ^ index.wrapping_mul(0x94d0_49bb_1331_11eb);
        StdRng::seed_from_u64(mixed)
    }
}

impl Dialogue<'_> {
    /// Whether there is a turn left to send.
    pub(crate) fn has_next(&self) -> bool {
        self.turns_sent < self.script.workload.turns()
    }

    /// The next turn's body.
    pub(crate) fn next_body(&mut self) -> Bytes {
        let script = self.script;
        match script.workload {
            Workload::SharedPrefix { groups, tail_tokens, .. } => {
                let group = self.rng.random_range(0..groups) as usize;
                let tail = script.write(&mut self.rng, tail_tokens);
                let prefix = script.shared.get(group).map_or("", String::as_str);
                self.transcript.say(Speaker::User, &[prefix, r"\n\n", &tail]);
            }
            Workload::MultiTurn { turn_tokens, .. } => self.next_turn(turn_tokens),
            Workload::Unique { prompt_tokens } => self.say_alone(prompt_tokens),
            Workload::Short => self.say_alone(SHORT_TOKENS),
        }
        self.turns_sent += 1;
        script.shape.wrap(&self.transcript)
    }

    /// Puts the answer that was given into the conversation.
    pub(crate) fn hear(&mut self, answer: &str) {
        let kept = answer.floor_char_boundary(MAX_ANSWER_BYTES);
        self.transcript.say(Speaker::Assistant, &[&escape(answer.get(..kept).unwrap_or_default())]);
    }

    fn next_turn(&mut self, tokens: u32) {
        let script = self.script;
        let mut salt = "";
        if self.turns_sent == 0 {
            let dealt = self.index.checked_rem(script.shared.len() as u64);
            match dealt.and_then(|place| script.shared.get(place as usize)) {
                Some(system) => self.transcript.say(Speaker::System, &[system]),
                None => salt = &script.salt,
            }
        }
        let text = script.write(&mut self.rng, tokens);
        self.transcript.say(Speaker::User, &[salt, &text]);
    }

    /// A prompt that shares nothing: a random number comes before its first word, because words of a file could
    /// begin at the same place twice.
    fn say_alone(&mut self, tokens: u32) {
        let script = self.script;
        let unlike = format!("{:016x} ", self.rng.next_u64());
        let text = script.write(&mut self.rng, tokens);
        self.transcript.say(Speaker::User, &[&script.salt, &unlike, &text]);
    }
}

#[cfg(test)]
mod tests;
