//! How kthena reads its router document: the rules of its YAML libraries, matched row by row.
//!
//! The document itself follows go-yaml 3 (keys are case-sensitive, a key said twice is fatal, `yes` is a text);
//! the arguments of a plugin follow YAML 1.1 turned into JSON (keys in any case, the last of two wins, `yes` is
//! true). Where kthena then does something harmful in silence, [`crate::document`] says so in the log.

mod args;
mod document;
mod go_flags;

#[cfg(test)]
mod tests;

pub(crate) use args::{ArgFields, ArgMap, read_args};
pub(crate) use document::read_document;
pub use go_flags::go_flags;

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
