//! JSON as Python's `json.loads` reads it: numbers keep their kind and size, objects keep their order.
//!
//! The engine parses request bodies and tool arguments with Python. A general parser would print `1e5`, `-0` or
//! a 30-digit integer differently afterwards, and every token after it would differ.

mod parse;

use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::Value;

use crate::template::BigInt;

pub use parse::{MAX_VALUES, ParseError, parse, parse_fields, parse_within};

/// An object: keys in the order they came; of duplicate keys the last value stands in the first one's place.
pub type Object = IndexMap<Arc<str>, Json>;

/// A map of the template engine, in order.
pub type ValueMap = IndexMap<Value, Value>;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer that a machine word holds.
    Int(i64),
    /// Any other integer, as canonical digits with an optional minus sign.
    BigInt(Arc<str>),
    /// A number with a fraction or an exponent; also `NaN` and the infinities, which Python reads and writes.
    Float(f64),
    /// A string.
    Text(Arc<str>),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Map(Object),
}

impl Json {
    /// A string value.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The string, for a string.
    pub fn as_text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The object, for an object.
    pub fn as_map(&self) -> Option<&Object> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list, for a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// The template engine's value. Strings are shared, not copied.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::from(()),
            Self::Bool(flag) => Value::from(*flag),
            Self::Int(number) => Value::from(*number),
            Self::BigInt(digits) => big_integer(digits),
            Self::Float(number) => Value::from(*number),
            Self::Text(text) => Value::from(Arc::clone(text)),
            Self::List(list) => list.iter().map(Self::to_value).collect(),
            Self::Map(map) => object(map.iter().map(|(key, value)| (Arc::clone(key), value.to_value()))),
        }
    }
}

/// A map value from pairs, in their order.
pub fn object(pairs: impl IntoIterator<Item = (Arc<str>, Value)>) -> Value {
    let map: ValueMap = pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect();
    Value::from(map)
}

/// The smallest exact value for digits that are more than a machine word.
fn big_integer(digits: &Arc<str>) -> Value {
    match digits.parse::<i128>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from_object(BigInt::new(Arc::clone(digits))),
    }
}
