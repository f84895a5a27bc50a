//! The parser: one pass over the bytes, strings copied once.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Json, Object};

/// Deeper nesting is refused: it would exhaust the stack here, and Python gives up too (at about 1,000).
const MAX_DEPTH: usize = 200;

/// Python refuses to read longer integers (its default limit on digits).
const MAX_INTEGER_DIGITS: usize = 4_300;

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
}

/// Reads one JSON value and nothing after it.
///
/// # Errors
/// What is wrong and where.
pub fn parse(text: &str) -> Result<Json, ParseError> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0 };
    parser.skip_space();
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at != parser.bytes.len() {
        return Err(ParseError::Syntax(parser.at));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
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

    fn value(&mut self, depth: usize) -> Result<Json, ParseError> {
        if depth > MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        match self.peek() {
            Some(b'"') => Ok(Json::Text(self.string()?.into())),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
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

    fn object(&mut self, depth: usize) -> Result<Json, ParseError> {
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
            let key: Arc<str> = self.string()?.into();
            self.skip_space();
            if !self.eat(":") {
                return self.fail();
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            map.insert(key, value);
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

    fn list(&mut self, depth: usize) -> Result<Json, ParseError> {
        self.at += 1;
        let mut list = Vec::new();
        self.skip_space();
        if self.eat("]") {
            return Ok(Json::List(list));
        }
        loop {
            self.skip_space();
            list.push(self.value(depth + 1)?);
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
        let negative = self.eat("-");
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
        // Python's integers have no negative zero.
        Ok(Json::Int(if negative && text == "-0" { "0".into() } else { text.into() }))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, ParseError> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            let plain = self.text.get(start..self.at).unwrap_or_default();
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut out = String::with_capacity((self.at - start) * 2 + 16);
        let mut piece = start;
        loop {
            self.skip_plain();
            out.push_str(self.text.get(piece..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                    piece = self.at;
                }
                _ => return self.fail(),
            }
        }
    }

    /// Moves to the next quote, backslash or control character.
    fn skip_plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let stop = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        let plain = rest.get(..stop).unwrap_or_default();
        // Two passes that the compiler turns into wide instructions beat one that looks at each byte.
        let control = plain.iter().any(|byte| *byte < 0x20);
        self.at += if control { plain.iter().position(|byte| *byte < 0x20).unwrap_or(stop) } else { stop };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str) -> Json {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn numbers_keep_their_kind() {
        for (text, expected) in [
            ("0", Json::Int("0".into())),
            ("-0", Json::Int("0".into())),
            ("123456789012345678901234567890", Json::Int("123456789012345678901234567890".into())),
            ("1.0", Json::Float(1.0)),
            ("1e3", Json::Float(1000.0)),
            ("1E+2", Json::Float(100.0)),
            ("1e400", Json::Float(f64::INFINITY)),
            ("-Infinity", Json::Float(f64::NEG_INFINITY)),
        ] {
            assert_eq!(ok(text), expected, "{text}");
        }
        assert!(matches!(ok("-0.0"), Json::Float(zero) if zero == 0.0 && zero.is_sign_negative()));
        assert!(matches!(ok("NaN"), Json::Float(number) if number.is_nan()));
        assert!(parse(&"1".repeat(MAX_INTEGER_DIGITS + 1)).is_err());
    }

    #[test]
    fn of_duplicate_keys_the_last_value_stands_in_the_first_place() {
        let Json::Map(map) = ok(r#"{"a":1,"b":2,"a":3}"#) else { panic!("a map") };
        let pairs: Vec<_> = map.iter().map(|(key, value)| (&**key, value.clone())).collect();
        assert_eq!(pairs, [("a", Json::Int("3".into())), ("b", Json::Int("2".into()))]);
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(ok(r#""a\n\u00e9\ud83d\ude00\/""#), Json::text("a\né😀/"));
        assert_eq!(ok(r#""""#), Json::text(""));
        assert_eq!(parse(r#""\ud800""#), Err(ParseError::Surrogate(3)));
        assert_eq!(parse(r#""\ud800\u0041""#), Err(ParseError::Surrogate(3)));
        assert_eq!(parse(r#""\udc00x""#), Err(ParseError::Surrogate(3)));
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "- 1",
            "\"a\nb\"",
            "\"\\x\"",
            "\"abc",
            "tru",
            "nan",
            "[1] 2",
            "'a'",
            "\"\\u00g0\"",
            "\u{feff}1",
            "\"\\",
            "-",
        ] {
            assert!(parse(text).is_err(), "{text:?} should be refused");
        }
        assert_eq!(parse(&"[".repeat(100_000)), Err(ParseError::TooDeep));
    }
}
