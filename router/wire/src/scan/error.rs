//! Why a request body cannot be used, in words that name the fix.

use crate::json::{JsonError, MAX_DEPTH};

use super::{MAX_MODEL_BYTES, MAX_REPEATS};

/// Why a body was refused. The text goes to the client; it never holds a part of the body.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScanError {
    /// Nothing but white space.
    #[error("the body is empty; send a JSON object such as {{\"model\": \"NAME\"}}")]
    Empty,
    /// It starts with U+FEFF.
    #[error("the body starts with a byte order mark; send UTF-8 without one")]
    ByteOrderMark,
    /// A string holds other bytes than UTF-8.
    #[error("the body is not valid UTF-8 at byte {at}; send the JSON as UTF-8")]
    NotUtf8 {
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// JSON, but no object.
    #[error("the body must be a JSON object, not {found}; write {{\"model\": \"NAME\", ...}}")]
    NotObject {
        /// What it is.
        found: &'static str,
    },
    /// The object is not closed.
    #[error("the JSON ends too early; send the whole object")]
    Truncated,
    /// No JSON.
    #[error("the JSON is broken at byte {at}: expected {expected}")]
    Syntax {
        /// Offset of the first wrong byte.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// Too many levels.
    #[error("the JSON is nested deeper than {MAX_DEPTH} levels; send a flatter one")]
    TooDeep,
    /// More than white space follows.
    #[error("the JSON object ends before byte {at}, but more follows; send one object only")]
    Trailing {
        /// Offset of what follows.
        at: usize,
    },
    /// A key that we rewrite is there too often.
    #[error("`{field}` appears more than {MAX_REPEATS} times; name it once")]
    Repeated {
        /// The key.
        field: &'static str,
    },
    /// No `model`.
    #[error("`model` is missing; add \"model\": \"NAME\"")]
    ModelMissing,
    /// `model` is something else.
    #[error("`model` must be a string, not {found}; write \"model\": \"NAME\"")]
    ModelNotString {
        /// What it is.
        found: &'static str,
    },
    /// `model` is empty or white space.
    #[error("`model` is blank; write the model's name")]
    ModelBlank,
    /// `model` holds half of a surrogate pair, or a form field that is no UTF-8.
    #[error("`model` is not valid Unicode text; write the model's name in UTF-8")]
    ModelNotText,
    /// `model` is longer than any name.
    #[error("`model` is longer than {MAX_MODEL_BYTES} bytes; write the model's name")]
    ModelTooLong,
    /// A form without a usable boundary.
    #[error("the content type names no usable `boundary`; send multipart/form-data; boundary=...")]
    NoBoundary,
    /// A form that breaks the multipart rules.
    #[error("the form is broken: {expected} expected")]
    BrokenForm {
        /// What should be there.
        expected: &'static str,
    },
    /// A form with too many fields.
    #[error("the form has more than {limit} fields; send fewer")]
    TooManyFields {
        /// The limit.
        limit: usize,
    },
    /// A form without `model`.
    #[error("the form field `model` is missing; add it with the model's name")]
    FieldMissing,
}

impl From<JsonError> for ScanError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::End => Self::Truncated,
            JsonError::Syntax { at, expected } => Self::Syntax { at, expected },
            JsonError::Depth => Self::TooDeep,
            JsonError::Utf8 { at } => Self::NotUtf8 { at },
        }
    }
}

/// The rules for a model's name, wherever it stands: used as sent, never trimmed.
pub(crate) fn check_model(name: &str) -> Result<(), ScanError> {
    if name.len() > MAX_MODEL_BYTES {
        return Err(ScanError::ModelTooLong);
    }
    if name.trim().is_empty() {
        return Err(ScanError::ModelBlank);
    }
    Ok(())
}
