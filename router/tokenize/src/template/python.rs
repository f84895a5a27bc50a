//! Python's text: what it strips, and how it prints numbers and containers.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, Value};

use super::letters;

/// An integer too wide for the template engine's own. Prints as its digits.
#[derive(Clone, Debug)]
pub struct BigInt(Arc<str>);

impl BigInt {
    /// Wraps canonical digits.
    pub fn new(digits: Arc<str>) -> Self {
        Self(digits)
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `str.strip` and `str.isspace` call white space. Rust's set lacks the four information separators.
pub fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// `str.strip()`
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.lstrip()`
pub fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

/// `str.rstrip()`
pub fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `repr(float)` for finite numbers: the shortest digits that read back, with an exponent below 1e-4 and from
/// 1e16 on.
pub fn write_float(out: &mut String, number: f64) {
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        out.push_str(&scientific);
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    out.push_str(sign);
    if !(-4..16).contains(&exponent) {
        out.push_str(mantissa);
        let _ = write!(out, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
        return;
    }
    if exponent < 0 {
        out.push_str("0.");
        (1..exponent.abs()).for_each(|_| out.push('0'));
        out.push_str(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(&digits);
        (digits.len()..whole).for_each(|_| out.push('0'));
        out.push_str(".0");
    } else {
        let (before, after) = digits.split_at(whole);
        let _ = write!(out, "{before}.{after}");
    }
}

/// The number as a float, when it is one.
pub fn as_float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok())?
}

/// `str(value)`: what `{{ value }}` prints.
///
/// # Errors
/// Where a string inside a container holds letters that some Pythons escape and others do not.
pub fn write_str(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None => write_repr(out, value)?,
    }
    Ok(())
}

/// `repr(value)`
///
/// # Errors
/// As [`write_str`].
pub fn write_repr(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default())?,
        ValueKind::Number => match as_float(value) {
            Some(number) if number.is_nan() => out.push_str("nan"),
            Some(number) if number.is_infinite() => out.push_str(if number > 0.0 { "inf" } else { "-inf" }),
            Some(number) => write_float(out, number),
            None => {
                let _ = write!(out, "{value}");
            }
        },
        ValueKind::Seq => {
            let tuple = value.downcast_object_ref::<minijinja::value::Tuple>().is_some();
            write_sequence(out, value, if tuple { ('(', ')') } else { ('[', ']') })?;
        }
        ValueKind::Map => write_map(out, value)?,
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

fn write_sequence(out: &mut String, value: &Value, (open, close): (char, char)) -> Result<(), Error> {
    out.push(open);
    let mut count = 0;
    for item in value.try_iter().into_iter().flatten() {
        if count > 0 {
            out.push_str(", ");
        }
        write_repr(out, &item)?;
        count += 1;
    }
    if open == '(' && count == 1 {
        out.push(',');
    }
    out.push(close);
    Ok(())
}

fn write_map(out: &mut String, value: &Value) -> Result<(), Error> {
    out.push('{');
    for (position, key) in value.try_iter().into_iter().flatten().enumerate() {
        if position > 0 {
            out.push_str(", ");
        }
        write_repr(out, &key)?;
        out.push_str(": ");
        write_repr(out, &value.get_item(&key).unwrap_or_default())?;
    }
    out.push('}');
    Ok(())
}

/// A string literal: single quotes unless only double ones avoid an escape.
fn write_quoted(out: &mut String, text: &str) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter == quote => {
                out.push('\\');
                out.push(letter);
            }
            letter if letter.is_ascii_control() => write_escape(out, letter),
            letter if letter.is_ascii() => out.push(letter),
            letter => match letters::is_printable(letter) {
                Some(true) => out.push(letter),
                Some(false) => write_escape(out, letter),
                None => return Err(letters::uncertain()),
            },
        }
    }
    out.push(quote);
    Ok(())
}

fn write_escape(out: &mut String, letter: char) {
    let _ = match letter as u32 {
        point @ 0..=0xff => write!(out, "\\x{point:02x}"),
        point @ 0x100..=0xffff => write!(out, "\\u{point:04x}"),
        point => write!(out, "\\U{point:08x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_prints_them() {
        for (number, text) in [
            (1e-7, "1e-07"),
            (1e20, "1e+20"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (100_000.0, "100000.0"),
            (2.0, "2.0"),
            (-0.0, "-0.0"),
            (0.0, "0.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123.456, "123.456"),
            (-2.5, "-2.5"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
        ] {
            let mut out = String::new();
            write_float(&mut out, number);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn white_space_is_python_s() {
        assert_eq!(trim("\u{1c}\u{1f}\u{85} a \u{a0}\u{3000}"), "a");
        for kept in ["\u{200b}", "\u{180e}", "\u{feff}"] {
            assert_eq!(trim(kept), kept);
        }
        assert_eq!((trim_start(" a "), trim_end(" a ")), ("a ", " a"));
    }

    #[test]
    fn containers_print_as_python_prints_them() {
        let value = Value::from(vec![
            Value::from("a'b"),
            Value::from("a\n\u{1}\u{200b}"),
            Value::from(1.0),
            Value::from(true),
            Value::from(()),
            crate::json::object([("k".into(), Value::from("v"))]),
        ]);
        let mut out = String::new();
        write_str(&mut out, &value).unwrap();
        assert_eq!(out, r#"["a'b", 'a\n\x01\u200b', 1.0, True, None, {'k': 'v'}]"#);
    }
}
