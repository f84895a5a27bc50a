//! What is wrong with one field, in the words of Kubernetes.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path of the field, such as `spec.rules[0].targetModels`.
    pub field: String,
    /// Which kind of wrong.
    pub kind: FieldErrorKind,
    /// A sentence about it.
    pub detail: String,
}

/// The kinds of wrong that Kubernetes has words for.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorKind {
    /// It must be there.
    Required,
    /// It is there, and is this.
    Invalid(Value),
    /// It is there, and is none of what it may be.
    Unsupported(String),
}

impl FieldError {
    /// A field that must be there.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), kind: FieldErrorKind::Required, detail: detail.to_owned() }
    }

    /// A field whose value is wrong.
    pub fn invalid(field: impl Into<String>, value: impl Serialize, detail: impl Into<String>) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        Self { field: field.into(), kind: FieldErrorKind::Invalid(value), detail: detail.into() }
    }

    /// A field whose value is not one of a few.
    pub fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self { field: field.into(), kind: FieldErrorKind::Unsupported(value.to_owned()), detail }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, kind, detail } = self;
        match kind {
            FieldErrorKind::Required => write!(f, "{field}: Required value: {detail}"),
            FieldErrorKind::Invalid(value) => write!(f, "{field}: Invalid value: {value}: {detail}"),
            FieldErrorKind::Unsupported(value) => {
                write!(f, "{field}: Unsupported value: {}: {detail}", Value::from(value.as_str()))
            }
        }
    }
}
