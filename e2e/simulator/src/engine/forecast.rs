//! What an all-knowing router would foresee: when a request would get its first token if it came now.

use super::rehearsal::{Player, Rehearsal};
use super::{Engine, Work};

/// A request's fate at one engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Seconds from now until its first token.
    pub first_token: f64,
    /// Prompt tokens that it would find computed, by those in front of it or by others before.
    pub cached: u32,
}

impl Engine {
    /// When `newcomer`, ready in `ready` seconds, would have its first token if nobody came after it. `ahead` are those
    /// that were sent and have not passed the front end yet, with the seconds until they have; the step under way ends
    /// in `step_left` seconds.
    ///
    /// Exact but for two things: blocks that are evicted while it waits, and generating sequences that run out of
    /// memory.
    pub fn forecast(&self, ahead: &[(f64, &Work)], newcomer: &Work, ready: f64, step_left: f64) -> Forecast {
        let under_way = |at: usize| self.step.and_then(|_| self.batch.get(at)).copied().unwrap_or_default();
        let running = self.running.iter().enumerate().map(|(at, sequence)| {
            let mut player = Player {
                number: sequence.work.request,
                ready: 0.0,
                computed: sequence.computed,
                known: sequence.known(),
                left: sequence.work.answer - sequence.generated,
                blocks: sequence.blocks.len() as u32,
            };
            player.advance(under_way(at));
            player
        });
        let (queue, cached) = self.queue_with(ahead, newcomer, ready);
        let now = if self.step.is_some() { step_left } else { 0.0 };
        let mut rehearsal = Rehearsal::new(self.shape, running.collect(), queue, self.pool.free(), now);
        Forecast { first_token: rehearsal.until_first_token_of(newcomer.request), cached }
    }

    /// Everybody in front of the newcomer and the newcomer, last one first, and what the newcomer will find computed.
    fn queue_with(&self, ahead: &[(f64, &Work)], newcomer: &Work, ready: f64) -> (Vec<Player>, u32) {
        let size = self.shape.block_size;
        let mut seen: Vec<&Work> = self.running.iter().map(|sequence| &sequence.work).collect();
        let mut queue = Vec::with_capacity(self.waiting.len() + ahead.len() + 1);
        let mut cached = 0;
        let waiting = self.waiting.iter().map(|sequence| (0.0, &sequence.work, sequence.generated));
        let coming = ahead.iter().map(|(ready, work)| (*ready, *work, 0));
        for (ready, work, generated) in waiting.chain(coming).chain([(ready, newcomer, 0)]) {
            let known = work.prompt + generated;
            let most = ((known.saturating_sub(1)) / size) as usize;
            let chain = &work.chain[..most.min(work.chain.len())];
            let there = self.pool.cached_blocks(chain);
            // Those in front compute their prompts before it is its turn.
            let shared = seen
                .iter()
                .map(|other| other.shared_blocks(work).min((other.prompt / size) as usize))
                .fold(there, usize::max)
                .min(most);
            cached = shared as u32 * size;
            let idle = self.pool.idle_among(chain, there);
            queue.push(Player {
                number: work.request,
                ready,
                computed: cached,
                known,
                left: work.answer - generated,
                blocks: known.div_ceil(size) - shared as u32 + idle,
            });
            seen.push(work);
        }
        queue.reverse();
        (queue, cached)
    }
}
