//! Engine KV events from the wire: ZMQ frames in, counted batches of [`KvEvent`](kvasir_core::KvEvent)s out.
//!
//! Two encodings exist: positional arrays (vLLM up to 0.23, older SGLang) and maps with a `type` key (vLLM from
//! 0.24, SGLang). Both are read straight from the bytes. What is unknown is skipped; one bad event never takes
//! its batch with it.

mod batch;
mod fields;
mod frames;
mod reader;

pub use batch::{Batch, decode_batch};
pub use frames::{FrameError, Received, ReplayFrame, parse_live, parse_replay};
pub use reader::DecodeError;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
