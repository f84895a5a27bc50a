//! JSON strings: finding their end, comparing and decoding them.

use std::borrow::Cow;
use std::ops::Range;

use super::JsonError;

/// A string in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    /// With its quotes.
    pub(crate) span: Range<usize>,
    /// Whether it holds a backslash.
    pub(crate) escaped: bool,
}

impl Text {
    /// What stands between the quotes, as it is written.
    pub(crate) fn raw<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.span.start + 1..self.span.end.saturating_sub(1)).unwrap_or_default()
    }

    /// What it means; `None` for half of a surrogate pair, which no Rust string can hold.
    pub(crate) fn decode<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        let raw = std::str::from_utf8(self.raw(bytes)).ok()?;
        if self.escaped { unescape(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(raw)) }
    }
}

/// Appends `text` as a JSON string with its quotes.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(b"\\u00");
                out.extend([HEX[high], HEX[low]]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Finds the end of the string whose opening quote is at `start`.
pub(super) fn scan_string(bytes: &[u8], start: usize) -> Result<Text, JsonError> {
    let mut at = start + 1;
    let mut escaped = false;
    let mut beyond_ascii = false;
    loop {
        let (plain, high) = plain_run(bytes.get(at..).unwrap_or_default());
        at += plain;
        beyond_ascii |= high;
        match bytes.get(at) {
            None => return Err(JsonError::End),
            Some(b'"') => break,
            Some(b'\\') => {
                escaped = true;
                at = escape_end(bytes, at)?;
            }
            Some(_) => return Err(JsonError::Syntax { at, expected: "an escape for the control character" }),
        }
    }
    if beyond_ascii {
        let inner = bytes.get(start + 1..at).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(inner) {
            return Err(JsonError::Utf8 { at: start + 1 + error.valid_up_to() });
        }
    }
    Ok(Text { span: start..at + 1, escaped })
}

/// Bytes before the first quote, backslash or control character, and whether any of them is above 0x7f.
fn plain_run(bytes: &[u8]) -> (usize, bool) {
    let mut at = 0;
    let mut seen = 0;
    // Two block sizes: long ones for prompts and images, short ones so that a line of prose is not walked in bytes.
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let Some(union) = plain_block(block) else { break };
        seen |= union;
        at += 32;
    }
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let Some(union) = plain_block(block) else { break };
        seen |= union;
        at += 8;
    }
    while let Some(&byte) = bytes.get(at) {
        if is_special(byte) {
            break;
        }
        seen |= byte;
        at += 1;
    }
    (at, seen >= 0x80)
}

/// The union of the bits of a block without a special byte. Written without branches so that it becomes vector code.
fn plain_block<const N: usize>(block: &[u8; N]) -> Option<u8> {
    let mut special = 0;
    let mut seen = 0;
    for &byte in block {
        special |= u8::from(is_special(byte));
        seen |= byte;
    }
    (special == 0).then_some(seen)
}

const fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// The end of the escape whose backslash is at `at`.
fn escape_end(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match bytes.get(at + 1) {
        None => Err(JsonError::End),
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            for place in at + 2..at + 6 {
                match bytes.get(place) {
                    None => return Err(JsonError::End),
                    Some(byte) if byte.is_ascii_hexdigit() => {}
                    Some(_) => {
                        return Err(JsonError::Syntax { at: place, expected: "four hex digits after `\\u`" });
                    }
                }
            }
            Ok(at + 6)
        }
        Some(_) => Err(JsonError::Syntax { at: at + 1, expected: "a known escape" }),
    }
}

/// Resolves the escapes of a checked string.
fn unescape(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let mut escape = rest[at + 1..].chars();
        let decoded = match escape.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (decoded, tail) = unescape_unit(escape.as_str())?;
                out.push(decoded);
                rest = tail;
                continue;
            }
            same => same,
        };
        out.push(decoded);
        rest = escape.as_str();
    }
    out.push_str(rest);
    Some(out)
}

/// The character after `\u`, which may be a pair, and what follows it.
fn unescape_unit(text: &str) -> Option<(char, &str)> {
    let (first, rest) = hex_unit(text)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let (second, rest) = hex_unit(rest.strip_prefix("\\u")?)?;
    if !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    Some((char::from_u32(code)?, rest))
}

fn hex_unit(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, text.get(4..)?))
}
