//! What an agent keeps in Redis for its own next start: bytes that mean nothing here, in parts.

use std::time::Duration;

use bytes::Bytes;
use kvasir_core::EndpointId;
use rand::Rng;
use redis::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::request::Request;
use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::key;

/// The largest state.
pub const MOST_RESUME_BYTES: usize = 64 << 20;

/// Bytes in one part: a few milliseconds of the server's time.
const PART: usize = 256 << 10;
/// Parts read in one round trip.
const PARTS_AT_ONCE: usize = 8;

/// A resume state is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a resume state of {0} bytes is larger than {MOST_RESUME_BYTES}")]
pub struct ResumeTooLarge(pub usize);

/// Writes one state after the other, the newest that there is.
#[derive(Debug, Default)]
pub(super) struct ResumeWriter {
    wanted: Option<Bytes>,
    writing: Option<Writing>,
    stored: Option<(u64, u32)>,
    /// The last state that was stored or is being stored, for when Redis loses it.
    last: Option<Bytes>,
}

#[derive(Debug)]
struct Writing {
    id: u64,
    state: Bytes,
    /// The next part to send, and how many are confirmed.
    next: u32,
    written: u32,
}

/// Where a state is: which parts, how many, how long they are together, and their digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pointer {
    id: u64,
    parts: u32,
    length: usize,
    digest: u64,
}

impl ResumeWriter {
    pub(super) fn set(&mut self, state: Bytes) {
        self.wanted = Some(state);
    }

    /// The next requests.
    pub(super) fn next(&mut self, random: &mut dyn Rng, room: &mut usize, requests: &mut Vec<Request>) {
        if self.writing.is_none()
            && let Some(state) = self.wanted.take()
        {
            self.last = Some(state.clone());
            self.writing = Some(Writing { id: random.next_u64(), state, next: 0, written: 0 });
        }
        let Some(writing) = &mut self.writing else { return };
        let pointer = Pointer::of(writing.id, &writing.state);
        if writing.written == pointer.parts {
            requests.push(Request::ResumeCommit { pointer: pointer.to_string() });
            return;
        }
        while *room > 0 && writing.next < pointer.parts {
            let start = writing.next as usize * PART;
            let bytes = writing.state.slice(start..writing.state.len().min(start + PART));
            *room = room.saturating_sub(bytes.len());
            requests.push(Request::ResumePart { id: writing.id, index: writing.next, bytes });
            writing.next += 1;
        }
    }

    pub(super) fn written(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.written += 1;
        }
    }

    /// The state is stored; the one before it, to be let go.
    pub(super) fn committed(&mut self) -> Option<(u64, u32)> {
        let writing = self.writing.take()?;
        self.stored.replace((writing.id, Pointer::of(writing.id, &writing.state).parts))
    }

    /// After a failure: sends again what was not confirmed.
    pub(super) fn again(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.next = writing.written;
        }
    }

    /// The owner is to be published anew: perhaps the store was emptied, so the state is to be stored anew as well.
    pub(super) fn restart(&mut self) {
        self.writing = None;
        self.stored = None;
        if self.wanted.is_none() {
            self.wanted = self.last.take();
        }
    }

    /// A part is not there any more.
    pub(super) fn lost(&mut self, id: u64) {
        if self.stored.is_some_and(|(stored, _)| stored == id) && self.writing.is_none() {
            self.restart();
        }
    }

    /// Which parts are stored.
    pub(super) fn stored(&self) -> Option<(u64, u32)> {
        self.stored
    }
}

impl Pointer {
    fn of(id: u64, state: &[u8]) -> Self {
        let parts = state.len().div_ceil(PART).max(1) as u32;
        Self { id, parts, length: state.len(), digest: xxh3_64(state) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let pointer = Self {
            id: u64::from_str_radix(words.next()?, 16).ok()?,
            parts: words.next()?.parse().ok()?,
            length: words.next()?.parse().ok()?,
            digest: u64::from_str_radix(words.next()?, 16).ok()?,
        };
        let fits = pointer.length <= MOST_RESUME_BYTES
            && pointer.parts as usize == pointer.length.div_ceil(PART).max(1)
            && words.next().is_none();
        fits.then_some(pointer)
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}:{}:{}:{:x}", self.id, self.parts, self.length, self.digest)
    }
}

/// Reads the state that the owner's last writer stored; `None` where there is none, or not the whole of it. `limit` is for
/// each round trip.
///
/// # Errors
/// Redis did not answer, or refused.
pub async fn load_resume_state(
    redis: &Redis,
    owner: &EndpointId,
    limit: Duration,
) -> Result<Option<Bytes>, StoreError> {
    let owner = key::owner(owner);
    let mut ask = redis::cmd("HGET");
    ask.arg(key::meta(&owner)).arg("resume");
    let pointer: Option<String> = redis.query(&ask, limit).await?;
    let Some(pointer) = pointer.as_deref().and_then(Pointer::parse) else { return Ok(None) };
    let mut state = Vec::with_capacity(pointer.length);
    let indexes: Vec<u32> = (0..pointer.parts).collect();
    for some in indexes.chunks(PARTS_AT_ONCE) {
        let mut pipe = redis::Pipeline::with_capacity(some.len());
        for index in some {
            pipe.cmd("GET").arg(key::resume(&owner, pointer.id, *index));
        }
        for answer in redis.pipeline(&pipe, limit).await? {
            match answer {
                Value::BulkString(part) if state.len() + part.len() <= pointer.length => {
                    state.extend_from_slice(&part);
                }
                Value::ServerError(_) => {
                    return Err(StoreError::Refused(refusal(&answer).unwrap_or(Refusal::Other)));
                }
                _ => return Ok(None),
            }
        }
    }
    let whole = state.len() == pointer.length && xxh3_64(&state) == pointer.digest;
    Ok(whole.then(|| Bytes::from(state)))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn requests(writer: &mut ResumeWriter, mut room: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        writer.next(&mut StdRng::seed_from_u64(1), &mut room, &mut requests);
        requests
    }

    #[test]
    fn parts_go_first_and_the_newest_state_follows() {
        let mut writer = ResumeWriter::default();
        assert!(requests(&mut writer, 1).is_empty());
        writer.set(Bytes::from(vec![1; PART + 1]));
        assert!(matches!(requests(&mut writer, 1)[..], [Request::ResumePart { index: 0, .. }]));
        writer.written();
        writer.set(Bytes::from_static(b"second"));
        writer.set(Bytes::from_static(b"third"));
        assert!(matches!(requests(&mut writer, 1)[..], [Request::ResumePart { index: 1, .. }]));
        // The answer was lost.
        writer.again();
        assert!(
            matches!(&requests(&mut writer, 1)[..], [Request::ResumePart { index: 1, bytes, .. }] if bytes.len() == 1)
        );
        writer.written();
        let [Request::ResumeCommit { pointer }] = &requests(&mut writer, 1)[..] else { panic!("no commit") };
        let pointer = Pointer::parse(pointer).unwrap();
        assert_eq!((pointer.parts, pointer.length), (2, PART + 1));
        assert_eq!(writer.committed(), None);
        assert_eq!(writer.stored().map(|(_, parts)| parts), Some(2));
        assert!(
            matches!(&requests(&mut writer, 1)[..], [Request::ResumePart { bytes, .. }] if **bytes == *b"third")
        );
        writer.written();
        assert!(writer.committed().is_some_and(|(_, parts)| parts == 2));
        // The store was emptied.
        writer.restart();
        assert!(
            matches!(&requests(&mut writer, 1)[..], [Request::ResumePart { bytes, .. }] if **bytes == *b"third")
        );
    }

    #[test]
    fn a_pointer_that_does_not_add_up_is_none() {
        let good = Pointer::of(5, b"state");
        assert_eq!(Pointer::parse(&good.to_string()), Some(good));
        for text in ["", "5", "5:1:5", "5:2:5:0", "5:1:99999999999:0", "x:1:5:0", "5:1:5:0:0", "5:0:0:0"] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
        assert_eq!(Pointer::parse(&Pointer::of(1, b"").to_string()).map(|pointer| pointer.parts), Some(1));
    }
}
