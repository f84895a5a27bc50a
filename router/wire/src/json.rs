//! A validating JSON cursor that skips whole values without building them.
//!
//! Iterative and bounded: nesting costs one bit a level, never stack. It follows RFC 8259 to the letter, with one
//! freedom: `\ud800` without its partner is a valid escape, as in Python's `json`, because only the engine knows
//! what to make of such a string.

pub(crate) mod text;

use std::ops::Range;

pub(crate) use text::Text;

/// Most levels of nesting. Python's `json`, which the engines use, gives up near 1000; schemas in use stay far
/// below 100.
pub const MAX_DEPTH: usize = 512;

/// Why the bytes are no JSON value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JsonError {
    /// They end inside the value.
    End,
    /// Something else should stand at byte `at`.
    Syntax { at: usize, expected: &'static str },
    /// More than [`MAX_DEPTH`] levels.
    Depth,
    /// A string holds bytes that are no UTF-8.
    Utf8 { at: usize },
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Object,
    Array,
    String { escaped: bool },
    Number,
    True,
    False,
    Null,
}

impl Kind {
    /// The word for messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String { .. } => "string",
            Self::Number => "number",
            Self::True | Self::False => "boolean",
            Self::Null => "null",
        }
    }
}

/// One value and where it stands, without the white space around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

impl Value {
    /// The string, if it is one.
    pub(crate) fn as_text(&self) -> Option<Text> {
        match self.kind {
            Kind::String { escaped } => Some(Text { span: self.span.clone(), escaped }),
            _ => None,
        }
    }

    /// A whole, non-negative number that fits; anything else is `None`.
    pub(crate) fn as_u64(&self, bytes: &[u8]) -> Option<u64> {
        if self.kind != Kind::Number {
            return None;
        }
        std::str::from_utf8(bytes.get(self.span.clone())?).ok()?.parse().ok()
    }
}

/// One member of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) key: Text,
    pub(crate) value: Value,
}

/// What the scanner of a value waits for next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    FirstItem,
    Key,
    FirstKey,
    CommaOrEnd,
}

/// The kinds of the open containers, one bit each: set for an object.
struct Nesting {
    bits: [u64; MAX_DEPTH / 64],
    depth: usize,
}

impl Nesting {
    const fn new() -> Self {
        Self { bits: [0; MAX_DEPTH / 64], depth: 0 }
    }

    fn open(&mut self, object: bool) -> Result<(), JsonError> {
        let word = self.bits.get_mut(self.depth / 64).ok_or(JsonError::Depth)?;
        let bit = 1 << (self.depth % 64);
        if object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn in_object(&self) -> bool {
        self.depth
            .checked_sub(1)
            .is_some_and(|top| self.bits.get(top / 64).is_some_and(|word| word & (1 << (top % 64)) != 0))
    }
}

/// A place in some bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A cursor at `at`; spans stay relative to the start of `bytes`.
    pub(crate) fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Steps into the object that starts here.
    pub(crate) fn enter_object(&mut self) -> Result<Members<'a>, JsonError> {
        self.skip_space();
        self.take(b'{', "an object")?;
        Ok(Members { cursor: self.clone(), first: true })
    }

    /// Skips one whole value, checking it.
    pub(crate) fn value(&mut self) -> Result<Value, JsonError> {
        self.skip_space();
        let start = self.at;
        let kind = match self.peek().ok_or(JsonError::End)? {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            first => {
                let kind = self.scalar(first)?;
                return Ok(Value { kind, span: start..self.at });
            }
        };
        self.container()?;
        Ok(Value { kind, span: start..self.at })
    }

    fn take(&mut self, wanted: u8, expected: &'static str) -> Result<(), JsonError> {
        match self.peek() {
            Some(byte) if byte == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.wrong(expected)),
            None => Err(JsonError::End),
        }
    }

    fn wrong(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, expected }
    }

    fn container(&mut self) -> Result<(), JsonError> {
        let mut nesting = Nesting::new();
        let mut expect = Expect::Value;
        loop {
            self.skip_space();
            let byte = self.peek().ok_or(JsonError::End)?;
            expect = match (expect, byte) {
                (Expect::FirstItem, b']') | (Expect::FirstKey, b'}') | (Expect::CommaOrEnd, b']' | b'}') => {
                    if nesting.in_object() != (byte == b'}') {
                        return Err(self.wrong("`,` or the matching bracket"));
                    }
                    self.at += 1;
                    nesting.close();
                    if nesting.depth == 0 {
                        return Ok(());
                    }
                    Expect::CommaOrEnd
                }
                (Expect::CommaOrEnd, b',') => {
                    self.at += 1;
                    if nesting.in_object() { Expect::Key } else { Expect::Value }
                }
                (Expect::CommaOrEnd, _) => return Err(self.wrong("`,` or a closing bracket")),
                (Expect::Key | Expect::FirstKey, _) => {
                    self.key()?;
                    Expect::Value
                }
                (Expect::Value | Expect::FirstItem, b'{' | b'[') => {
                    nesting.open(byte == b'{')?;
                    self.at += 1;
                    if byte == b'{' { Expect::FirstKey } else { Expect::FirstItem }
                }
                (Expect::Value | Expect::FirstItem, _) => {
                    self.scalar(byte)?;
                    Expect::CommaOrEnd
                }
            };
        }
    }

    /// A key with its colon.
    fn key(&mut self) -> Result<Text, JsonError> {
        match self.peek() {
            Some(b'"') => {}
            Some(_) => return Err(self.wrong("a key in double quotes")),
            None => return Err(JsonError::End),
        }
        let key = self.string()?;
        self.skip_space();
        self.take(b':', "`:`")?;
        Ok(key)
    }

    fn string(&mut self) -> Result<Text, JsonError> {
        let text = text::scan_string(self.bytes, self.at)?;
        self.at = text.span.end;
        Ok(text)
    }

    fn scalar(&mut self, first: u8) -> Result<Kind, JsonError> {
        match first {
            b'"' => Ok(Kind::String { escaped: self.string()?.escaped }),
            b't' => self.word(b"true", Kind::True),
            b'f' => self.word(b"false", Kind::False),
            b'n' => self.word(b"null", Kind::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<Kind, JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(kind)
        } else if word.starts_with(rest) {
            Err(JsonError::End)
        } else {
            Err(self.wrong("a value"))
        }
    }

    fn number(&mut self) -> Result<Kind, JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Kind::Number)
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'0'..=b'9') => {}
            Some(_) => return Err(self.wrong("a digit")),
            None => return Err(JsonError::End),
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }
}

/// Walks the members of one object.
#[derive(Clone, Debug)]
pub(crate) struct Members<'a> {
    cursor: Cursor<'a>,
    first: bool,
}

impl<'a> Members<'a> {
    /// The members of the object that `value` is.
    pub(crate) fn of(bytes: &'a [u8], value: &Value) -> Result<Self, JsonError> {
        Cursor::at(bytes, value.span.start).enter_object()
    }

    /// The next member with its whole value; `None` after the closing brace.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, JsonError> {
        let cursor = &mut self.cursor;
        cursor.skip_space();
        match cursor.peek().ok_or(JsonError::End)? {
            b'}' => {
                cursor.at += 1;
                return Ok(None);
            }
            b',' if !self.first => {
                cursor.at += 1;
                cursor.skip_space();
            }
            _ if self.first => {}
            _ => return Err(cursor.wrong("`,` or `}`")),
        }
        self.first = false;
        let key = cursor.key()?;
        let value = cursor.value()?;
        Ok(Some(Member { key, value }))
    }

    /// The cursor, right behind what was walked.
    pub(crate) fn into_cursor(self) -> Cursor<'a> {
        self.cursor
    }
}

#[cfg(test)]
mod tests;
