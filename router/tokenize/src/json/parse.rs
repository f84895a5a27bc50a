//! The parser: one pass over the bytes, strings copied once more where they have escapes.

use std::sync::Arc;

use super::{Json, Object};

/// Deeper nesting is refused: it would exhaust the stack here, and Python gives up too (at about 1,000).
const MAX_DEPTH: usize = 200;

/// Python refuses to read longer integers (its default limit on digits).
const MAX_INTEGER_DIGITS: usize = 4_300;

/// Most values of one text: some 50 times those of a long conversation with tools. A value takes about a hundred bytes
/// and as little as two in the text, so that without a bound a body of megabytes would take a gigabyte.
pub const MAX_VALUES: usize = 1 << 18;

/// Why a text is no JSON. Holds no part of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, at this byte.
    #[error("not valid JSON at byte {0}")]
    Syntax(usize),
    /// Half of a surrogate pair: legal for Python's parser, refused by everything behind it.
    #[error("a lone surrogate at byte {0}")]
    Surrogate(usize),
    /// Nested deeper than we follow.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// More than [`MAX_VALUES`].
    #[error("more than {MAX_VALUES} values")]
    TooMany,
}

/// Reads one JSON value and nothing after it.
///
/// # Errors
/// What is wrong and where.
pub fn parse(text: &str) -> Result<Json, ParseError> {
    parse_within(text, &mut { MAX_VALUES })
}

/// The same for one of several texts that share a number of values.
///
/// # Errors
/// As [`parse`].
pub fn parse_within(text: &str, values: &mut usize) -> Result<Json, ParseError> {
    let mut parser = Parser { left: *values, ..Parser::new(text) };
    let read = parser.whole(|_| true);
    *values = parser.left;
    read
}

/// The same for an object of which only some fields are wanted: the others are checked and cost no memory.
///
/// # Errors
/// As [`parse`].
pub fn parse_fields(text: &str, wanted: impl Fn(&str) -> bool) -> Result<Json, ParseError> {
    Parser::new(text).whole(wanted)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Room for a string with escapes, used again for each.
    unescaped: String,
    /// Values that may still come.
    left: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, unescaped: String::new(), left: MAX_VALUES }
    }

    fn whole(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Json, ParseError> {
        self.skip_space();
        let value = match self.peek() {
            Some(b'{') => self.object::<true>(0, wanted)?,
            _ => self.value::<true>(0)?,
        };
        self.skip_space();
        if self.at != self.bytes.len() {
            return Err(ParseError::Syntax(self.at));
        }
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fail<T>(&self) -> Result<T, ParseError> {
        Err(ParseError::Syntax(self.at))
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes()));
        if found {
            self.at += word.len();
        }
        found
    }

    /// Reads a value. What is not kept is checked just as well; `null` stands for it then.
    fn value<const KEPT: bool>(&mut self, depth: usize) -> Result<Json, ParseError> {
        if depth > MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        if KEPT {
            self.left = self.left.checked_sub(1).ok_or(ParseError::TooMany)?;
        }
        match self.peek() {
            Some(b'"') if KEPT => Ok(Json::Text(self.string()?)),
            Some(b'"') => self.raw_string().map(|_| Json::Null),
            Some(b'{') => self.object::<KEPT>(depth, |_| true),
            Some(b'[') => self.list::<KEPT>(depth),
            Some(b't') if self.eat("true") => Ok(Json::Bool(true)),
            Some(b'f') if self.eat("false") => Ok(Json::Bool(false)),
            Some(b'n') if self.eat("null") => Ok(Json::Null),
            Some(b'N') if self.eat("NaN") => Ok(Json::Float(f64::NAN)),
            Some(b'I') if self.eat("Infinity") => Ok(Json::Float(f64::INFINITY)),
            Some(b'-') if self.eat("-Infinity") => Ok(Json::Float(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.fail(),
        }
    }

    fn object<const KEPT: bool>(
        &mut self,
        depth: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Json, ParseError> {
        self.at += 1;
        let mut map = Object::new();
        self.skip_space();
        if self.eat("}") {
            return Ok(Json::Map(map));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.fail();
            }
            let key = if KEPT { Some(self.string()?) } else { self.raw_string().map(|_| None)? };
            self.skip_space();
            if !self.eat(":") {
                return self.fail();
            }
            self.skip_space();
            match key.filter(|key| wanted(key)) {
                Some(key) => {
                    let value = self.value::<true>(depth + 1)?;
                    map.insert(key, value);
                }
                None => drop(self.value::<false>(depth + 1)?),
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Json::Map(map));
                }
                _ => return self.fail(),
            }
        }
    }

    fn list<const KEPT: bool>(&mut self, depth: usize) -> Result<Json, ParseError> {
        self.at += 1;
        let mut list = Vec::new();
        self.skip_space();
        if self.eat("]") {
            return Ok(Json::List(list));
        }
        loop {
            self.skip_space();
            let value = self.value::<KEPT>(depth + 1)?;
            if KEPT {
                list.push(value);
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::List(list));
                }
                _ => return self.fail(),
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Json, ParseError> {
        let start = self.at;
        self.eat("-");
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => {
                self.digits();
            }
            _ => return self.fail(),
        }
        let whole_end = self.at;
        let mut float = false;
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                self.at = whole_end;
                return self.fail();
            }
            float = true;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail();
            }
            float = true;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if float {
            return text.parse().map(Json::Float).map_err(|_| ParseError::Syntax(start));
        }
        if text.len() > MAX_INTEGER_DIGITS {
            return Err(ParseError::Syntax(start));
        }
        // Python's integers have no negative zero; nor have ours.
        Ok(text.parse().map_or_else(|_| Json::BigInt(text.into()), Json::Int))
    }

    fn string(&mut self) -> Result<Arc<str>, ParseError> {
        Ok(match self.raw_string()? {
            Some(plain) => plain.into(),
            None => self.unescaped.as_str().into(),
        })
    }

    /// Reads a string: as it stands in the text, or into `unescaped` where it has escapes.
    fn raw_string(&mut self) -> Result<Option<&'a str>, ParseError> {
        self.at += 1;
        let mut start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            let plain = self.text.get(start..self.at).unwrap_or_default();
            self.at += 1;
            return Ok(Some(plain));
        }
        self.unescaped.clear();
        loop {
            self.unescaped.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(None);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let letter = self.escape()?;
                    self.unescaped.push(letter);
                }
                _ => return self.fail(),
            }
            start = self.at;
            self.skip_plain();
        }
    }

    /// Moves to the next quote, backslash or control character. Eight bytes at a time: what is skipped in one go is
    /// a line or a word of code, too short for a search that has to be set up.
    fn skip_plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (chunks, tail) = rest.as_chunks::<8>();
        for chunk in chunks {
            let stops = stops(u64::from_le_bytes(*chunk));
            if stops != 0 {
                self.at += stops.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        self.at += tail.iter().position(stop).unwrap_or(tail.len());
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let kind = self.peek();
        self.at += 1;
        Ok(match kind {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => {
                self.at -= 1;
                return self.fail();
            }
        })
    }

    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let start = self.at;
        let first = self.four_hex()?;
        if !(0xD800..0xE000).contains(&first) {
            return char::from_u32(first).ok_or(ParseError::Syntax(start));
        }
        let after_first = self.at;
        if first < 0xDC00 && self.eat("\\u") {
            let second = self.four_hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let point = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(point).ok_or(ParseError::Syntax(start));
            }
            self.at = after_first;
        }
        Err(ParseError::Surrogate(start))
    }

    fn four_hex(&mut self) -> Result<u32, ParseError> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else { return self.fail() };
        let value =
            digits.iter().fold(0, |value, digit| value * 16 + char::from(*digit).to_digit(16).unwrap_or(0));
        self.at += 4;
        Ok(value)
    }
}

/// The high bit of each of eight bytes that is a quote, a backslash or a control character; bits above the first such
/// byte may be wrong.
fn stops(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Taking away borrows from the next byte only where a byte was less, which is at or above the first stop.
    let less = |bytes: u64, than: u64| bytes.wrapping_sub(ONES * than) & !bytes;
    let equal = |byte: u8| less(bytes ^ (ONES * u64::from(byte)), 1);
    (less(bytes, 0x20) | equal(b'"') | equal(b'\\')) & (ONES << 7)
}

#[cfg(test)]
mod tests;
