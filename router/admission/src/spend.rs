//! What requests cost, before and after they ran.

use std::ops::{Add, Sub};

use kvasir_core::Usage;

/// What somebody used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spend {
    /// Weighted tokens, in thousandths: whole numbers add up to the same in every order, and to nothing again.
    pub(crate) cost: u64,
    pub(crate) requests: u32,
}

impl Spend {
    pub(crate) fn one(cost: u64) -> Self {
        Self { cost, requests: 1 }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl Add for Spend {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cost: self.cost.saturating_add(other.cost),
            requests: self.requests.saturating_add(other.requests),
        }
    }
}

impl Sub for Spend {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            cost: self.cost.saturating_sub(other.cost),
            requests: self.requests.saturating_sub(other.requests),
        }
    }
}

/// The most that one request costs: ten thousand million weighted tokens. Two million of these fit into 64 bits.
const MOST_COST: f64 = 1e13;

/// What tokens count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Price {
    pub(crate) input: f64,
    pub(crate) output: f64,
}

impl Price {
    pub(crate) fn of(self, prompt_tokens: u64, completion_tokens: u64) -> u64 {
        let tokens = prompt_tokens as f64 * self.input + completion_tokens as f64 * self.output;
        (tokens * 1000.0).round().min(MOST_COST) as u64
    }
}

/// Requests whose output is averaged over: later ones count more than those before.
const REMEMBERED: u32 = 64;

/// What is taken for the longest prompt before any is known.
const LONGEST_PROMPT: u64 = 32_768;

/// How long prompts and answers of one model are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    mean: f64,
    seen: u32,
    longest_prompt: u64,
}

impl Estimate {
    /// Before any answer: a usual one of a chat.
    pub(crate) fn new() -> Self {
        Self { mean: 256.0, seen: 0, longest_prompt: LONGEST_PROMPT }
    }

    pub(crate) fn learn(&mut self, usage: &Usage) {
        self.longest_prompt = self.longest_prompt.max(usage.prompt_tokens);
        self.seen = (self.seen + 1).min(REMEMBERED);
        self.mean += (usage.completion_tokens as f64 - self.mean) / f64::from(self.seen);
    }

    /// What is said of a prompt comes of its bytes, and those of an image are no tokens: no prompt is taken for longer than
    /// the longest that an engine has counted.
    pub(crate) fn prompt(&self, said: u32) -> u64 {
        u64::from(said).min(self.longest_prompt)
    }

    pub(crate) fn output(&self, max_tokens: Option<u32>) -> u64 {
        let mean = self.mean.round().max(0.0) as u64;
        max_tokens.map_or(mean, |most| mean.min(u64::from(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_weighted() {
        let price = Price { input: 1.0, output: 2.0 };
        assert_eq!(price.of(100, 50), 200_000);
        assert_eq!(Price { input: 0.25, output: 0.0 }.of(3, 9), 750);
        assert_eq!(Price { input: 1e6, output: 1e6 }.of(u64::MAX, u64::MAX), 10_000_000_000_000);
    }

    #[test]
    fn the_estimate_follows_answers_and_heeds_the_limit() {
        let mut estimate = Estimate::new();
        assert_eq!((estimate.output(None), estimate.output(Some(16))), (256, 16));
        let answer = |completion_tokens| Usage { completion_tokens, ..Usage::default() };
        estimate.learn(&answer(1000));
        assert_eq!(estimate.output(None), 1000, "the first answer says more than a guess");
        estimate.learn(&answer(500));
        assert_eq!(estimate.output(Some(5000)), 750);
        (0..1000).for_each(|_| estimate.learn(&answer(20)));
        assert_eq!(estimate.output(None), 20);
    }

    #[test]
    fn bytes_of_images_are_not_taken_for_tokens() {
        let mut estimate = Estimate::new();
        // Thirty megabytes of base64.
        assert_eq!((estimate.prompt(1000), estimate.prompt(7_500_000)), (1000, 32_768));
        estimate.learn(&Usage { prompt_tokens: 100_000, ..Usage::default() });
        estimate.learn(&Usage { prompt_tokens: 1500, ..Usage::default() });
        assert_eq!((estimate.prompt(90_000), estimate.prompt(7_500_000)), (90_000, 100_000));
    }
}
