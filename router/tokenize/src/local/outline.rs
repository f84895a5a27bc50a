//! The parts of `tokenizer.json` and `tokenizer_config.json` that decide how a text may be cut.

use serde::Deserialize;
use serde_json::Value;

/// An added token with its matching rules.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// Matches whole words only.
    #[serde(default)]
    pub single_word: bool,
    /// Swallows white space before it.
    #[serde(default)]
    pub lstrip: bool,
    /// Swallows white space after it.
    #[serde(default)]
    pub rstrip: bool,
    /// Is looked for in the normalised text.
    #[serde(default)]
    pub normalized: bool,
    /// Is a control token.
    #[serde(default)]
    pub special: bool,
}

/// What is read of `tokenizer.json`; the vocabulary is skipped.
#[derive(Debug, Default, Deserialize)]
pub struct Outline {
    /// Added tokens.
    #[serde(default)]
    pub added_tokens: Vec<AddedToken>,
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

/// The added tokens that only `tokenizer_config.json` knows, in the order transformers adds them: those of
/// `added_tokens_decoder` by id, then the named special tokens.
pub fn configured_tokens(config: &Value, known: &[AddedToken]) -> Vec<AddedToken> {
    let mut listed: Vec<(u64, AddedToken)> = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(id, token)| {
            Some((id.parse().ok()?, serde_json::from_value::<AddedToken>(token.clone()).ok()?))
        })
        .collect();
    listed.sort_by_key(|(id, _)| *id);
    let named = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
    let named = named.iter().filter_map(|name| config.get(name)).filter_map(|value| match value {
        Value::String(content) => Some(AddedToken {
            content: content.clone(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }),
        Value::Object(_) => serde_json::from_value(value.clone())
            .ok()
            .map(|token: AddedToken| AddedToken { special: true, ..token }),
        _ => None,
    });
    let mut missing: Vec<AddedToken> = Vec::new();
    for token in listed.into_iter().map(|(_, token)| token).chain(named) {
        let seen = |list: &[AddedToken]| list.iter().any(|other| other.content == token.content);
        if !token.content.is_empty() && !seen(known) && !seen(&missing) {
            missing.push(token);
        }
    }
    missing
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
    fn tokens_of_the_config_are_added_in_order() {
        let config = serde_json::json!({
            "added_tokens_decoder": {"12": {"content": "b"}, "3": {"content": "a"}, "4": {"content": "known"}},
            "bos_token": "<s>", "eos_token": {"content": "a", "lstrip": true}, "pad_token": null,
        });
        let known = [serde_json::from_value::<AddedToken>(serde_json::json!({"content": "known"})).unwrap()];
        let found = configured_tokens(&config, &known);
        let contents: Vec<_> = found.iter().map(|token| (&*token.content, token.special)).collect();
        assert_eq!(contents, [("a", false), ("b", false), ("<s>", true)]);
    }
}
