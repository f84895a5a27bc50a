//! What `make bench` measures with. `run.py` beside this crate drives it and writes `docs/benchmarks.md`.
//!
//! [`Corpus`] cuts real text into passages, [`Conversations`] makes chat bodies of them, [`play`] sends those in a
//! closed loop and times them. Beside the load generator there are a bare Pingora hop, which is what any router built on
//! Pingora costs at least, engines that read and forget, and the timings of what happens inside one decision. [`Mix`] makes
//! chats of text that was never seen, for what tokens cost: [`tokens`] of long chats on one thread, [`lanes`] of short ones
//! beside them. [`fleet`] times decisions over few and many pods. [`shared`] is about Redis: lookups in it, and the mirror of what agents publish.

pub mod corpus;
pub mod decision;
pub mod exchange;
pub mod figures;
pub mod fleet;
pub mod lanes;
pub mod mix;
pub mod play;
pub mod prompt;
pub mod resident;
pub mod shared;
pub mod tokens;

pub use corpus::Corpus;
pub use figures::{Figures, Spread};
pub use mix::Mix;
pub use play::{Connections, Plan, Work, play};
pub use prompt::{Conversations, Sizes};
