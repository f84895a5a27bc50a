//! The parts of `tokenizer.json` and `tokenizer_config.json` that decide how a text may be cut.

use serde::Deserialize;
use serde_json::Value;

/// An added token with its matching rules.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "Entry")]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// Matches whole words only.
    pub single_word: bool,
    /// Swallows white space before it.
    pub lstrip: bool,
    /// Swallows white space after it.
    pub rstrip: bool,
    /// Is looked for in the normalised text.
    pub normalized: bool,
    /// Is a control token.
    pub special: bool,
}

/// An added token as files have it.
#[derive(Deserialize)]
struct Entry {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

impl From<Entry> for AddedToken {
    fn from(entry: Entry) -> Self {
        let Entry { content, single_word, lstrip, rstrip, normalized, special } = entry;
        Self { content, single_word, lstrip, rstrip, normalized: normalized.unwrap_or(!special), special }
    }
}

impl AddedToken {
    /// A token of which nothing but the text is said.
    pub fn plain(content: &str, special: bool) -> Self {
        Self {
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: !special,
            special,
        }
    }
}

/// What is read of `tokenizer.json`; the vocabulary is skipped.
#[derive(Debug, Default, Deserialize)]
pub struct Outline {
    /// Added tokens.
    #[serde(default)]
    pub added_tokens: Vec<AddedToken>,
    /// The normaliser's settings.
    #[serde(default)]
    pub normalizer: Value,
    /// The pre-tokenizer's settings.
    #[serde(default)]
    pub pre_tokenizer: Value,
    /// The model's settings.
    #[serde(default)]
    pub model: ModelOutline,
}

/// What is read of the model.
#[derive(Debug, Default, Deserialize)]
pub struct ModelOutline {
    /// Random merging: no two encodings need agree.
    #[serde(default)]
    pub dropout: Option<f64>,
}

impl Outline {
    /// Whether the ids of a piece depend on nothing but its text, so that a text may be cut at an added token.
    ///
    /// Only pre-tokenizers known to work on each piece alone qualify: one that puts a space before the first piece
    /// of a text would put it before every piece.
    pub fn pieces_are_independent(&self) -> bool {
        self.model.dropout.is_none_or(|dropout| dropout == 0.0)
            && !self.added_tokens.iter().any(|token| token.single_word)
            && works_on_pieces(&self.pre_tokenizer)
    }
}

fn works_on_pieces(pre_tokenizer: &Value) -> bool {
    let Some(kind) = pre_tokenizer.get("type").and_then(Value::as_str) else {
        return pre_tokenizer.is_null();
    };
    match kind {
        "Sequence" => pre_tokenizer
            .get("pretokenizers")
            .and_then(Value::as_array)
            .is_some_and(|steps| steps.iter().all(works_on_pieces)),
        "ByteLevel" => pre_tokenizer.get("add_prefix_space") == Some(&Value::Bool(false)),
        "Split" | "Digits" | "Punctuation" | "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer" => true,
        "Metaspace" => pre_tokenizer.get("prepend_scheme").and_then(Value::as_str) == Some("never"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_space_forbids_cutting() {
        let outline = |pre_tokenizer: &str| Outline {
            pre_tokenizer: serde_json::from_str(pre_tokenizer).unwrap(),
            ..Outline::default()
        };
        for (pre_tokenizer, independent) in [
            ("null", true),
            (r#"{"type":"ByteLevel","add_prefix_space":false}"#, true),
            (r#"{"type":"ByteLevel","add_prefix_space":true}"#, false),
            (r#"{"type":"Metaspace","prepend_scheme":"first"}"#, false),
            (r#"{"type":"Metaspace","prepend_scheme":"never"}"#, true),
            (r#"{"type":"Metaspace","add_prefix_space":true}"#, false),
            (r#"{"type":"Sequence","pretokenizers":[{"type":"Split"},{"type":"Digits"}]}"#, true),
            (r#"{"type":"Sequence","pretokenizers":[{"type":"Split"},{"type":"UnicodeScripts"}]}"#, false),
        ] {
            assert_eq!(outline(pre_tokenizer).pieces_are_independent(), independent, "{pre_tokenizer}");
        }
        let dropout = Outline { model: ModelOutline { dropout: Some(0.1) }, ..Outline::default() };
        assert!(!dropout.pieces_are_independent());
    }

    #[test]
    fn a_token_that_says_nothing_is_found_as_transformers_does() {
        let token = |json: &str| serde_json::from_str::<AddedToken>(json).unwrap();
        assert!(token(r#"{"content":"a"}"#).normalized);
        assert!(!token(r#"{"content":"a","special":true}"#).normalized);
        assert!(token(r#"{"content":"a","special":true,"normalized":true}"#).normalized);
        assert_eq!(token(r#"{"content":"a","special":true}"#), AddedToken::plain("a", true));
    }
}
