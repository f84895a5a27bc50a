//! Bodies in and out: the pass-through JSON scan, the splice, streams and the usage they carry.
//!
//! Nothing here does I/O. Bytes go through as they came (decision D7): a request body is read once by [`scan`]
//! for the few fields the router needs and changed by [`rewrite`] in place of those fields only; an answer is
//! forwarded as it arrives while [`StreamTap`] or [`BodyTap`] reads the usage on the side.

mod answer;
mod encoding;
pub mod headers;
mod json;
mod multipart;
mod rewrite;
mod scan;
mod sse;
mod usage;

pub use answer::BodyTap;
pub use encoding::{DecodeError, decode_body};
pub use json::MAX_DEPTH;
pub use multipart::{MultipartScan, rewrite_multipart, scan_multipart};
pub use rewrite::rewrite;
pub use scan::{MAX_MODEL_BYTES, MAX_REPEATS, Scan, ScanError, scan};
pub use sse::{MAX_EVENT_BYTES, Pieces, StreamTap};
