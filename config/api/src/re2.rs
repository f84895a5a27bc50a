//! Regular expressions as users of Go write them: RE2 syntax, run by Rust's engine.
//!
//! Both engines take linear time and know the same constructs, but they do not read every text alike. `/v1/{id}` is
//! plain text to RE2 and an error here; `\d` means ten digits there and all of Unicode's here; `[[]`, `a&&b` in a
//! class and `\<` differ too. So an expression is translated first, and errors are told in RE2's words.

use regex::Regex;
use thiserror::Error;

mod class;
mod group;
mod problem;
mod translate;

/// Why an expression cannot be used, as Go's users know it: "error parsing regexp: missing closing ]: `[`".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("error parsing regexp: {what}: `{at}`")]
pub struct RegexError {
    what: String,
    at: String,
}

impl RegexError {
    fn new(what: impl Into<String>, at: impl Into<String>) -> Self {
        Self { what: what.into(), at: at.into() }
    }
}

/// Compiles an expression. It is found anywhere in a text unless it says otherwise, as in Go.
///
/// # Errors
/// What is wrong with it. An expression whose program would be too large (10 MiB) is refused too.
pub fn compile(pattern: &str) -> Result<Regex, RegexError> {
    let translated = translate::translate(pattern)?;
    Regex::new(&translated).map_err(|_| problem::explain(pattern, &translated))
}

#[cfg(test)]
mod tests;
