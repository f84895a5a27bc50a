//! Regular expressions as users of Go write them: RE2 syntax, run by Rust's engine.
//!
//! Both engines take linear time and know the same constructs, but they do not read every text alike. `/v1/{id}` is
//! plain text to RE2 and an error here; `\d` means ten digits there and all of Unicode's here; `[[]`, `a&&b` in a
//! class and `\<` differ too. So an expression is translated first, and errors are told in RE2's words.

use std::sync::LazyLock;

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use thiserror::Error;

use memo::{BYTES_OF_WEIGHT, MOST_WEIGHT, Memo, Outcome};

mod class;
mod group;
mod memo;
mod problem;
mod translate;

/// How much memory a program may take to be remembered with this weight, in the order in which it is tried.
const WEIGHTS: [usize; 2] = [1, 10];

/// The weight of a larger program. The largest there are take 10 MiB.
const LARGEST_WEIGHT: usize = 160;

/// What became of the expressions that were compiled lately, by anyone in this process.
static MEMO: LazyLock<Mutex<Memo>> = LazyLock::new(|| Mutex::new(Memo::new(MOST_WEIGHT)));

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
/// What became of some thousand expressions is remembered: a router reads all of its objects again with every change of
/// one.
///
/// # Errors
/// What is wrong with it. An expression whose program would be too large (10 MiB) is refused too.
pub fn compile(pattern: &str) -> Result<Regex, RegexError> {
    if let Some(known) = MEMO.lock().recall(pattern) {
        return known;
    }
    let (outcome, weight) = compile_anew(pattern);
    MEMO.lock().remember(pattern, outcome, weight)
}

/// What becomes of an expression, and how much its program weighs.
fn compile_anew(pattern: &str) -> (Outcome, usize) {
    let translated = match translate::translate(pattern) {
        Ok(translated) => translated,
        Err(problem) => return (Err(problem), 1),
    };
    // A program does not tell its size, only that it is larger than it may be.
    for weight in WEIGHTS {
        match RegexBuilder::new(&translated).size_limit(weight * BYTES_OF_WEIGHT).build() {
            Ok(regex) => return (Ok(regex), weight),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return (Err(problem::explain(pattern, &translated)), 1),
        }
    }
    match Regex::new(&translated) {
        Ok(regex) => (Ok(regex), LARGEST_WEIGHT),
        Err(_) => (Err(problem::explain(pattern, &translated)), 1),
    }
}

#[cfg(test)]
mod tests;
