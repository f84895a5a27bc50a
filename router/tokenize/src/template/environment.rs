//! The template environment: the options, filters and functions that transformers gives to chat templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

use super::calendar::{self, WallClock};
use super::{FUEL, letters, methods, python, tojson};

/// Marks an error as raised by the template itself.
#[derive(Debug, thiserror::Error)]
#[error("raised by the template")]
struct Raised;

/// Whether the template called `raise_exception`.
pub fn is_raised(error: &Error) -> bool {
    has_source::<Raised>(error)
}

/// Whether an error of a type is behind another one.
pub fn has_source<E: std::error::Error + 'static>(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.is::<E>() {
            return true;
        }
        source = inner.source();
    }
    false
}

/// An empty environment that behaves as Jinja does in transformers.
pub fn python_like(clock: WallClock) -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(print);
    environment.set_unknown_method_callback(methods::call);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", tojson::tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("string", string);
    environment.add_filter("upper", |value: &Value| letters::upper(&string(value)?));
    environment.add_filter("lower", |value: &Value| letters::lower(&string(value)?));
    environment.add_filter("capitalize", |value: &Value| letters::capitalize(&string(value)?));
    environment.add_filter("title", |value: &Value| letters::title_words(&string(value)?));
    environment.add_filter("join", join);
    environment.add_function("raise_exception", |_message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised))
    });
    environment.add_function("strftime_now", move |pattern: &str| calendar::format(clock(), pattern));
    environment
}

/// `{{ value }}`
fn print(out: &mut Output<'_>, _state: &mut State, value: &Value) -> Result<(), Error> {
    let failed = |_| Error::new(ErrorKind::WriteFailure, "cannot write");
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()).map_err(failed),
        ValueKind::Invalid => Err(Error::new(ErrorKind::BadSerialization, "invalid value")),
        _ => {
            let mut text = String::new();
            python::write_str(&mut text, value)?;
            out.write_str(&text).map_err(failed)
        }
    }
}

/// `trim`: `str(value).strip(chars)`
fn trim(value: &Value, letters: Option<&str>) -> Result<String, Error> {
    let text = string(value)?;
    Ok(match letters {
        Some(letters) => text.trim_matches(|letter| letters.contains(letter)).to_owned(),
        None => python::trim(&text).to_owned(),
    })
}

/// `string`: `str(value)`
fn string(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    if !value.is_undefined() {
        python::write_str(&mut text, value)?;
    }
    Ok(text)
}

/// `join(value, d="", attribute=None)`: each item as `str` prints it.
fn join(
    state: &State,
    value: &Value,
    separator: Option<&str>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let named = |name: &str| kwargs.get::<Option<String>>(name);
    let separator = named("d")?.unwrap_or_else(|| separator.unwrap_or_default().to_owned());
    let attribute = named("attribute")?.or_else(|| attribute.map(str::to_owned));
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (position, item) in value.try_iter()?.enumerate() {
        if position > 0 {
            out.push_str(&separator);
        }
        let mut item = item;
        for name in attribute.iter().flat_map(|path| path.split('.')) {
            item = item.get_attr(name)?;
        }
        if !item.is_undefined() {
            python::write_str(&mut out, &item)?;
        }
        // The separator is repeated for every item: what grows is paid for before more of it does.
        state.consume_fuel((separator.len() / 64) as u64 + 1)?;
    }
    Ok(out)
}
