//! Bracketed classes: RE2 knows no nesting and no set operations in them.

use std::fmt::Write;

use super::RegexError;
use super::translate::{DIGITS, Rest, SPACES, WORDS, copy_unicode_class, take_escaped_char};

const POSIX_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Rewrites a class whose opening bracket was taken. Every single character is written by its number, so that none
/// can mean anything to the engine.
pub(super) fn translate_class(rest: &mut Rest<'_>, out: &mut String) -> Result<(), RegexError> {
    let whole: String = std::iter::once('[').chain(rest.clone()).collect();
    let unclosed = || RegexError::new("missing closing ]", whole.clone());
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let next = rest.next().ok_or_else(unclosed)?;
        match next {
            ']' if !first => break,
            '[' => match take_posix_class(rest)? {
                Some(name) => out.push_str(&name),
                None => single_or_range('[', rest, out, &unclosed)?,
            },
            '\\' => escaped_item(rest, out, &unclosed)?,
            other => single_or_range(other, rest, out, &unclosed)?,
        }
        first = false;
    }
    out.push(']');
    Ok(())
}

/// `[:alpha:]`, whose opening bracket was taken, or nothing: then the bracket is a character.
fn take_posix_class(rest: &mut Rest<'_>) -> Result<Option<String>, RegexError> {
    let ahead: String = rest.clone().collect();
    let Some((name, _)) = ahead.strip_prefix(':').and_then(|inside| inside.split_once(":]")) else {
        return Ok(None);
    };
    let class = format!("[:{name}:]");
    if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(RegexError::new("invalid character class range", class));
    }
    for _ in 1..class.chars().count() {
        rest.next();
    }
    Ok(Some(class))
}

fn escaped_item(
    rest: &mut Rest<'_>,
    out: &mut String,
    unclosed: &dyn Fn() -> RegexError,
) -> Result<(), RegexError> {
    let next = rest.next().ok_or_else(|| RegexError::new("trailing backslash at end of expression", ""))?;
    let (negated, set) = match next {
        'd' => (false, DIGITS),
        'D' => (true, DIGITS),
        's' => (false, SPACES),
        'S' => (true, SPACES),
        'w' => (false, WORDS),
        'W' => (true, WORDS),
        'p' | 'P' => {
            return copy_unicode_class(next, rest, out);
        }
        other => return single_or_range(take_escaped_char(other, rest)?, rest, out, unclosed),
    };
    if negated {
        out.push_str("[^");
        out.push_str(set);
        out.push(']');
    } else {
        out.push_str(set);
    }
    Ok(())
}

/// One character, or a range that begins with it. A dash before the closing bracket is a dash.
fn single_or_range(
    low: char,
    rest: &mut Rest<'_>,
    out: &mut String,
    unclosed: &dyn Fn() -> RegexError,
) -> Result<(), RegexError> {
    let mut ahead = rest.clone();
    let is_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|next| *next != ']');
    push_number(low, out);
    if !is_range {
        return Ok(());
    }
    *rest = ahead;
    let high = match rest.next().ok_or_else(unclosed)? {
        '\\' => {
            let next =
                rest.next().ok_or_else(|| RegexError::new("trailing backslash at end of expression", ""))?;
            take_escaped_char(next, rest)?
        }
        other => other,
    };
    if high < low {
        return Err(RegexError::new("invalid character class range", format!("{low}-{high}")));
    }
    out.push('-');
    push_number(high, out);
    Ok(())
}

fn push_number(plain: char, out: &mut String) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\x{{{:X}}}", u32::from(plain));
}
