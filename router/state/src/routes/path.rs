//! Paths of requests: decoded to be compared, cut into segments, changed.

use std::borrow::Cow;

use crate::plan::PathChange;

/// A path without its escapes. One that is no text without them is compared as it came.
pub(crate) fn decode(raw: &str) -> Cow<'_, str> {
    if !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((byte, width)) = decode_one(rest) {
        bytes.push(byte);
        rest = rest.get(width..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(raw), Cow::Owned)
}

/// The first byte that `raw` stands for, and how many bytes it is written in.
fn decode_one(raw: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| raw.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let first = *raw.first()?;
    match (first, digit(1), digit(2)) {
        // Two hex digits are one byte.
        (b'%', Some(high), Some(low)) => Some(((high * 16 + low) as u8, 3)),
        _ => Some((first, 1)),
    }
}

/// What of `raw` is left behind its first `length` bytes, counted as decoded.
fn tail<'p>(raw: &'p str, decoded: &str, length: usize) -> &'p str {
    let mut at = 0;
    if decoded.len() == raw.len() {
        at = length;
    } else {
        for _ in 0..length {
            at += decode_one(raw.as_bytes().get(at..).unwrap_or_default()).map_or(0, |(_, width)| width);
        }
    }
    raw.get(at..).unwrap_or_default()
}

/// The prefix as Gateway API compares it: trailing slashes say nothing.
pub(crate) fn canonical_prefix(prefix: &str) -> &str {
    prefix.trim_end_matches('/')
}

/// Every run of leading segments of at most `longest` bytes, the longest first; the empty one stands for `/`.
pub(crate) fn prefixes(path: &str, longest: usize) -> impl Iterator<Item = &str> {
    let whole = (path.len() <= longest).then_some(path);
    let end = path.len().min(longest.saturating_add(1));
    let cuts = (0..end).rev().filter(|at| path.as_bytes().get(*at) == Some(&b'/'));
    whole.into_iter().chain(cuts.filter_map(|at| path.get(..at)))
}

/// The path that `change` makes of `raw`, of which `prefix` decoded bytes matched a prefix.
pub(crate) fn changed(
    change: &PathChange,
    raw: &str,
    decoded: &str,
    prefix: Option<usize>,
) -> Option<String> {
    let path = match (change, prefix) {
        (PathChange::Full(path), _) => path.to_string(),
        (PathChange::Prefix(replacement), Some(length)) => {
            format!("{}{}", canonical_prefix(replacement), tail(raw, decoded, length))
        }
        (PathChange::Prefix(_), None) => return None,
    };
    Some(if path.starts_with('/') { path } else { format!("/{path}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_where_they_make_text() {
        for (raw, decoded) in [
            ("/v1/chat", "/v1/chat"),
            ("/v1%2Fchat", "/v1/chat"),
            ("/%e4%bd%a0", "/你"),
            ("/%ff", "/%ff"),
            ("/%2", "/%2"),
            ("/%zz%41", "/%zzA"),
            ("", ""),
        ] {
            assert_eq!(decode(raw), decoded, "{raw}");
        }
    }

    #[test]
    fn prefixes_are_whole_segments() {
        let all = |path, longest| prefixes(path, longest).collect::<Vec<_>>();
        assert_eq!(all("/foo/bar", 100), ["/foo/bar", "/foo", ""]);
        assert_eq!(all("/foo/", 100), ["/foo/", "/foo", ""]);
        assert_eq!(all("/foo/bar", 4), ["/foo", ""]);
        assert_eq!(all("/foo/bar", 3), [""]);
        assert_eq!(all("/", 0), [""]);
        assert_eq!(all("*", 0), Vec::<&str>::new());
        assert_eq!(all("/ä/b", 3), ["/ä", ""]);
    }

    /// The table of Gateway API's `ReplacePrefixMatch`, and what kthena got wrong.
    #[test]
    fn a_replaced_prefix_keeps_its_slashes() {
        for (path, prefix, replacement, wanted) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/chat", "/", "/v1", "/v1/chat"),
            ("/a/x", "/a", "/right", "/right/x"),
            ("/f%6Fo/b%20r", "/foo", "/xyz", "/xyz/b%20r"),
        ] {
            let (change, length) = (PathChange::Prefix(replacement.into()), canonical_prefix(prefix).len());
            let got = changed(&change, path, &decode(path), Some(length));
            assert_eq!(got.as_deref(), Some(wanted), "{path}: {prefix} to {replacement:?}");
        }
        assert_eq!(changed(&PathChange::Prefix("/x".into()), "/a", "/a", None), None);
        let full = PathChange::Full("no-slash".into());
        assert_eq!(changed(&full, "/a", "/a", None).as_deref(), Some("/no-slash"));
    }
}
