//! Usage out of a JSON answer that passes through.

use bytes::Bytes;
use kvasir_core::{RequestKind, Usage};
use memchr::memchr2;
use smallvec::SmallVec;

use crate::json::{Cursor, Kind};
use crate::sse::read_id;
use crate::usage::Counts;

/// Most bytes of the `usage` or `id` value that are kept; engines need a few hundred.
const MAX_VALUE_BYTES: usize = 16 << 10;

/// Most bytes of `kv_transfer_params` that are kept. They list the prompt's blocks: about 6 bytes for 16 tokens.
const MAX_TRANSFER_BYTES: usize = 1 << 20;

/// Longest key that is of interest, with its closing quote.
const KEY_BYTES: usize = 19;

/// The top-level members that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Usage,
    Id,
    Transfer,
}

impl Wanted {
    fn most_bytes(self) -> usize {
        match self {
            Self::Usage | Self::Id => MAX_VALUE_BYTES,
            Self::Transfer => MAX_TRANSFER_BYTES,
        }
    }
}

/// Watches a JSON answer for its top-level `usage` (and `id`, for the Responses API) as it passes by.
///
/// Keeps those values and nothing else, whatever the size of the answer. It checks nothing and never fails: of
/// an answer that is no JSON object, or that was cut short, it knows what was whole.
#[derive(Debug)]
pub struct BodyTap {
    kind: RequestKind,
    /// Open brackets; the answer's own object is the first.
    depth: usize,
    /// Inside a string, and behind a backslash there.
    in_string: bool,
    escaped: bool,
    /// Inside the top-level object: whether a string is a key now.
    key_next: bool,
    /// The top-level key that is being read or was read last; too long ones stay incomplete.
    key: SmallVec<[u8; KEY_BYTES]>,
    reading_key: bool,
    /// The value that is being kept.
    wanted: Option<Wanted>,
    kept: Vec<u8>,
    /// The object has ended, or there is none.
    done: bool,
    counts: Counts,
    response_id: Option<String>,
    wants_transfer: bool,
    transfer: Option<Bytes>,
}

impl BodyTap {
    /// A tap on the answer to a request of `kind`.
    pub fn new(kind: RequestKind) -> Self {
        Self {
            kind,
            depth: 0,
            in_string: false,
            escaped: false,
            key_next: false,
            key: SmallVec::new(),
            reading_key: false,
            wanted: None,
            kept: Vec::new(),
            done: false,
            counts: Counts::default(),
            response_id: None,
            wants_transfer: false,
            transfer: None,
        }
    }

    /// A tap on a prefill engine's answer, of which `kv_transfer_params` is kept too.
    pub fn of_prefill(kind: RequestKind) -> Self {
        Self { wants_transfer: true, ..Self::new(kind) }
    }

    /// Takes in the next bytes, split wherever.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.done {
            let read = if self.in_string { self.read_string(rest) } else { self.read_structure(rest) };
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// What the answer said about usage.
    pub fn finish(&mut self) -> Option<Usage> {
        self.done = true;
        self.counts.usage(self.kind)
    }

    /// The id of a Responses API answer, once it went by.
    pub fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// `kv_transfer_params` as they are written; `None` when there are none, or null, or more than can be meant.
    pub fn transfer(&mut self) -> Option<Bytes> {
        self.transfer.take()
    }

    /// Reads on inside a string, up to its end or its next escape.
    fn read_string(&mut self, bytes: &[u8]) -> usize {
        if std::mem::take(&mut self.escaped) {
            self.keep(bytes.get(..1).unwrap_or_default());
            return 1;
        }
        let found = memchr2(b'"', b'\\', bytes);
        let read = found.map_or(bytes.len(), |at| at + 1);
        self.keep(bytes.get(..read).unwrap_or_default());
        match found.and_then(|at| bytes.get(at)) {
            Some(b'"') => {
                self.in_string = false;
                self.reading_key = false;
            }
            Some(_) => self.escaped = true,
            None => {}
        }
        read
    }

    /// Reads on outside of strings, up to behind the next opening quote.
    fn read_structure(&mut self, bytes: &[u8]) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    if self.depth == 0 {
                        self.done = true;
                        return bytes.len();
                    }
                    self.keep(b"\"");
                    self.in_string = true;
                    if self.depth == 1 && self.key_next {
                        self.key_next = false;
                        self.reading_key = true;
                        self.key.clear();
                    }
                    return at + 1;
                }
                b'{' | b'[' => {
                    self.keep(&[byte]);
                    self.depth += 1;
                    self.key_next = self.depth == 1;
                    // A list has no members.
                    self.done |= self.depth == 1 && byte == b'[';
                }
                b'}' | b']' => {
                    if self.depth <= 1 {
                        self.end_value();
                        self.done = true;
                        return bytes.len();
                    }
                    self.keep(&[byte]);
                    self.depth -= 1;
                }
                b',' if self.depth == 1 => {
                    self.end_value();
                    self.key_next = true;
                }
                b':' if self.depth == 1 => self.begin_value(),
                b' ' | b'\t' | b'\r' | b'\n' => self.keep(&[byte]),
                _ if self.depth == 0 => self.done = true,
                _ => self.keep(&[byte]),
            }
        }
        bytes.len()
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.reading_key {
            // The closing quote comes along; one byte more than any wanted key tells a longer one.
            let room = KEY_BYTES.saturating_sub(self.key.len());
            self.key.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        } else if let Some(wanted) = self.wanted {
            if self.kept.len() + bytes.len() > wanted.most_bytes() {
                self.wanted = None;
            } else {
                self.kept.extend_from_slice(bytes);
            }
        }
    }

    fn begin_value(&mut self) {
        self.kept.clear();
        self.wanted = match self.key.as_slice() {
            b"usage\"" => Some(Wanted::Usage),
            b"id\"" if self.kind == RequestKind::Responses => Some(Wanted::Id),
            b"kv_transfer_params\"" if self.wants_transfer => Some(Wanted::Transfer),
            _ => None,
        };
    }

    fn end_value(&mut self) {
        let Some(wanted) = self.wanted.take() else { return };
        let Ok(value) = Cursor::new(&self.kept).value() else { return };
        match wanted {
            // A value that cannot be read is as good as none.
            Wanted::Usage => drop(self.counts.take(self.kind, &self.kept, &value)),
            Wanted::Id => self.response_id = read_id(&self.kept, &value),
            Wanted::Transfer => {
                self.transfer = match value.kind {
                    Kind::Object => self.kept.get(value.span).map(Bytes::copy_from_slice),
                    _ => None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
