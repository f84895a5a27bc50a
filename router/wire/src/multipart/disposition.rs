//! Parameters of `Content-Type` and `Content-Disposition`.

use std::borrow::Cow;

/// The name of the field whose headers these are; `None` for an upload, which has a file name, and for headers that
/// make no sense.
pub(super) fn field_name(headers: &[u8]) -> Option<Cow<'_, str>> {
    let headers = std::str::from_utf8(headers).ok()?;
    let value = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    if parameter(value, "filename").is_some() || parameter(value, "filename*").is_some() {
        return None;
    }
    parameter(value, "name")
}

/// The parameter `wanted` of a header value; the first one counts.
pub(super) fn parameter<'a>(value: &'a str, wanted: &str) -> Option<Cow<'a, str>> {
    let mut rest = value.get(value.find(';')? + 1..)?;
    loop {
        let (name, tail) = rest.split_once('=')?;
        // Parameters without a value stand in front of this one.
        let name = name.rsplit(';').next().unwrap_or_default().trim();
        let (found, tail) = parameter_value(tail.trim_start())?;
        if name.eq_ignore_ascii_case(wanted) {
            return Some(found);
        }
        rest = tail.split_once(';')?.1;
    }
}

/// A quoted or bare value, and what follows it.
fn parameter_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((Cow::Borrowed(text.get(..end)?.trim()), text.get(end..)?));
    };
    let mut out = Cow::Borrowed("");
    let mut from = 0;
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                append(&mut out, quoted.get(from..at)?);
                return Some((out, quoted.get(at + 1..)?));
            }
            // Browsers write a Windows path's backslash as it is, so only quotes and backslashes are escaped.
            '\\' if matches!(quoted.get(at + 1..)?.chars().next(), Some('"' | '\\')) => {
                append(&mut out, quoted.get(from..at)?);
                from = at + 1;
                characters.next();
            }
            _ => {}
        }
    }
    None
}

fn append<'a>(out: &mut Cow<'a, str>, piece: &'a str) {
    if out.is_empty() {
        *out = Cow::Borrowed(piece);
    } else {
        out.to_mut().push_str(piece);
    }
}
