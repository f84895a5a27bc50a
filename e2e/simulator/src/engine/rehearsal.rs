//! An engine's steps without its memory's content: sequences are numbers, what is cached is given.

use super::EngineShape;

/// Steps played at most; what is not reached by then is very late.
const MOST_STEPS: u32 = 20_000;

/// A sequence without its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Player {
    /// Who it is.
    pub(crate) number: u32,
    /// When it has passed the front end, seconds.
    pub(crate) ready: f64,
    /// Tokens that are computed.
    pub(crate) computed: u32,
    /// Tokens that are known.
    pub(crate) known: u32,
    /// Tokens of the answer that are to come.
    pub(crate) left: u32,
    /// Blocks that it takes from the free ones when it enters.
    pub(crate) blocks: u32,
}

impl Player {
    /// `tokens` more are computed; true when that gave a token of the answer.
    pub(crate) fn advance(&mut self, tokens: u32) -> bool {
        self.computed += tokens;
        let gives = tokens > 0 && self.computed >= self.known;
        if gives {
            self.known += 1;
            self.left = self.left.saturating_sub(1);
        }
        gives
    }
}

/// An engine without its content.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    shape: EngineShape,
    running: Vec<Player>,
    /// The next one is at the end.
    queue: Vec<Player>,
    free: u32,
    now: f64,
}

impl Rehearsal {
    /// From `now` on; the next one of `queue` is its last.
    pub(crate) fn new(
        shape: EngineShape,
        running: Vec<Player>,
        queue: Vec<Player>,
        free: u32,
        now: f64,
    ) -> Self {
        Self { shape, running, queue, free, now }
    }

    /// Plays until sequence `number` gives its next token; the time then, seconds.
    pub(crate) fn until_first_token_of(&mut self, number: u32) -> f64 {
        let mut found = None;
        self.play(|given, _, now| {
            if given == number {
                found = Some(now);
            }
            given == number
        });
        found.unwrap_or(f64::from(MOST_STEPS))
    }

    /// Plays until nothing is left, or `seen` says enough. It is called for every token of an answer with the sequence's
    /// number, the tokens that are still to come, and the time.
    pub(crate) fn play(&mut self, mut seen: impl FnMut(u32, u32, f64) -> bool) {
        let mut given = Vec::new();
        for _ in 0..MOST_STEPS {
            let free = &mut self.free;
            self.running.retain(|player| {
                *free += if player.left == 0 { player.blocks } else { 0 };
                player.left > 0
            });
            given.clear();
            if !self.step(&mut given) {
                match self.queue.last() {
                    Some(next) if next.ready > self.now => self.now = next.ready,
                    _ => return,
                }
            }
            // Everybody hears of a token, the last of the step as well.
            let mut enough = false;
            for (number, left) in &given {
                enough |= seen(*number, *left, self.now);
            }
            if enough {
                return;
            }
        }
    }

    /// One step; false when there is nothing to do.
    fn step(&mut self, given: &mut Vec<(u32, u32)>) -> bool {
        let shape = self.shape;
        let mut budget = shape.step_tokens;
        let mut took = shape.rates.step;
        let mut worked = false;
        let mut run = |player: &mut Player| {
            let tokens = (player.known - player.computed).min(budget);
            if tokens == 0 {
                return;
            }
            budget -= tokens;
            worked = true;
            took += if tokens == 1 {
                shape.rates.decode(player.computed)
            } else {
                shape.rates.prefill(tokens, player.computed)
            };
            if player.advance(tokens) {
                given.push((player.number, player.left));
            }
        };
        self.running.iter_mut().for_each(&mut run);
        while let Some(next) = self.queue.last() {
            let fits = self.running.len() < shape.most_running as usize && next.blocks <= self.free;
            if next.ready > self.now || !fits {
                break;
            }
            let Some(mut player) = self.queue.pop() else { break };
            self.free -= player.blocks;
            run(&mut player);
            self.running.push(player);
        }
        if worked {
            self.now += took;
        }
        worked
    }
}
