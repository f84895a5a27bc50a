//! What an untyped scalar means, by the rules of go-yaml, which read kthena's documents.

use super::Tag;

/// Which words are booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booleans {
    /// `true` and `false` (go-yaml 3).
    Two,
    /// Also `yes`, `no`, `on`, `off`, `y`, `n` (YAML 1.1, go-yaml 2).
    Many,
}

/// A scalar's meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'t> {
    Null,
    Boolean(bool),
    /// Within the range of `i64` or `u64`.
    Integer(i128),
    /// May be infinite or no number.
    Float(f64),
    Text(&'t str),
}

/// Resolves a scalar. A tag that contradicts the text leaves the text.
pub(super) fn resolve(text: &str, plain: bool, tag: Tag, booleans: Booleans) -> Scalar<'_> {
    let untyped = || by_look(text, booleans);
    match tag {
        Tag::None if plain => untyped(),
        Tag::None | Tag::Text | Tag::Other => Scalar::Text(text),
        Tag::Integer => match untyped() {
            integer @ Scalar::Integer(_) => integer,
            _ => Scalar::Text(text),
        },
        Tag::Float => match untyped() {
            Scalar::Integer(integer) => Scalar::Float(integer as f64),
            float @ Scalar::Float(_) => float,
            _ => Scalar::Text(text),
        },
        Tag::Boolean => match untyped() {
            boolean @ Scalar::Boolean(_) => boolean,
            _ => Scalar::Text(text),
        },
        Tag::Null => match untyped() {
            Scalar::Null => Scalar::Null,
            _ => Scalar::Text(text),
        },
    }
}

fn by_look(text: &str, booleans: Booleans) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Boolean(true),
        "false" | "False" | "FALSE" => return Scalar::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if booleans == Booleans::Many {
        match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Scalar::Boolean(true),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Scalar::Boolean(false),
            _ => {}
        }
    }
    number(text).unwrap_or(Scalar::Text(text))
}

/// Integers may be hexadecimal, binary, octal in either spelling; underscores are skipped. A decimal that is too
/// large for 64 bits, or has a leading zero and is no octal, is a float.
fn number(text: &str) -> Option<Scalar<'static>> {
    let first = text.bytes().next()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    let digits = if first == b'.' { text.to_owned() } else { text.replace('_', "") };
    if let Some(integer) = integer(&digits) {
        return Some(Scalar::Integer(integer));
    }
    if !looks_like_float(&digits) {
        return None;
    }
    digits.parse::<f64>().ok().filter(|float| float.is_finite()).map(Scalar::Float)
}

fn integer(digits: &str) -> Option<i128> {
    let (negative, unsigned) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (radix, body) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, unsigned.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, unsigned.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, unsigned.get(2..)?),
        [b'0', _, ..] => (8, unsigned.get(1..)?),
        _ => (10, unsigned),
    };
    if body.is_empty() || !body.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(body, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn looks_like_float(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            all_digits(whole) && all_digits(part) && !(whole.is_empty() && part.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_go_yaml_says() {
        for (text, expected) in [
            ("1", Scalar::Integer(1)),
            ("+5", Scalar::Integer(5)),
            ("-3", Scalar::Integer(-3)),
            ("010", Scalar::Integer(8)),
            ("0o10", Scalar::Integer(8)),
            ("0777", Scalar::Integer(511)),
            ("08", Scalar::Float(8.0)),
            ("0o8", Scalar::Text("0o8")),
            ("0x10", Scalar::Integer(16)),
            ("-0x10", Scalar::Integer(-16)),
            ("0b11", Scalar::Integer(3)),
            ("0x", Scalar::Text("0x")),
            ("1_000", Scalar::Integer(1000)),
            ("1__0", Scalar::Integer(10)),
            ("_1", Scalar::Text("_1")),
            ("1.9", Scalar::Float(1.9)),
            ("1.e2", Scalar::Float(100.0)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("-.5", Scalar::Float(-0.5)),
            (".", Scalar::Text(".")),
            ("-", Scalar::Text("-")),
            ("1:30", Scalar::Text("1:30")),
            ("2001-01-01", Scalar::Text("2001-01-01")),
            ("1e400", Scalar::Text("1e400")),
            ("9223372036854775808", Scalar::Integer(9_223_372_036_854_775_808)),
            ("18446744073709551616", Scalar::Float(18_446_744_073_709_551_616.0)),
            (".inf", Scalar::Float(f64::INFINITY)),
            ("-.INF", Scalar::Float(f64::NEG_INFINITY)),
            ("inf", Scalar::Text("inf")),
            ("yes", Scalar::Text("yes")),
            ("True", Scalar::Boolean(true)),
            ("~", Scalar::Null),
            ("", Scalar::Null),
        ] {
            assert_eq!(resolve(text, true, Tag::None, Booleans::Two), expected, "{text}");
        }
    }

    #[test]
    fn the_older_rules_know_more_booleans() {
        for (text, expected) in [("yes", true), ("On", true), ("y", true), ("off", false), ("N", false)] {
            assert_eq!(resolve(text, true, Tag::None, Booleans::Many), Scalar::Boolean(expected), "{text}");
        }
    }

    #[test]
    fn quotes_and_tags_decide_before_looks() {
        let meaning = |text, plain, tag| resolve(text, plain, tag, Booleans::Many);
        assert_eq!(meaning("5", false, Tag::None), Scalar::Text("5"));
        assert_eq!(meaning("5", true, Tag::Text), Scalar::Text("5"));
        assert_eq!(meaning("5", true, Tag::Other), Scalar::Text("5"));
        assert_eq!(meaning("5", false, Tag::Integer), Scalar::Integer(5));
        assert_eq!(meaning("5", true, Tag::Float), Scalar::Float(5.0));
        assert_eq!(meaning("5.5", true, Tag::Integer), Scalar::Text("5.5"));
        assert_eq!(meaning("yes", false, Tag::Boolean), Scalar::Boolean(true));
        assert_eq!(meaning("", false, Tag::Null), Scalar::Null);
    }

    proptest::proptest! {
        #[test]
        fn any_text_means_something(text in "[-+0-9a-fA-FoxXbB_.eE~]{0,24}") {
            for booleans in [Booleans::Two, Booleans::Many] {
                let _ = resolve(&text, true, Tag::None, booleans);
            }
        }
    }
}
