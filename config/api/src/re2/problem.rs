//! What the engine found wrong, in RE2's words.

use regex_syntax::ast::ErrorKind;
use regex_syntax::ast::parse::Parser;

use super::RegexError;

/// Names what is wrong with an expression that was translated and that the engine refused.
pub(super) fn explain(pattern: &str, translated: &str) -> RegexError {
    let Err(error) = Parser::new().parse(translated) else {
        return RegexError::new("expression too large", pattern);
    };
    let span = error.span();
    let at = translated.get(span.start.offset..span.end.offset).unwrap_or_default();
    match error.kind() {
        ErrorKind::GroupUnclosed => RegexError::new("missing closing )", pattern),
        ErrorKind::GroupUnopened => RegexError::new("unexpected )", pattern),
        ErrorKind::RepetitionMissing => {
            let here = translated.get(span.start.offset..).unwrap_or_default();
            RegexError::new("missing argument to repetition operator", operator(here))
        }
        ErrorKind::NestLimitExceeded(_) => RegexError::new("expression nests too deeply", pattern),
        other => RegexError::new(other.to_string(), at),
    }
}

/// The operator that a text begins with: one character, or a count in braces.
fn operator(text: &str) -> &str {
    let length = match text.find('}') {
        Some(end) if text.starts_with('{') => end + 1,
        _ => text.chars().next().map_or(0, char::len_utf8),
    };
    text.get(..length).unwrap_or_default()
}
