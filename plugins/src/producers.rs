//! What is gathered for a request before the decision.

pub mod blocks;
pub mod flat_prompt;
pub mod prefix_hits;
pub mod store_hits;
pub mod text_hashes;
pub mod tokens;
