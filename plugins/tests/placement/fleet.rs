//! A pure simulator: users with growing conversations, a router, engines with one prefill slot and an LRU cache.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::router::Policy;

/// Tokens in a block.
pub const BLOCK: usize = 16;
/// What an engine needs to prefill one token, microseconds.
pub const PREFILL_US: u64 = 20;
/// Blocks that an engine keeps.
const CACHE_BLOCKS: usize = 4096;
/// What an engine needs to generate one token, microseconds.
const DECODE_US: u64 = 2_500;

/// What is simulated.
#[derive(Clone, Copy)]
pub struct Scene {
    pub users: usize,
    pub pods: usize,
    /// Longest pause between an answer and the next turn, milliseconds.
    pub think_ms: u64,
    pub requests: usize,
    pub seed: u64,
    pub talk: Talk,
}

/// What conversations look like, in tokens.
#[derive(Clone, Copy)]
pub struct Talk {
    /// What every conversation begins with.
    pub system: usize,
    /// Shortest and longest first turn.
    pub first: (usize, usize),
    /// Shortest and longest later turn.
    pub next: (usize, usize),
    /// Turns before a user begins a new conversation.
    pub turns: u32,
}

/// How it went. The first fifth of the requests, with cold caches, is not counted.
#[derive(Default)]
pub struct Outcome {
    prompt_tokens: u64,
    cached_tokens: u64,
    ttft_us: Vec<u64>,
}

impl Outcome {
    pub fn hit_rate(&self) -> f64 {
        self.cached_tokens as f64 / self.prompt_tokens as f64
    }

    /// Time to first token that `share` of the requests did not exceed, milliseconds.
    pub fn ttft_ms(&self, share: f64) -> f64 {
        let mut sorted = self.ttft_us.clone();
        sorted.sort_unstable();
        sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1000.0
    }

    pub fn add(&mut self, other: &Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.ttft_us.extend(&other.ttft_us);
    }
}

/// A request on its way: its blocks are named by what they contain, so equal names mean an equal prefix.
pub struct Job {
    user: usize,
    pub tokens: usize,
    pub blocks: Vec<u64>,
    arrived: u64,
    /// What the router took the engine to prefill.
    billed: u64,
}

/// One engine with the router's own count of what it sent there.
#[derive(Default)]
pub struct Pod {
    cache: Cache,
    queue: VecDeque<Job>,
    running: Option<(Job, u64)>,
    pub decoding: u32,
    pub in_flight: u32,
    pub prefill_tokens: u64,
    /// Blocks of prompts that were sent but not prefilled yet: what placements predict.
    predicted: HashMap<u64, u32>,
}

impl Pod {
    /// Leading tokens of `blocks` that are cached, or predicted to be by the time the request is served.
    pub fn held(&self, blocks: &[u64]) -> usize {
        let held = |block: &&u64| self.cache.contains(**block) || self.predicted.contains_key(*block);
        blocks.iter().take_while(held).count() * BLOCK
    }

    /// Time until a request that is sent now has been prefilled: perfect knowledge of cache and backlog.
    pub fn time_to_first_token(&self, blocks: &[u64], tokens: usize, now: u64) -> u64 {
        let mut ahead: Vec<&[u64]> = Vec::new();
        let mut time = 0;
        if let Some((job, ends)) = &self.running {
            time += ends.saturating_sub(now);
            ahead.push(&job.blocks);
        }
        for job in &self.queue {
            time += self.uncached(&ahead, &job.blocks, job.tokens) * PREFILL_US;
            ahead.push(&job.blocks);
        }
        time + self.uncached(&ahead, blocks, tokens) * PREFILL_US
    }

    fn uncached(&self, ahead: &[&[u64]], blocks: &[u64], tokens: usize) -> u64 {
        let cached = blocks.iter().take_while(|block| self.cache.contains(**block)).count();
        let shared = |other: &&[u64]| other.iter().zip(blocks).take_while(|(one, two)| one == two).count();
        let held = ahead.iter().map(shared).max().unwrap_or(0).max(cached);
        (tokens - reusable(held, tokens)) as u64
    }

    fn accept(&mut self, job: Job) {
        self.in_flight += 1;
        self.prefill_tokens += job.billed;
        for block in &job.blocks {
            *self.predicted.entry(*block).or_default() += 1;
        }
        self.queue.push_back(job);
    }

    /// Takes the next job into the slot; gives when it is done and how many tokens came from the cache.
    fn start(&mut self, now: u64) -> Option<(u64, usize, usize)> {
        if self.running.is_some() {
            return None;
        }
        let job = self.queue.pop_front()?;
        let cached = job.blocks.iter().take_while(|block| self.cache.contains(**block)).count();
        let reused = reusable(cached, job.tokens);
        let ends = now + (job.tokens - reused) as u64 * PREFILL_US;
        let tokens = job.tokens;
        self.cache.touch(&job.blocks[..cached]);
        self.running = Some((job, ends));
        Some((ends, reused, tokens))
    }

    fn first_token(&mut self) -> Job {
        let (job, _) = self.running.take().unwrap();
        self.prefill_tokens -= job.billed;
        self.decoding += 1;
        self.cache.touch(&job.blocks);
        for block in &job.blocks {
            let count = self.predicted.get_mut(block).unwrap();
            *count -= 1;
            if *count == 0 {
                self.predicted.remove(block);
            }
        }
        job
    }
}

/// An engine computes at least the last token, and whole blocks only.
pub fn reusable(held_blocks: usize, tokens: usize) -> usize {
    held_blocks.min((tokens - 1) / BLOCK) * BLOCK
}

/// The blocks an engine keeps, least recently used first out.
#[derive(Default)]
struct Cache {
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl Cache {
    fn contains(&self, block: u64) -> bool {
        self.used.contains_key(&block)
    }

    /// The end of a prefix is used before its beginning, so that it leaves first.
    fn touch(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(*block, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, *block);
        }
        while self.used.len() > CACHE_BLOCKS {
            if let Some((_, block)) = self.order.pop_first() {
                self.used.remove(&block);
            }
        }
    }
}

/// One user's conversation.
struct User {
    conversation: u64,
    tokens: usize,
    turns: u32,
    answer: usize,
}

impl User {
    fn blocks(&self, tokens: usize, talk: Talk) -> Vec<u64> {
        let name = |index: usize| {
            let owner = if index < talk.system / BLOCK { 0 } else { self.conversation + 1 };
            owner << 20 | index as u64
        };
        (0..tokens / BLOCK).map(name).collect()
    }

    /// The next turn's prompt length.
    fn say(&mut self, talk: Talk, conversations: &mut u64, rng: &mut StdRng) -> usize {
        if self.turns == 0 {
            *conversations += 1;
            self.conversation = *conversations;
            self.tokens = talk.system + rng.random_range(talk.first.0..=talk.first.1);
            self.turns = talk.turns;
        } else {
            self.tokens += self.answer + rng.random_range(talk.next.0..=talk.next.1);
        }
        self.turns -= 1;
        self.answer = rng.random_range(50..150);
        self.tokens
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    FirstToken(usize),
    LastToken { pod: usize, user: usize },
    Turn(usize),
}

/// Runs the scene under one policy.
pub fn run(scene: Scene, policy: &Policy) -> Outcome {
    // Users and router draw from chances of their own: policies meet the same users.
    let mut rng = StdRng::seed_from_u64(scene.seed);
    let mut router_rng = StdRng::seed_from_u64(scene.seed ^ 0xace);
    let mut pods: Vec<Pod> = (0..scene.pods).map(|_| Pod::default()).collect();
    let mut users: Vec<User> =
        (0..scene.users).map(|_| User { conversation: 0, tokens: 0, turns: 0, answer: 0 }).collect();
    let mut conversations = 0;
    let mut events: BinaryHeap<Reverse<(u64, Event)>> = BinaryHeap::new();
    for user in 0..scene.users {
        events.push(Reverse((rng.random_range(0..500_000), Event::Turn(user))));
    }
    let mut outcome = Outcome::default();
    let mut sent = 0;
    while let Some(Reverse((now, event))) = events.pop() {
        let pod = match event {
            Event::Turn(user) => {
                if sent == scene.requests {
                    continue;
                }
                sent += 1;
                let tokens = users[user].say(scene.talk, &mut conversations, &mut rng);
                let blocks = users[user].blocks(tokens, scene.talk);
                let pod = policy.choose(&pods, &blocks, tokens, now, &mut router_rng);
                let billed = (tokens - reusable(pods[pod].held(&blocks) / BLOCK, tokens)) as u64;
                pods[pod].accept(Job { user, tokens, blocks, arrived: now, billed });
                pod
            }
            Event::FirstToken(pod) => {
                let job = pods[pod].first_token();
                if sent > scene.requests / 5 {
                    outcome.ttft_us.push(now - job.arrived);
                }
                let ends = now + users[job.user].answer as u64 * DECODE_US;
                events.push(Reverse((ends, Event::LastToken { pod, user: job.user })));
                pod
            }
            Event::LastToken { pod, user } => {
                let User { tokens, answer, .. } = users[user];
                pods[pod].decoding -= 1;
                pods[pod].in_flight -= 1;
                let blocks = users[user].blocks(tokens + answer, scene.talk);
                pods[pod].cache.touch(&blocks);
                let pause = rng.random_range(0..=scene.think_ms * 1000);
                events.push(Reverse((now + pause, Event::Turn(user))));
                pod
            }
        };
        if let Some((ends, reused, tokens)) = pods[pod].start(now) {
            if sent > scene.requests / 5 {
                outcome.prompt_tokens += tokens as u64;
                outcome.cached_tokens += reused as u64;
            }
            events.push(Reverse((ends, Event::FirstToken(pod))));
        }
    }
    outcome
}
