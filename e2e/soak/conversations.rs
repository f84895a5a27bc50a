//! What clients ask: turns of a bounded number of conversations, some of which begin alike.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand::{Rng, RngExt as _};

/// All conversations that there are, so that the comparison at the end is over all that was ever sent.
pub const CONVERSATIONS: u32 = 3_000;

/// Tokens in a block.
pub const BLOCK: u32 = 16;

/// Blocks of the longest prompt.
const LONGEST: u32 = 40;

/// Conversations that are talked in at a time. Together they do not fit in the engines' caches.
const LIVELY: u32 = 160;

/// Requests after which one conversation rests and another becomes lively.
const REQUESTS_OF_ONE: u32 = 4;

/// Conversations with the same number, modulo this, begin with the same blocks.
const GROUPS: u32 = 12;

/// Tokens of such a beginning.
const ALIKE: u32 = 4 * BLOCK;

/// Ids that one conversation may use.
const IDS: u32 = 1_000;

/// Deals prompts out, and knows which conversations were ever asked about.
#[derive(Debug)]
pub struct Conversations {
    sent: Vec<AtomicBool>,
    requests: AtomicU32,
}

impl Default for Conversations {
    fn default() -> Self {
        Self {
            sent: (0..CONVERSATIONS).map(|_| AtomicBool::new(false)).collect(),
            requests: AtomicU32::new(0),
        }
    }
}

impl Conversations {
    /// The ids of another prompt: mostly a turn of a lively conversation, sometimes of any.
    pub fn prompt(&self, rng: &mut impl Rng) -> Vec<u32> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let conversation = if rng.random_bool(0.8) {
            (request / REQUESTS_OF_ONE + rng.random_range(0..LIVELY)) % CONVERSATIONS
        } else {
            rng.random_range(0..CONVERSATIONS)
        };
        if let Some(sent) = self.sent.get(conversation as usize) {
            sent.store(true, Ordering::Relaxed);
        }
        // A part of a block at the end is never reused.
        ids(conversation, rng.random_range(2..LONGEST) * BLOCK + rng.random_range(1..=BLOCK))
    }

    /// The longest prompt of every conversation that was asked about. Shorter ones are beginnings of it.
    pub fn longest(&self) -> impl Iterator<Item = Vec<u32>> {
        let sent = self.sent.iter().zip(0..).filter(|(sent, _)| sent.load(Ordering::Relaxed));
        sent.map(|(_, conversation)| ids(conversation, LONGEST * BLOCK + 1))
    }
}

fn ids(conversation: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|place| match place < ALIKE {
            true => (conversation % GROUPS) * IDS + place + 1,
            false => (conversation + GROUPS) * IDS + place + 1,
        })
        .collect()
}
