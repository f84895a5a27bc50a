//! What a model's own code does to a text before it is encoded.

use std::borrow::Cow;

use kvasir_core::TokenizeError;

use super::tiktoken::ToolOrder;
use super::unicode;
use crate::request::ChatCall;
use crate::template::is_space;

/// The rules of one tokenizer; by default nothing happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextRules {
    /// Whether a text is composed (NFC).
    pub composes: bool,
    /// Most letters of a text, and of a run of blanks or of other letters.
    pub limits: Option<(usize, usize)>,
    /// What becomes of tools.
    pub tools: ToolOrder,
    /// Whether the engine writes chats by code of its own, whatever the template says.
    pub writes_chats: bool,
}

impl TextRules {
    /// Whether nothing happens.
    pub fn is_none(&self) -> bool {
        !self.composes && self.limits.is_none() && self.tools == ToolOrder::AsGiven && !self.writes_chats
    }

    /// The text that is encoded.
    ///
    /// # Errors
    /// [`TokenizeError::Inexact`] where we do not follow the model's code.
    pub fn prepare<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, TokenizeError> {
        if let Some((whole, run)) = self.limits
            && text.len() > run
            && (text.chars().count() > whole || longest_run(text) > run)
        {
            return Err(TokenizeError::Inexact("a text that the model's code cuts"));
        }
        if self.composes { unicode::compose(text) } else { Ok(Cow::Borrowed(text)) }
    }

    /// A conversation as the template gets it.
    ///
    /// # Errors
    /// [`TokenizeError::Inexact`] where it depends on the revision of the model's code, or on the engine's.
    pub fn arrange(&self, call: ChatCall) -> Result<ChatCall, TokenizeError> {
        if self.writes_chats {
            return Err(TokenizeError::Inexact("chats that the engine writes by code of its own"));
        }
        match self.tools {
            ToolOrder::AsGiven => Ok(call),
            ToolOrder::Sorted => Ok(call.with_sorted_tools()),
            ToolOrder::Unknown if call.has_tools() => {
                Err(TokenizeError::Inexact("tools whose order only the model's code tells"))
            }
            ToolOrder::Unknown => Ok(call),
        }
    }
}

/// Letters of the longest run of blanks, or of other letters.
fn longest_run(text: &str) -> usize {
    let (mut longest, mut length, mut blank) = (0, 0, false);
    for letter in text.chars() {
        let is_blank = is_space(letter);
        length = if is_blank == blank { length + 1 } else { 1 };
        blank = is_blank;
        longest = longest.max(length);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_would_be_cut_are_told() {
        let rules = TextRules { limits: Some((20, 5)), ..TextRules::default() };
        for (text, fine) in [
            ("aaaaa bb     cc", true),
            ("aaaaaa", false),
            ("a      b", false),
            ("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", true),
            ("a b c d e f g h i j k", false),
            ("", true),
        ] {
            assert_eq!(rules.prepare(text).is_ok(), fine, "{text:?}");
        }
        assert_eq!(longest_run("abc  defg "), 4);
    }
}
