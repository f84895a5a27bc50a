//! Tokens as the vocabulary writes them, for `return_token_strs`.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Largest id that is taken seriously; a table has a slot for each.
const MOST_IDS: usize = 4 << 20;

/// Names by id.
#[derive(Debug, Default)]
pub struct TokenNames(Vec<Option<Box<str>>>);

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: usize,
    content: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    vocab: Value,
}

impl TokenNames {
    /// Reads `tokenizer.json`, and the added tokens of `tokenizer_config.json`. Takes a good part of a second.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let text = std::fs::read(directory.join("tokenizer.json")).map_err(|error| error.to_string())?;
        let file: TokenizerFile = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        drop(text);
        let mut names = Self::default();
        match &file.model.vocab {
            Value::Object(vocabulary) => {
                for (name, id) in vocabulary {
                    names.set(id.as_u64().and_then(|id| usize::try_from(id).ok()), name);
                }
            }
            // Unigram: pairs of piece and score, the id is the place.
            Value::Array(pieces) => {
                for (id, piece) in pieces.iter().enumerate() {
                    names.set(Some(id), piece.get(0).and_then(Value::as_str).unwrap_or_default());
                }
            }
            _ => {}
        }
        let config = std::fs::read(directory.join("tokenizer_config.json")).unwrap_or_default();
        let config: Value = serde_json::from_slice(&config).unwrap_or_default();
        let decoder = config.get("added_tokens_decoder").and_then(Value::as_object);
        for (id, token) in decoder.into_iter().flatten() {
            if let Some(content) = token.get("content").and_then(Value::as_str) {
                names.set(id.parse().ok(), content);
            }
        }
        for token in &file.added_tokens {
            names.set(Some(token.id), &token.content);
        }
        Ok(names)
    }

    fn set(&mut self, id: Option<usize>, name: &str) {
        let Some(id) = id.filter(|id| *id < MOST_IDS) else { return };
        if self.0.len() <= id {
            self.0.resize(id + 1, None);
        }
        if let Some(slot) = self.0.get_mut(id) {
            *slot = Some(name.into());
        }
    }

    /// The token's name; empty for an id that is none.
    pub fn name(&self, id: u32) -> &str {
        let name = usize::try_from(id).ok().and_then(|id| self.0.get(id)).and_then(Option::as_deref);
        name.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_vocabulary_and_added_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "tokenizer.json",
            r#"{"added_tokens":[{"id":2,"content":"<s>"}],"model":{"type":"BPE","vocab":{"a":0,"Ġb":1}}}"#,
        );
        write("tokenizer_config.json", r#"{"added_tokens_decoder":{"4":{"content":"<x>"}}}"#);
        let names = TokenNames::read(folder.path()).unwrap();
        let seen: Vec<&str> = [0, 1, 2, 3, 4, 9, u32::MAX].into_iter().map(|id| names.name(id)).collect();
        assert_eq!(seen, ["a", "Ġb", "<s>", "", "<x>", "", ""]);
        write("tokenizer.json", r#"{"model":{"type":"Unigram","vocab":[["▁a",-1.5],["b",-2]]}}"#);
        let names = TokenNames::read(folder.path()).unwrap();
        assert_eq!((names.name(0), names.name(1)), ("▁a", "b"));
        write("tokenizer.json", "{");
        assert!(TokenNames::read(folder.path()).is_err());
    }
}
