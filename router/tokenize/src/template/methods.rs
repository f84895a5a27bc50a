//! Python's string methods where the template engine's own differ or are missing.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::{letters, python};

/// Called for a method the value does not have.
pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::String
        && let Some(result) = string_method(value.as_str().unwrap_or_default(), method, args)
    {
        return result;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "strip" | "lstrip" | "rstrip" => strip(text, method, args),
        "split" => split(text, args),
        "rsplit" => rsplit(text, args),
        "splitlines" => splitlines(text, args),
        "partition" | "rpartition" => partition(text, method, args),
        "removeprefix" => one(args).map(|part| Value::from(text.strip_prefix(part).unwrap_or(text))),
        "removesuffix" => one(args).map(|part| Value::from(text.strip_suffix(part).unwrap_or(text))),
        "isspace" => Ok(Value::from(!text.is_empty() && text.chars().all(python::is_space))),
        "upper" => none(args).and_then(|()| letters::upper(text).map(Value::from)),
        "lower" => none(args).and_then(|()| letters::lower(text).map(Value::from)),
        "title" => none(args).and_then(|()| letters::title(text).map(Value::from)),
        "capitalize" => none(args).and_then(|()| letters::capitalize(text).map(Value::from)),
        "isdigit" | "isnumeric" | "isdecimal" => letters::is_number(text).map(Value::from),
        "isalpha" => letters::is_alphabetic(text).map(Value::from),
        "isalnum" => letters::is_alphanumeric(text).map(Value::from),
        "index" => one(args).and_then(|part| {
            let at = text.find(part).ok_or_else(|| invalid("substring not found"))?;
            Ok(Value::from(text.get(..at).unwrap_or_default().chars().count()))
        }),
        _ => return None,
    })
}

fn none(args: &[Value]) -> Result<(), Error> {
    let () = from_args(args)?;
    Ok(())
}

fn one(args: &[Value]) -> Result<&str, Error> {
    let (part,): (&str,) = from_args(args)?;
    Ok(part)
}

fn strip(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (letters,): (Option<&str>,) = from_args(args)?;
    let matches = |letter: char| match letters {
        Some(letters) => letters.contains(letter),
        None => python::is_space(letter),
    };
    Ok(Value::from(match method {
        "lstrip" => text.trim_start_matches(matches),
        "rstrip" => text.trim_end_matches(matches),
        _ => text.trim_matches(matches),
    }))
}

/// Separator and how many cuts at most (negative: all).
fn split_arguments(args: &[Value]) -> Result<(Option<String>, i64), Error> {
    let (separator, most, named): (Option<String>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(named.get::<Option<String>>("sep")?);
    let most = most.or(named.get::<Option<i64>>("maxsplit")?).unwrap_or(-1);
    named.assert_all_used()?;
    if separator.as_deref() == Some("") {
        return Err(invalid("empty separator"));
    }
    Ok((separator, most))
}

fn split(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most) = split_arguments(args)?;
    let pieces = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
    let Some(separator) = separator else { return Ok(split_words(text, pieces)) };
    Ok(text.splitn(pieces, separator.as_str()).map(Value::from).collect())
}

/// Without a separator runs of white space divide, and none stands at the ends.
fn split_words(text: &str, pieces: usize) -> Value {
    let mut words: Vec<Value> = Vec::new();
    let mut rest = python::trim_start(text);
    while !rest.is_empty() {
        if words.len() + 1 == pieces {
            words.push(Value::from(rest));
            break;
        }
        let end = rest.find(python::is_space).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(Value::from(word));
        rest = python::trim_start(after);
    }
    // The last word of a bounded split keeps its trailing white space; of an unbounded one there is none left.
    Value::from(words)
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most) = split_arguments(args)?;
    let Some(separator) = separator else {
        return if most < 0 {
            Ok(split_words(text, usize::MAX))
        } else {
            Err(invalid("rsplit by white space with a limit is not supported"))
        };
    };
    let pieces = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<Value> = text.rsplitn(pieces, separator.as_str()).map(Value::from).collect();
    parts.reverse();
    Ok(Value::from(parts))
}

fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(named.get::<Option<bool>>("keepends")?).unwrap_or(false);
    named.assert_all_used()?;
    let ends = |letter: char| {
        matches!(
            letter,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines: Vec<Value> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(ends) else {
            lines.push(Value::from(rest));
            break;
        };
        let (line, after) = rest.split_at(at);
        let width =
            if after.starts_with("\r\n") { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        let kept = if keep { rest.get(..at + width).unwrap_or(line) } else { line };
        lines.push(Value::from(kept));
        rest = after.get(width..).unwrap_or_default();
    }
    Ok(Value::from(lines))
}

fn partition(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let separator = one(args)?;
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let parts = match method {
        "partition" => match text.split_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => [text, "", ""],
        },
        _ => match text.rsplit_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => ["", "", text],
        },
    };
    Ok(Value::from(Tuple::new(parts.into_iter().map(Value::from).collect())))
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}
