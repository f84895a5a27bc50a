//! Finds and replaces the `model` field of a multipart form, without touching the files beside it.

mod disposition;

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::scan::{MAX_REPEATS, ScanError, Spans, check_model};

use disposition::{field_name, parameter};

/// Most fields of a form. The audio APIs know about twenty.
const MAX_FIELDS: usize = 256;

/// Most bytes of one field's headers.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Longest boundary that is accepted; RFC 2046 allows 70.
const MAX_BOUNDARY_BYTES: usize = 200;

/// What was found in a form. Ranges are byte offsets into the body. A repeated field counts with its last value, as
/// in the engines' web framework.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MultipartScan {
    /// `model`, as the client wrote it.
    pub model: String,
    /// Where that value stands.
    pub model_span: Range<usize>,
    /// Whether `stream` says yes.
    pub stream: bool,
    model_spans: Spans,
}

/// Reads a form for its `model` and `stream` fields. Files are stepped over, never copied.
///
/// # Errors
/// No boundary in `content_type`, a body that breaks the multipart rules, or no usable `model`.
pub fn scan_multipart(content_type: &str, body: &Bytes) -> Result<MultipartScan, ScanError> {
    let boundary = parameter(content_type, "boundary").ok_or(ScanError::NoBoundary)?;
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || boundary.contains(['\r', '\n']) {
        return Err(ScanError::NoBoundary);
    }
    let mut parts = Parts::new(body, &boundary)?;
    let mut found = MultipartScan::default();
    let mut fields = 0;
    while let Some(part) = parts.next()? {
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(ScanError::TooManyFields { limit: MAX_FIELDS });
        }
        match field_name(body.get(part.headers).unwrap_or_default()).as_deref() {
            Some("model") => {
                if found.model_spans.len() == MAX_REPEATS {
                    return Err(ScanError::Repeated { field: "model" });
                }
                found.model_spans.push(part.value);
            }
            Some("stream") => found.stream = says_yes(body.get(part.value).unwrap_or_default()),
            _ => {}
        }
    }
    found.model_span = found.model_spans.last().cloned().ok_or(ScanError::FieldMissing)?;
    let value = body.get(found.model_span.clone()).unwrap_or_default();
    let name = std::str::from_utf8(value).map_err(|_| ScanError::ModelNotText)?;
    check_model(name)?;
    found.model = name.to_owned();
    Ok(found)
}

/// The form with another model name, wherever the field stands. Without a change the same bytes come back, uncopied.
///
/// `scan` must be of this `body`, and `new_model` a served name from the settings: it is written as it is.
pub fn rewrite_multipart(body: &Bytes, scan: &MultipartScan, new_model: &str) -> Bytes {
    if new_model == scan.model {
        return body.clone();
    }
    let removed: usize = scan.model_spans.iter().map(Range::len).sum();
    let added = new_model.len() * scan.model_spans.len();
    let mut out = Vec::with_capacity((body.len() + added).saturating_sub(removed));
    let mut from = 0;
    for span in &scan.model_spans {
        out.extend_from_slice(body.get(from..span.start).unwrap_or_default());
        out.extend_from_slice(new_model.as_bytes());
        from = span.end;
    }
    out.extend_from_slice(body.get(from..).unwrap_or_default());
    out.into()
}

/// What a form's boolean looks like: text, in the spellings that engines take for true.
fn says_yes(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    [b"true".as_slice(), b"1", b"yes", b"on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

struct Part {
    headers: Range<usize>,
    value: Range<usize>,
}

/// Walks the parts of a form. A line may end in CRLF or, from careless clients, in LF.
struct Parts<'a> {
    body: &'a [u8],
    /// `--boundary`, searched for in one forward pass over the body.
    delimiter: Finder<'a>,
    /// The start of the next part's headers; `None` behind the closing delimiter.
    at: Option<usize>,
}

impl<'a> Parts<'a> {
    fn new(body: &'a [u8], boundary: &str) -> Result<Self, ScanError> {
        let delimiter = Finder::new(&format!("--{boundary}")).into_owned();
        let mut parts = Self { body, delimiter, at: None };
        let first =
            parts.find_delimiter(0).ok_or(ScanError::BrokenForm { expected: "the boundary at the start" })?;
        parts.at = first.next;
        Ok(parts)
    }

    fn next(&mut self) -> Result<Option<Part>, ScanError> {
        let Some(start) = self.at else { return Ok(None) };
        let (headers, value) = self.headers(start)?;
        // A value may be empty, with the delimiter's line break being the one that ends the headers.
        let end =
            self.find_delimiter(value).ok_or(ScanError::BrokenForm { expected: "the closing boundary" })?;
        self.at = end.next;
        Ok(Some(Part { headers: start..headers, value: value..end.value_end.max(value) }))
    }

    /// The end of the headers that start at `start`, and the start of the value behind their blank line.
    fn headers(&self, start: usize) -> Result<(usize, usize), ScanError> {
        let room = self.body.get(start..).unwrap_or_default();
        let room = room.get(..MAX_HEADER_BYTES).unwrap_or(room);
        let mut line = 0;
        while let Some(length) = memchr::memchr(b'\n', room.get(line..).unwrap_or_default()) {
            let text = room.get(line..line + length).unwrap_or_default();
            let next = line + length + 1;
            if text.is_empty() || text == b"\r" {
                return Ok((start + line, start + next));
            }
            line = next;
        }
        Err(ScanError::BrokenForm { expected: "a blank line behind a field's headers" })
    }

    /// The first delimiter line that starts at `from` or later.
    fn find_delimiter(&self, from: usize) -> Option<Delimiter> {
        let rest = self.body.get(from..)?;
        self.delimiter.find_iter(rest).find_map(|at| self.delimiter_at(from + at))
    }

    /// The delimiter at `at`, if it is a line of its own there.
    fn delimiter_at(&self, at: usize) -> Option<Delimiter> {
        let before = self.body.get(..at)?;
        let value_end = match before {
            [] => 0,
            [.., b'\r', b'\n'] => at - 2,
            [.., b'\n'] => at - 1,
            _ => return None,
        };
        let after = at + self.delimiter.needle().len();
        let rest = self.body.get(after..)?;
        if rest.starts_with(b"--") {
            return Some(Delimiter { value_end, next: None });
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let line_end = match rest.get(padding..)? {
            [b'\r', b'\n', ..] => 2,
            [b'\n', ..] => 1,
            _ => return None,
        };
        Some(Delimiter { value_end, next: Some(after + padding + line_end) })
    }
}

struct Delimiter {
    /// Where the value before it ends; the line break belongs to the delimiter.
    value_end: usize,
    /// Where the next part's headers start; `None` for the closing delimiter.
    next: Option<usize>,
}

#[cfg(test)]
mod tests;
