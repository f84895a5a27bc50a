//! From RE2's reading of an expression to the same in Rust's.

use std::iter::Peekable;
use std::str::Chars;

use super::RegexError;
use super::{class, group};

/// ASCII digits, as inside a class.
pub(super) const DIGITS: &str = "0-9";
/// ASCII white space, as inside a class. RE2 leaves out the vertical tab.
pub(super) const SPACES: &str = r"\t\n\x0C\r ";
/// ASCII word characters, as inside a class.
pub(super) const WORDS: &str = "0-9A-Za-z_";

/// The rest of an expression.
pub(super) type Rest<'a> = Peekable<Chars<'a>>;

/// The largest count of a repetition.
const LARGEST_COUNT: u32 = 1000;

/// Rewrites what the two engines read differently, and copies everything else.
pub(super) fn translate(pattern: &str) -> Result<String, RegexError> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut repeated: Option<String> = None;
    while let Some(next) = rest.next() {
        if let Some(repetition) = take_repetition(next, &mut rest)? {
            if let Some(before) = repeated {
                let both = format!("{before}{repetition}");
                return Err(RegexError::new("invalid nested repetition operator", both));
            }
            out.push_str(&repetition);
            repeated = Some(repetition);
            continue;
        }
        repeated = None;
        match next {
            '\\' => translate_escape(&mut rest, &mut out)?,
            '[' => class::translate_class(&mut rest, &mut out)?,
            '(' => group::translate_group(&mut rest, &mut out)?,
            '{' | '}' => out.extend(['\\', next]),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// `*`, `+`, `?`, `{2}`, `{2,}`, `{2,5}`, each perhaps with a `?`. A brace that begins none of these is plain text.
fn take_repetition(first: char, rest: &mut Rest<'_>) -> Result<Option<String>, RegexError> {
    let mut taken = match first {
        '*' | '+' | '?' => String::from(first),
        '{' => match take_counts(rest) {
            Some(counts) => counts,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    if first == '{' && !counts_fit(&taken) {
        return Err(RegexError::new("invalid repeat count", taken));
    }
    taken.extend(rest.next_if_eq(&'?'));
    Ok(Some(taken))
}

fn take_counts(rest: &mut Rest<'_>) -> Option<String> {
    let mut ahead = rest.clone();
    let mut counts = String::from("{");
    let (mut digits, mut commas) = (0, 0);
    loop {
        let next = ahead.next()?;
        counts.push(next);
        match next {
            '0'..='9' => digits += 1,
            ',' if digits > 0 && commas == 0 => commas += 1,
            '}' if digits > 0 => break,
            _ => return None,
        }
    }
    *rest = ahead;
    Some(counts)
}

fn counts_fit(counts: &str) -> bool {
    let inside = counts.trim_matches(['{', '}']);
    let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
    // More digits than a number holds are too many as well.
    let read = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let least = read(least);
    let most = if most.is_empty() { least } else { read(most) };
    least <= most && most <= LARGEST_COUNT
}

fn translate_escape(rest: &mut Rest<'_>, out: &mut String) -> Result<(), RegexError> {
    let Some(next) = rest.next() else {
        return Err(RegexError::new("trailing backslash at end of expression", ""));
    };
    match next {
        'Q' => quote(rest, out),
        'd' => bracket("", DIGITS, out),
        'D' => bracket("^", DIGITS, out),
        's' => bracket("", SPACES, out),
        'S' => bracket("^", SPACES, out),
        'w' => bracket("", WORDS, out),
        'W' => bracket("^", WORDS, out),
        'b' => out.push_str(r"(?-u:\b)"),
        'B' => out.push_str(r"(?-u:\B)"),
        'p' | 'P' => copy_unicode_class(next, rest, out)?,
        'A' | 'z' => out.extend(['\\', next]),
        _ => push_char(take_escaped_char(next, rest)?, out),
    }
    Ok(())
}

/// Everything up to `\E`, or to the end, is plain text.
fn quote(rest: &mut Rest<'_>, out: &mut String) {
    while let Some(next) = rest.next() {
        if next == '\\' && rest.next_if_eq(&'E').is_some() {
            return;
        }
        push_char(next, out);
    }
}

fn bracket(negation: &str, inside: &str, out: &mut String) {
    out.push('[');
    out.push_str(negation);
    out.push_str(inside);
    out.push(']');
}

/// `\pL`, `\p{Greek}`, and `\p{^Greek}`, which is `\P{Greek}`.
pub(super) fn copy_unicode_class(
    letter: char,
    rest: &mut Rest<'_>,
    out: &mut String,
) -> Result<(), RegexError> {
    let mut said = format!("\\{letter}");
    let mut name = String::new();
    let braced = rest.next_if_eq(&'{').is_some();
    if braced {
        said.push('{');
        loop {
            match rest.next() {
                Some('}') => break,
                Some(next) => name.push(next),
                None => return Err(RegexError::new("invalid character class range", said)),
            }
        }
        said.push_str(&name);
        said.push('}');
    } else {
        name.extend(rest.next());
        said.push_str(&name);
    }
    let plain = name.strip_prefix('^').filter(|_| braced);
    let letter = match (letter, plain) {
        ('p', Some(_)) => 'P',
        (_, Some(_)) => 'p',
        (letter, None) => letter,
    };
    let class = format!("\\{letter}{{{}}}", plain.unwrap_or(&name));
    if regex_syntax::parse(&class).is_err() {
        return Err(RegexError::new("invalid character class range", said));
    }
    out.push_str(&class);
    Ok(())
}

/// The one character that `\` and what follows mean. `first` is what follows at once.
pub(super) fn take_escaped_char(first: char, rest: &mut Rest<'_>) -> Result<char, RegexError> {
    let plain = match first {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => return take_hex(rest),
        '0'..='7' => return take_octal(first, rest),
        mark if mark.is_ascii() && !mark.is_ascii_alphanumeric() => mark,
        other => return Err(bad_escape(&other.to_string())),
    };
    Ok(plain)
}

/// `x41` or `x{41}`.
fn take_hex(rest: &mut Rest<'_>) -> Result<char, RegexError> {
    let braced = rest.next_if_eq(&'{').is_some();
    let mut digits = String::new();
    while braced || digits.len() < 2 {
        match rest.next_if(char::is_ascii_hexdigit) {
            Some(digit) => digits.push(digit),
            None => break,
        }
    }
    let complete = if braced { rest.next_if_eq(&'}').is_some() } else { digits.len() == 2 };
    let value = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
    match value {
        Some(value) if complete => Ok(value),
        _ => {
            let brace = if braced { "{" } else { "" };
            let after: String =
                if value.is_none() { rest.next().into_iter().collect() } else { String::new() };
            Err(bad_escape(&format!("x{brace}{digits}{after}")))
        }
    }
}

/// `0`, `012`, `123`; a single digit above zero would be a back reference, which RE2 does not have.
fn take_octal(first: char, rest: &mut Rest<'_>) -> Result<char, RegexError> {
    let is_octal = |digit: &char| ('0'..='7').contains(digit);
    if first != '0' && !rest.peek().is_some_and(is_octal) {
        return Err(bad_escape(&first.to_string()));
    }
    let mut value = u32::from(first) - u32::from('0');
    for _ in 0..2 {
        if let Some(digit) = rest.next_if(is_octal) {
            value = value * 8 + (u32::from(digit) - u32::from('0'));
        }
    }
    char::from_u32(value).ok_or_else(|| bad_escape(&first.to_string()))
}

fn bad_escape(text: &str) -> RegexError {
    RegexError::new("invalid escape sequence", format!("\\{text}"))
}

/// A character as itself. A mark is escaped; letters and digits are not, they would become something else.
fn push_char(plain: char, out: &mut String) {
    let mut buffer = [0; 4];
    out.push_str(&regex_syntax::escape(plain.encode_utf8(&mut buffer)));
}
