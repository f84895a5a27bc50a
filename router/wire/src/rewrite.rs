//! Splices the model's name and the wish for usage into a body, and touches nothing else.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::json::text::write_string;
use crate::json::{Kind, Members, Value};
use crate::scan::Scan;

/// What usage is asked with where the client sent no options.
const ASK: &[u8] = b"{\"include_usage\":true}";

/// The same, as a member in front of the others. A body has at least `model`, so the comma is always right.
const ASK_MEMBER: &[u8] = b"\"stream_options\":{\"include_usage\":true},";

/// One replacement; an empty range is an insertion.
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) with: Bytes,
}

/// The body with another model name and, if wished, with `stream_options.include_usage` set to `true`.
///
/// `scan` must be of this `body`. The name is written as a JSON string. Other members of `stream_options` stay. A
/// repeated key is rewritten wherever it stands, so that every reader finds the same. Without a change the same
/// bytes come back, uncopied; options that are neither an object nor null are left for the engine to refuse.
///
/// The caller wishes for usage only where [`Scan::lacks_usage`] says so.
pub fn rewrite(body: &Bytes, scan: &Scan, new_model: Option<&str>, inject_usage: bool) -> Bytes {
    let mut edits = SmallVec::<[Edit; 4]>::new();
    if let Some(name) = new_model.filter(|name| *name != scan.model) {
        let mut text = Vec::with_capacity(name.len() + 2);
        write_string(&mut text, name);
        let text = Bytes::from(text);
        edits.extend(scan.model_spans.iter().map(|span| Edit { at: span.clone(), with: text.clone() }));
    }
    if inject_usage && !scan.include_usage_asked {
        edits.extend(usage_edits(body, scan));
    }
    splice(body, edits)
}

fn usage_edits(body: &Bytes, scan: &Scan) -> SmallVec<[Edit; 2]> {
    let options = match (&scan.stream_options_span, scan.stream_options_kind) {
        (Some(span), Some(Kind::Object)) => merge_options(body, span),
        (Some(_), Some(Kind::Null)) => Bytes::from_static(ASK),
        (Some(_), _) => return SmallVec::new(),
        (None, _) => {
            let at = scan.object_start + 1;
            return SmallVec::from_iter([Edit { at: at..at, with: Bytes::from_static(ASK_MEMBER) }]);
        }
    };
    scan.stream_options_spans.iter().map(|span| Edit { at: span.clone(), with: options.clone() }).collect()
}

/// The options with `include_usage` set, everything else as it is written.
fn merge_options(body: &Bytes, span: &Range<usize>) -> Bytes {
    let options = body.get(span.clone()).map(|part| body.slice_ref(part)).unwrap_or_default();
    let whole = Value { kind: Kind::Object, span: 0..options.len() };
    let mut edits = SmallVec::<[Edit; 4]>::new();
    let mut empty = true;
    // The scan has checked these bytes, so that no error ends the walk early.
    if let Ok(mut members) = Members::of(&options, &whole) {
        while let Ok(Some(member)) = members.next() {
            empty = false;
            if member.key.decode(&options).is_some_and(|key| key == "include_usage") {
                edits.push(Edit { at: member.value.span, with: Bytes::from_static(b"true") });
            }
        }
    }
    if edits.is_empty() {
        let with: &'static [u8] = if empty { b"\"include_usage\":true" } else { b"\"include_usage\":true," };
        edits.push(Edit { at: 1..1, with: Bytes::from_static(with) });
    }
    splice(&options, edits)
}

/// Makes the edits, which do not overlap, in one copy of exactly the right size.
pub(crate) fn splice(body: &Bytes, mut edits: SmallVec<[Edit; 4]>) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    edits.sort_unstable_by_key(|edit| edit.at.start);
    let grown: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let shrunk: usize = edits.iter().map(|edit| edit.at.len()).sum();
    let mut out = Vec::with_capacity((body.len() + grown).saturating_sub(shrunk));
    let mut from = 0;
    for edit in &edits {
        out.extend_from_slice(body.get(from..edit.at.start).unwrap_or_default());
        out.extend_from_slice(&edit.with);
        from = edit.at.end;
    }
    out.extend_from_slice(body.get(from..).unwrap_or_default());
    out.into()
}

#[cfg(test)]
mod tests;
