//! ZMQ frames: live messages and replay answers, in the forms that engines send.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Largest payload taken, bytes. A batch of one scheduler step is a few hundred kilobytes at most.
const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// One numbered message, not decoded yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number, from 0 at each start of the engine, per rank.
    pub seq: u64,
    /// The msgpack payload.
    pub payload: Bytes,
    /// Digest of the payload, which holds the engine's time stamp: tells two lives of an engine apart.
    pub digest: u64,
}

impl Received {
    /// A message with its digest.
    pub fn new(seq: u64, payload: Bytes) -> Self {
        let digest = xxh3_64(&payload);
        Self { seq, payload, digest }
    }
}

/// One message of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayFrame {
    /// A batch.
    Batch(Received),
    /// No more follow.
    End,
}

/// Why frames are not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Another number of frames than a KV event has.
    #[error("{0} frames are no KV event")]
    Count(usize),
    /// The sequence frame is not 8 bytes long.
    #[error("the sequence frame has {0} bytes, not 8")]
    Sequence(usize),
    /// The payload is larger than is taken.
    #[error("the payload has {0} bytes")]
    TooLarge(usize),
}

/// Reads a live message: topic, sequence, payload.
///
/// # Errors
/// The frames are no KV event.
pub fn parse_live(frames: &[Bytes]) -> Result<Received, FrameError> {
    let [_topic, seq, payload] = frames else { return Err(FrameError::Count(frames.len())) };
    received(seq, payload)
}

/// Reads a replay answer: an empty frame, then (vLLM from 0.26, SGLang) the topic, then sequence and payload.
///
/// # Errors
/// The frames are no replay answer.
pub fn parse_replay(frames: &[Bytes]) -> Result<ReplayFrame, FrameError> {
    let ([_, seq, payload] | [_, _, seq, payload]) = frames else {
        return Err(FrameError::Count(frames.len()));
    };
    let message = received(seq, payload)?;
    Ok(if message.seq == u64::MAX { ReplayFrame::End } else { ReplayFrame::Batch(message) })
}

fn received(seq: &Bytes, payload: &Bytes) -> Result<Received, FrameError> {
    let number = <[u8; 8]>::try_from(&**seq).map_err(|_| FrameError::Sequence(seq.len()))?;
    if payload.len() > MAX_PAYLOAD {
        return Err(FrameError::TooLarge(payload.len()));
    }
    Ok(Received::new(u64::from_be_bytes(number), payload.clone()))
}
