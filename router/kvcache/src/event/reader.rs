//! A bounded, zero-copy reader of msgpack bytes.

/// Most nested arrays and maps that are skipped; engine events nest five deep.
const MAX_DEPTH: usize = 32;

/// Why bytes could not be read. Holds positions and words only, never what the bytes said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a value, or a length reaches beyond them.
    #[error("the payload ends early at byte {0}")]
    Truncated(usize),
    /// Another type of value was expected.
    #[error("expected {expected} at byte {at}")]
    Unexpected {
        /// What was expected.
        expected: &'static str,
        /// Where.
        at: usize,
    },
    /// Arrays or maps are nested too deep.
    #[error("values are nested deeper than {MAX_DEPTH} at byte {0}")]
    TooDeep(usize),
    /// A required field is absent.
    #[error("the field {0} is missing")]
    Missing(&'static str),
    /// A field's value is out of its range.
    #[error("the field {0} is out of range")]
    OutOfRange(&'static str),
}

/// An integer as msgpack carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Int {
    Unsigned(u64),
    Negative(i64),
}

/// The next value's family, decided by its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Nil,
    Bool,
    Int,
    Float,
    Text,
    Bytes,
    Array,
    Map,
    Extension,
}

/// Walks over msgpack bytes. A length header is believed only as far as bytes are there.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes not read yet.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> DecodeError {
        DecodeError::Unexpected { expected, at: self.at }
    }

    /// The family of the next value, which stays unread.
    pub(super) fn kind(&self) -> Result<Kind, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated(self.at))?;
        Ok(match byte {
            0x00..=0x7f | 0xcc..=0xd3 | 0xe0..=0xff => Kind::Int,
            0x80..=0x8f | 0xde | 0xdf => Kind::Map,
            0x90..=0x9f | 0xdc | 0xdd => Kind::Array,
            0xa0..=0xbf | 0xd9..=0xdb => Kind::Text,
            0xc0 => Kind::Nil,
            0xc2 | 0xc3 => Kind::Bool,
            0xc4..=0xc6 => Kind::Bytes,
            0xca | 0xcb => Kind::Float,
            0xc7..=0xc9 | 0xd4..=0xd8 => Kind::Extension,
            0xc1 => return Err(self.unexpected("a msgpack value")),
        })
    }

    /// Reads a nil if one is next.
    pub(super) fn take_nil(&mut self) -> bool {
        let nil = self.bytes.get(self.at) == Some(&0xc0);
        self.at += usize::from(nil);
        nil
    }

    pub(super) fn int(&mut self) -> Result<Int, DecodeError> {
        let start = self.at;
        let byte = self.byte()?;
        let signed = |value: i64| match u64::try_from(value) {
            Ok(value) => Int::Unsigned(value),
            Err(_) => Int::Negative(value),
        };
        Ok(match byte {
            0x00..=0x7f => Int::Unsigned(u64::from(byte)),
            0xe0..=0xff => Int::Negative(i64::from(byte.cast_signed())),
            0xcc => Int::Unsigned(u64::from(self.byte()?)),
            0xcd => Int::Unsigned(u64::from(u16::from_be_bytes(self.array()?))),
            0xce => Int::Unsigned(u64::from(u32::from_be_bytes(self.array()?))),
            0xcf => Int::Unsigned(u64::from_be_bytes(self.array()?)),
            0xd0 => signed(i64::from(self.byte()?.cast_signed())),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => signed(i64::from_be_bytes(self.array()?)),
            _ => {
                self.at = start;
                return Err(self.unexpected("an integer"));
            }
        })
    }

    /// An integer that fits, with `field` named when it does not.
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        match self.int()? {
            Int::Unsigned(value) => u32::try_from(value).map_err(|_| DecodeError::OutOfRange(field)),
            Int::Negative(_) => Err(DecodeError::OutOfRange(field)),
        }
    }

    /// A float, or an integer taken as one.
    pub(super) fn number(&mut self) -> Result<f64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(0xca) => {
                self.at += 1;
                Ok(f64::from(f32::from_be_bytes(self.array()?)))
            }
            Some(0xcb) => {
                self.at += 1;
                Ok(f64::from_be_bytes(self.array()?))
            }
            _ => Ok(match self.int()? {
                Int::Unsigned(value) => value as f64,
                Int::Negative(value) => value as f64,
            }),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.at;
        let length = match self.byte()? {
            byte @ 0xa0..=0xbf => usize::from(byte & 0x1f),
            byte @ 0xd9..=0xdb => self.length(byte - 0xd9)?,
            _ => {
                self.at = start;
                return Err(self.unexpected("a string"));
            }
        };
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Unexpected { expected: "UTF-8 text", at: start })
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        let byte = self.byte()?;
        if !(0xc4..=0xc6).contains(&byte) {
            self.at = start;
            return Err(self.unexpected("bytes"));
        }
        let length = self.length(byte - 0xc4)?;
        self.take(length)
    }

    /// The number of elements of the array that follows; never more than the bytes that are left.
    pub(super) fn array_len(&mut self) -> Result<usize, DecodeError> {
        let start = self.at;
        let length = match self.byte()? {
            byte @ 0x90..=0x9f => usize::from(byte & 0x0f),
            byte @ 0xdc..=0xdd => self.length(byte - 0xdc + 1)?,
            _ => {
                self.at = start;
                return Err(self.unexpected("an array"));
            }
        };
        self.within(length, start)
    }

    /// The number of pairs of the map that follows; never more than the bytes that are left.
    pub(super) fn map_len(&mut self) -> Result<usize, DecodeError> {
        let start = self.at;
        let length = match self.byte()? {
            byte @ 0x80..=0x8f => usize::from(byte & 0x0f),
            byte @ 0xde..=0xdf => self.length(byte - 0xde + 1)?,
            _ => {
                self.at = start;
                return Err(self.unexpected("a map"));
            }
        };
        self.within(length.saturating_mul(2), start)?;
        Ok(length)
    }

    /// Steps over one value, whatever it is.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        let mut open = [0usize; MAX_DEPTH];
        let mut depth = 0;
        loop {
            let inside = match self.kind()? {
                Kind::Array => self.array_len()?,
                Kind::Map => self.map_len()? * 2,
                _ => {
                    self.skip_scalar()?;
                    0
                }
            };
            if inside > 0 {
                *open.get_mut(depth).ok_or(DecodeError::TooDeep(self.at))? = inside;
                depth += 1;
                continue;
            }
            loop {
                let Some(top) = depth.checked_sub(1) else { return Ok(()) };
                open[top] -= 1;
                if open[top] > 0 {
                    break;
                }
                depth = top;
            }
        }
    }

    fn skip_scalar(&mut self) -> Result<(), DecodeError> {
        let byte = self.byte()?;
        let length = match byte {
            0xa0..=0xbf => usize::from(byte & 0x1f),
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xca | 0xce | 0xd2 => 4,
            0xcb | 0xcf | 0xd3 => 8,
            0xc4..=0xc6 => self.length(byte - 0xc4)?,
            0xd9..=0xdb => self.length(byte - 0xd9)?,
            // An extension has a type byte before its data.
            0xd4..=0xd8 => (1usize << (byte - 0xd4)) + 1,
            0xc7..=0xc9 => self.length(byte - 0xc7)?.saturating_add(1),
            _ => 0,
        };
        self.take(length).map(|_| ())
    }

    fn within(&self, elements: usize, start: usize) -> Result<usize, DecodeError> {
        if elements > self.remaining() { Err(DecodeError::Truncated(start)) } else { Ok(elements) }
    }

    /// A length of 1, 2 or 4 bytes for `width` 0, 1, 2.
    fn length(&mut self, width: u8) -> Result<usize, DecodeError> {
        Ok(match width {
            0 => usize::from(self.byte()?),
            1 => usize::from(u16::from_be_bytes(self.array()?)),
            _ => u32::from_be_bytes(self.array()?) as usize,
        })
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated(self.at))?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(length).ok_or(DecodeError::Truncated(self.at))?;
        let bytes = self.bytes.get(self.at..end).ok_or(DecodeError::Truncated(self.at))?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<N>);
        let array = *bytes.ok_or(DecodeError::Truncated(self.at))?;
        self.at += N;
        Ok(array)
    }
}
