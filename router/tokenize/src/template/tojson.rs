//! The `tojson` filter: `json.dumps` as transformers calls it.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::python::{BigInt, as_float, write_float};

/// How to print.
struct Style {
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub fn tojson(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let style = Style::from_arguments(&args, &kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    // The engine charges for the value that is returned; the walk that made it costs about as much again.
    state.consume_fuel(out.len() as u64 / 64)?;
    Ok(Value::from(out))
}

/// `json.dumps(value)`, for values that came from JSON.
pub fn to_json(value: &Value) -> String {
    dump(value, true)
}

/// `json.dumps(value, ensure_ascii=False)`, for values that came from JSON.
pub fn to_json_text(value: &Value) -> String {
    dump(value, false)
}

fn dump(value: &Value, ascii: bool) -> String {
    let style = Style {
        ascii,
        indent: None,
        item_separator: ", ".to_owned(),
        key_separator: ": ".to_owned(),
        sort_keys: false,
    };
    let mut out = String::new();
    // Only values that are not JSON can fail.
    if style.write(&mut out, value, 0).is_err() {
        out.clear();
    }
    out
}

impl Style {
    fn from_arguments(args: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        let argument = |position: usize, name: &str| -> Result<Option<Value>, Error> {
            let named = kwargs.get::<Option<Value>>(name)?;
            let value = args.get(position).cloned().or(named);
            Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
        };
        let indent = match argument(1, "indent")? {
            None => None,
            Some(value) => Some(match value.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(usize::try_from(i64::try_from(value)?.clamp(0, 64)).unwrap_or(0)),
            }),
        };
        let default_item = if indent.is_some() { "," } else { ", " };
        let (item_separator, key_separator) = match argument(2, "separators")? {
            None => (default_item.to_owned(), ": ".to_owned()),
            Some(pair) => {
                let parts: Vec<String> = pair.try_iter()?.map(|part| part.to_string()).collect();
                match <[String; 2]>::try_from(parts) {
                    Ok([item, key]) => (item, key),
                    Err(_) => return Err(invalid("separators must be two strings")),
                }
            }
        };
        Ok(Self {
            ascii: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
        })
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > 400 {
            return Err(invalid("nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(out, value),
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.write_list(out, value, depth)?,
            ValueKind::Map => self.write_map(out, value, depth)?,
            _ => match value.downcast_object_ref::<BigInt>() {
                Some(number) => out.push_str(number.digits()),
                None => return Err(invalid("not JSON serializable")),
            },
        }
        Ok(())
    }

    fn write_list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            if any {
                out.push_str(&self.item_separator);
            }
            any = true;
            self.new_line(out, depth + 1);
            self.write(out, &item, depth + 1)?;
        }
        if any {
            self.new_line(out, depth);
        }
        out.push(']');
        Ok(())
    }

    fn write_map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (position, key) in keys.iter().enumerate() {
            if position > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(out, depth + 1);
            self.write_key(out, key)?;
            out.push_str(&self.key_separator);
            self.write(out, &value.get_item(key)?, depth + 1)?;
        }
        if !keys.is_empty() {
            self.new_line(out, depth);
        }
        out.push('}');
        Ok(())
    }

    fn write_key(&self, out: &mut String, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.write_string(out, key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                out.push('"');
                self.write(out, key, 0)?;
                out.push('"');
            }
            _ => return Err(invalid("keys must be strings or numbers")),
        }
        Ok(())
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_string(&self, out: &mut String, text: &str) {
        out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                letter if (letter as u32) < 0x20 => {
                    let _ = write!(out, "\\u{:04x}", letter as u32);
                }
                letter if self.ascii && !letter.is_ascii() => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                letter => out.push(letter),
            }
        }
        out.push('"');
    }
}

fn write_number(out: &mut String, value: &Value) {
    match as_float(value) {
        Some(number) if number.is_nan() => out.push_str("NaN"),
        Some(number) if number.is_infinite() => {
            out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Some(number) => write_float(out, number),
        None => {
            let _ = write!(out, "{value}");
        }
    }
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}
