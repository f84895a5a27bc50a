//! The arguments of a plugin: YAML 1.1, turned into JSON, decoded into a structure whose keys match in any case.

use std::collections::BTreeMap;

use crate::problems::{Findings, Place};
use crate::suggest;
use crate::yaml::{Booleans, Scalar, Value};

#[cfg(test)]
mod tests;

/// Values in the arguments of one plugin, aliases counted as often as they are used.
const MOST_VALUES: usize = 10_000;

/// Levels of nesting in the arguments of one plugin.
const MOST_LEVELS: usize = 32;

/// A value of the arguments, with its position.
#[derive(Clone, Debug)]
pub(crate) struct ArgValue {
    position: (usize, usize),
    content: ArgContent,
}

/// What the value is.
#[derive(Clone, Debug)]
pub(crate) enum ArgContent {
    Null,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<ArgValue>),
    Map(ArgMap),
}

/// A mapping: JSON sorts its keys, so the later one in byte order wins where two match the same field.
pub(crate) type ArgMap = BTreeMap<String, ArgValue>;

/// Reads the arguments of one plugin. `text_fields` are the paths (lower case) whose target is a text: a number that
/// is not finite is allowed there and nowhere else.
///
/// # Errors
/// Why none of the arguments can be read.
pub(crate) fn read_args(value: Value<'_>, text_fields: &[&str]) -> Result<ArgMap, String> {
    if value.refers_outside() {
        return Err("an alias refers to an anchor outside args".to_owned());
    }
    let mut budget = MOST_VALUES;
    let read = convert(value, MOST_LEVELS, &mut budget)?;
    check_finite(&read, "", text_fields)?;
    match read.content {
        ArgContent::Map(map) => Ok(map),
        ArgContent::Null => Ok(ArgMap::new()),
        _ => Err(format!("args is {}, not a mapping", value.kind())),
    }
}

fn convert(value: Value<'_>, levels: usize, budget: &mut usize) -> Result<ArgValue, String> {
    if levels == 0 || *budget == 0 {
        return Err("args is nested too deeply or too large".to_owned());
    }
    *budget -= 1;
    let content = if let Some(items) = value.items() {
        let items: Result<_, _> = items.into_iter().map(|item| convert(item, levels - 1, budget)).collect();
        ArgContent::List(items?)
    } else if value.entries().is_some() {
        let mut map = ArgMap::new();
        convert_map(value, levels, budget, &mut map)?;
        ArgContent::Map(map)
    } else {
        match value.scalar(Booleans::Many) {
            Some(Scalar::Boolean(boolean)) => ArgContent::Boolean(boolean),
            Some(Scalar::Integer(integer)) => ArgContent::Integer(integer),
            Some(Scalar::Float(float)) => ArgContent::Float(float),
            Some(Scalar::Text(text)) => ArgContent::Text(text.to_owned()),
            Some(Scalar::Null) | None => ArgContent::Null,
        }
    };
    Ok(ArgValue { position: value.position(), content })
}

/// Keys in the order of the text, merged mappings where they stand: the last of two equal keys wins.
fn convert_map(value: Value<'_>, levels: usize, budget: &mut usize, map: &mut ArgMap) -> Result<(), String> {
    for (key, value) in value.entries().unwrap_or_default() {
        if key.is_merge_key() {
            for source in value.items().unwrap_or_else(|| vec![value]).into_iter().rev() {
                if source.entries().is_none() || levels <= 1 || *budget == 0 {
                    return Err("a merge (<<) needs a mapping, or a list of mappings".to_owned());
                }
                *budget -= 1;
                convert_map(source, levels - 1, budget, map)?;
            }
            continue;
        }
        let name = match key.scalar(Booleans::Many) {
            Some(Scalar::Text(text)) => text.to_owned(),
            Some(Scalar::Integer(integer)) => integer.to_string(),
            Some(Scalar::Boolean(boolean)) => boolean.to_string(),
            Some(Scalar::Float(float)) => float_text(float),
            Some(Scalar::Null) | None => return Err(format!("a key is {}", key.kind())),
        };
        map.insert(name, convert(value, levels - 1, budget)?);
    }
    Ok(())
}

/// JSON has no such number, so one of them spoils the whole mapping.
fn check_finite(value: &ArgValue, path: &str, text_fields: &[&str]) -> Result<(), String> {
    match &value.content {
        ArgContent::Float(float) if !float.is_finite() && !text_fields.contains(&path) => {
            Err(format!("{} at line {} is no finite number", float_text(*float), value.position.0))
        }
        ArgContent::List(items) => {
            items.iter().try_for_each(|item| check_finite(item, &format!("{path}[]"), text_fields))
        }
        ArgContent::Map(map) => map.iter().try_for_each(|(key, value)| {
            let key = fold(key);
            let path = if path.is_empty() { key } else { format!("{path}.{key}") };
            check_finite(value, &path, text_fields)
        }),
        _ => Ok(()),
    }
}

/// A float as Go's `%g` with the fewest digits writes it.
fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        float.to_string()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

/// Keys are compared without case; Go folds these two letters of Unicode onto ASCII as well.
fn fold(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            '\u{212a}' => 'k',
            '\u{17f}' => 's',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

/// Reads typed fields out of a mapping of arguments. A field that does not fit is noted and left out; its siblings
/// are still read.
#[derive(Debug)]
pub(crate) struct ArgFields<'a> {
    place: Place,
    map: Vec<(&'a str, &'a ArgValue)>,
    asked: Vec<&'static str>,
    unknown: Vec<(Place, String)>,
    /// What did not fit.
    errors: Vec<(Place, String)>,
}

impl<'a> ArgFields<'a> {
    /// The fields of `map`, said at `place`.
    pub(crate) fn of(map: &'a ArgMap, place: &Place) -> Self {
        let map = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
        Self { place: place.clone(), map, asked: Vec::new(), unknown: Vec::new(), errors: Vec::new() }
    }

    /// Every value that matches the field and is not null, in byte order of its spelling.
    fn values(&mut self, name: &'static str) -> Vec<(Place, &'a ArgValue)> {
        self.asked.push(name);
        let folded = fold(name);
        self.map
            .iter()
            .filter(|(key, value)| fold(key) == folded && !matches!(value.content, ArgContent::Null))
            .map(|(key, value)| {
                let (line, column) = value.position;
                (self.place.key(key).at(line, column), *value)
            })
            .collect()
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        convert: impl Fn(&ArgContent) -> Option<T>,
    ) -> Option<T> {
        let mut found = None;
        for (place, value) in self.values(name) {
            match convert(&value.content) {
                Some(value) => found = Some(value),
                None => self.errors.push((place, format!("{} is no {wanted}", describe(&value.content)))),
            }
        }
        found
    }

    /// A 64-bit integer; a float with nothing behind the point is one.
    pub(crate) fn integer(&mut self, name: &'static str) -> Option<i64> {
        /// JSON writes larger floats with an exponent, which no integer field takes.
        const LARGEST: f64 = 9.0e18;
        self.read(name, "whole number", |content| match content {
            ArgContent::Integer(integer) => i64::try_from(*integer).ok(),
            ArgContent::Float(float) if float.fract() == 0.0 && float.abs() <= LARGEST => Some(*float as i64),
            _ => None,
        })
    }

    /// A float.
    pub(crate) fn float(&mut self, name: &'static str) -> Option<f64> {
        self.read(name, "number", |content| match content {
            ArgContent::Integer(integer) => Some(*integer as f64),
            ArgContent::Float(float) => Some(*float),
            _ => None,
        })
    }

    /// A boolean; a quoted one is a text and does not fit.
    pub(crate) fn boolean(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, "boolean", |content| match content {
            ArgContent::Boolean(boolean) => Some(*boolean),
            _ => None,
        })
    }

    /// A text; a number or a boolean becomes one.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "text", |content| match content {
            ArgContent::Text(text) => Some(text.clone()),
            ArgContent::Integer(integer) => Some(integer.to_string()),
            ArgContent::Float(float) => Some(float_text(*float)),
            ArgContent::Boolean(boolean) => Some(boolean.to_string()),
            _ => None,
        })
    }

    /// The fields below a key, every spelling of it together.
    pub(crate) fn map(&mut self, name: &'static str) -> Option<ArgFields<'a>> {
        let mut below: Option<ArgFields<'a>> = None;
        for (place, value) in self.values(name) {
            match &value.content {
                ArgContent::Map(map) => {
                    let next = ArgFields::of(map, &place);
                    match &mut below {
                        Some(below) => below.map.extend(next.map),
                        None => below = Some(next),
                    }
                }
                other => self.errors.push((place, format!("{} is no mapping", describe(other)))),
            }
        }
        below
    }

    /// Texts of a list, with their places. The item's place is the list's: lists of words are short.
    pub(crate) fn texts(&mut self, name: &'static str) -> Option<Vec<(Place, String)>> {
        let mut found = None;
        for (place, value) in self.values(name) {
            let ArgContent::List(items) = &value.content else {
                self.errors.push((place, format!("{} is no list", describe(&value.content))));
                continue;
            };
            let mut texts = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let (line, column) = item.position;
                let place = place.item(index).at(line, column);
                match &item.content {
                    ArgContent::Text(text) => texts.push((place, text.clone())),
                    other => self.errors.push((place, format!("{} is no text", describe(other)))),
                }
            }
            found = Some(texts);
        }
        found
    }

    /// Every key of the mapping with its text, for mappings whose keys are names; what is no text is an error.
    pub(crate) fn all_texts(&mut self) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (key, value) in std::mem::take(&mut self.map) {
            let (line, column) = value.position;
            let place = self.place.key(key).at(line, column);
            match &value.content {
                ArgContent::Text(text) => texts.push((key.to_owned(), text.clone())),
                other => self.errors.push((place, format!("{} is no text", describe(other)))),
            }
        }
        texts
    }

    /// What did not fit so far.
    pub(crate) fn take_errors(&mut self) -> Vec<(Place, String)> {
        std::mem::take(&mut self.errors)
    }

    /// Where the mapping is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Takes over what was found in a mapping below: errors, and keys that no field matched.
    pub(crate) fn adopt(&mut self, below: Self) {
        self.unknown.extend(below.unknown_keys());
        self.unknown.extend(below.unknown);
        self.errors.extend(below.errors);
    }

    fn unknown_keys(&self) -> Vec<(Place, String)> {
        let known: Vec<String> = self.asked.iter().map(|name| fold(name)).collect();
        let mut unknown = Vec::new();
        for (key, value) in self.map.iter().filter(|(key, _)| !known.contains(&fold(key))) {
            let (line, column) = value.position;
            let hint = match suggest::closest(key, self.asked.iter().copied()) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None if self.asked.is_empty() => "the plugin has no arguments".to_owned(),
                None => format!("known arguments: {}", self.asked.join(", ")),
            };
            let message = format!("the argument is unknown and has no effect; {hint}");
            unknown.push((self.place.key(key).at(line, column), message));
        }
        unknown
    }

    /// Warns of the keys that no field matches, and hands over what did not fit.
    pub(crate) fn finish(self, findings: &mut Findings) -> Vec<(Place, String)> {
        for (place, message) in self.unknown_keys().iter().chain(&self.unknown) {
            findings.warn(place, message.clone());
        }
        self.errors
    }
}

fn describe(content: &ArgContent) -> String {
    match content {
        ArgContent::Null => "null".to_owned(),
        ArgContent::Boolean(boolean) => boolean.to_string(),
        ArgContent::Integer(integer) => integer.to_string(),
        ArgContent::Float(float) => float_text(*float),
        ArgContent::Text(text) => format!("the text {text:?}"),
        ArgContent::List(_) => "a list".to_owned(),
        ArgContent::Map(_) => "a mapping".to_owned(),
    }
}
