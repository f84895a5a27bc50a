//! Bodies in and out: the pass-through JSON scan, the splice, streams and the usage they carry.
//!
//! Nothing here does I/O. Bytes go through as they came (decision D7): a request body is read once by [`scan`]
//! for the few fields the router needs and changed by [`rewrite`] in place of those fields only; an answer is
//! forwarded as it arrives while [`StreamTap`] or [`BodyTap`] reads the usage on the side. Where prefill and decode are
//! apart, [`body_for_prefill`] and [`body_for_decode`] make of one body two.

mod answer;
mod disaggregate;
mod encoding;
mod field;
pub mod headers;
mod json;
mod multipart;
mod rewrite;
mod scan;
mod sse;
mod usage;

pub use answer::BodyTap;
pub use disaggregate::{
    Addition, PrefillShape, are_several_prompts, body_for_decode, body_for_prefill, without_hand_over,
};
pub use encoding::{DecodeError, decode_body};
pub use field::field_at;
pub use json::MAX_DEPTH;
pub use multipart::{MultipartScan, rewrite_multipart, scan_multipart};
pub use rewrite::rewrite;
pub use scan::{MAX_MODEL_BYTES, MAX_REPEATS, Scan, ScanError, scan};
pub use sse::{MAX_EVENT_BYTES, Pieces, StreamTap};
pub use usage::correct_cached;
