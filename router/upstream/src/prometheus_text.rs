//! The Prometheus text format, read line by line without allocating.

use std::borrow::Cow;

/// Why a text is no metrics page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// A line is neither blank, a comment nor a sample. Lines count from 1.
    #[error("line {0} is no metric")]
    Line(usize),
    /// The last line lacks its line feed, which the format demands: the text was cut.
    #[error("the page is cut off")]
    Cut,
}

/// One sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Series<'a> {
    /// Metric name, suffixes included.
    pub name: &'a str,
    /// What stands between the braces, already checked to be well formed.
    labels: &'a str,
    /// The value; may be NaN or infinite.
    pub value: f64,
}

impl<'a> Series<'a> {
    /// The value of label `wanted`, unescaped; `None` where the sample has no such label.
    pub fn label(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            let (name, value, after) = split_label(rest)?;
            if name == wanted {
                return Some(unescape(value));
            }
            rest = after;
        }
    }
}

/// Every sample of `text` whose name is `wanted`, in order. Ends at the first error.
///
/// A page is mostly buckets of histograms that nobody reads. Of those no more is looked at than shows that they are
/// samples.
pub fn series(
    text: &str,
    wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Result<Series<'_>, Malformed>> {
    let cut = !text.is_empty() && !text.ends_with('\n');
    let (mut rest, mut number, mut ended) = (text, 0, false);
    std::iter::from_fn(move || {
        while !ended && !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let line = rest.get(..end).unwrap_or_default();
            rest = rest.get(end + 1..).unwrap_or_default();
            number += 1;
            let read = match sample(line.trim_ascii(), &wanted) {
                Some(None) => continue,
                Some(Some(sample)) => Ok(sample),
                None => Err(Malformed::Line(number)),
            };
            ended = read.is_err();
            return Some(read);
        }
        (!std::mem::replace(&mut ended, true) && cut).then_some(Err(Malformed::Cut))
    })
}

/// `name{labels} value [timestamp] [# exemplar]`. `Some(None)` where there is nothing to read: blank lines, comments, names
/// that nobody wants.
fn sample<'a>(line: &'a str, wanted: impl Fn(&str) -> bool) -> Option<Option<Series<'a>>> {
    if line.is_empty() || line.starts_with('#') {
        return Some(None);
    }
    let end = memchr::memchr3(b'{', b' ', b'\t', line.as_bytes())?;
    if !wanted(line.get(..end)?) {
        return looks_like_sample(line, end).then_some(None);
    }
    let (name, rest) = split_name(line)?;
    let (labels, rest) = match rest.trim_ascii_start().strip_prefix('{') {
        Some(inner) => split_labels(inner)?,
        None if rest.starts_with([' ', '\t']) => ("", rest),
        None => return None,
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Some(Series { name, labels, value }))
}

/// Whether a line whose name ends at `end` begins as a name does, and has a number after its name or its labels.
fn looks_like_sample(line: &str, end: usize) -> bool {
    let begins = line.bytes().next().is_some_and(|byte| is_name_byte(byte) && !byte.is_ascii_digit());
    let rest = line.get(end..).unwrap_or_default();
    begins
        && if rest.trim_ascii_start().starts_with('{') {
            // Values of labels may hold braces, and so do exemplars.
            memchr::memchr_iter(b'}', rest.as_bytes()).any(|brace| begins_number(rest, brace + 1))
        } else {
            begins_number(rest, 0)
        }
}

/// Whether a number stands at this place, after blanks or not.
fn begins_number(text: &str, at: usize) -> bool {
    let first = text.bytes().skip(at).find(|byte| !byte.is_ascii_whitespace());
    first.is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'N' | b'I'))
}

fn split_name(line: &str) -> Option<(&str, &str)> {
    let end = line.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(line.len());
    let starts_well = line.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    (end > 0 && starts_well).then(|| line.split_at(end))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

/// Splits `a="x",b="y"} rest` at the closing brace; `None` unless every label is well formed.
fn split_labels(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    loop {
        if let Some(after) = rest.trim_ascii_start().strip_prefix('}') {
            let labels = text.len() - rest.len();
            return Some((text.get(..labels)?, after));
        }
        rest = split_label(rest)?.2;
    }
}

/// Name, escaped value, and what follows the label and its comma.
fn split_label(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = split_name(text.trim_ascii_start())?;
    let value = rest.trim_ascii_start().strip_prefix('=')?.trim_ascii_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = value.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let (value, rest) = value.split_at(end);
    let rest = rest.strip_prefix('"')?.trim_ascii_start();
    Some((name, value, rest.strip_prefix(',').unwrap_or(rest)))
}

fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped })),
            plain => text.push(plain),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Series<'_>>, Malformed> {
        series(text, |_| true).collect()
    }

    #[test]
    fn what_nobody_wants_is_passed_over_and_must_look_like_samples() {
        let names = |text| {
            let wanted = series(text, |name| name.starts_with("a"));
            wanted.map(|sample| sample.map(|sample| sample.name)).collect::<Result<Vec<_>, _>>()
        };
        let text = concat!(
            "b{x=\"1\",y=\"} \"} NaN\nb_bucket{le=\"+Inf\"} 3 # {id=\"1\"} 0.5 1700000000\nb 1\nb -2.5\n",
            "a 1\nb +Inf\na{le=\"1\"} 2\nb\t3\n",
        );
        assert_eq!(names(text), Ok(vec!["a", "a"]));
        for text in
            ["a 1\nb{x=\"1\" 1\n", "a 1\nb\n", "a 1\nInternal Server Error\n", "a 1\n<html>\n", "a 1\n9b 1\n"]
        {
            assert_eq!(names(text), Err(Malformed::Line(2)), "{text:?}");
        }
        assert_eq!(names("a 1\nb 1"), Err(Malformed::Cut));
    }

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = concat!(
            "# HELP a:b some help\n# TYPE a:b gauge\n\n",
            "plain 1\n",
            "a:b{x=\"1\",y=\"two, }\\\"three\\\" \\\\ \\n\"} +Inf 1700000000\n",
            "trailing{x=\"1\",} NaN\n",
            "empty{} 2.5e3 # {trace=\"t\"} 1\n",
            "  spaced { x = \"v\" } 3\r\n",
        );
        let samples = all(text).expect("a good page");
        assert_eq!(samples.len(), 5);
        assert_eq!((samples[0].name, samples[0].value), ("plain", 1.0));
        assert_eq!(samples[1].label("y").as_deref(), Some("two, }\"three\" \\ \n"));
        assert_eq!(samples[1].label("z"), None);
        assert!(samples[1].value.is_infinite());
        assert!(samples[2].value.is_nan());
        assert_eq!(samples[3].value, 2500.0);
        assert_eq!(samples[4].label("x").as_deref(), Some("v"));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for (text, error) in [
            ("<!DOCTYPE html>\n<html>\n", Malformed::Line(1)),
            ("a 1\n{\"error\":\"no\"}\n", Malformed::Line(2)),
            ("Internal Server Error\n", Malformed::Line(1)),
            ("a\n", Malformed::Line(1)),
            ("9a 1\n", Malformed::Line(1)),
            ("a{x=\"1\" 1\n", Malformed::Line(1)),
            ("a{x=\"1\n", Malformed::Line(1)),
            ("a{x} 1\n", Malformed::Line(1)),
            ("a-b 1\n", Malformed::Line(1)),
            ("a 1\nb 2", Malformed::Cut),
            ("a 1\n# TYPE b", Malformed::Cut),
        ] {
            assert_eq!(all(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn an_empty_text_has_no_samples() {
        assert_eq!(all("").map(|samples| samples.len()), Ok(0));
    }
}
