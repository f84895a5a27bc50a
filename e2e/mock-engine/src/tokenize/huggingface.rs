//! A real tokenizer directory behind the seam, so that a router's local tokenization meets the engine's.

use std::path::Path;

use bytes::Bytes;
use kvasir_core::{RequestKind, TokenizeError};
use kvasir_tokenize::LocalTokenizer;

use super::{EncodeError, Tokenize};

/// A tokenizer directory: `tokenizer.json`, `tokenizer_config.json`, chat template.
#[derive(Debug)]
pub struct HuggingFace {
    local: LocalTokenizer,
}

impl HuggingFace {
    /// Reads `directory`; takes a second or two for large vocabularies.
    pub fn load(directory: &Path) -> anyhow::Result<Self> {
        let local = LocalTokenizer::load(directory, None)
            .map_err(|error| anyhow::anyhow!("tokenizer directory {}: {error}", directory.display()))?;
        Ok(Self { local })
    }
}

impl Tokenize for HuggingFace {
    fn encode(&self, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, EncodeError> {
        self.local.encode_body(kind, body).map_err(|error| match error {
            TokenizeError::Invalid(reason) => EncodeError::Invalid(reason.to_owned()),
            TokenizeError::Template(reason) => EncodeError::Invalid(reason),
            other => EncodeError::Unsupported(other.label().to_owned()),
        })
    }

    fn decode(&self, ids: &[u32]) -> Option<String> {
        self.local.decode(ids).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::answer::{Script, Vocabulary};

    /// Whole words and nothing else; the space belongs to the word after it.
    fn write(directory: &Path) {
        let words = ["hello", " hello", " the", " of", " and", "<s>"];
        let vocabulary: serde_json::Map<String, Value> =
            words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": {
                "type": "Split", "pattern": {"Regex": " ?[a-z]+"}, "behavior": "Isolated", "invert": false,
            },
            "post_processor": null,
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<s>"},
        });
        std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).expect("writes");
        let config = json!({"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"});
        std::fs::write(directory.join("tokenizer_config.json"), config.to_string()).expect("writes");
    }

    #[test]
    fn a_directory_gives_the_ids_and_the_words_of_the_answers() {
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path());
        let tokenizer = HuggingFace::load(directory.path()).expect("loads");
        let chat = Bytes::from(r#"{"messages":[{"role":"user","content":"hello the of"}]}"#);
        assert_eq!(tokenizer.encode(RequestKind::Chat, &chat), Ok(vec![0, 2, 3]));
        assert_eq!(tokenizer.decode(&[0, 2]).as_deref(), Some("hello the"));
        let vocabulary = Vocabulary::new(&tokenizer, "m");
        let script = Script::words(1, 20, true);
        let ids: Vec<u32> = (0..20).map(|index| script.piece(&vocabulary, index).id).collect();
        let text = json!({"prompt": script.text(&vocabulary, 20)}).to_string();
        assert_eq!(tokenizer.encode(RequestKind::Completions, &text.into()), Ok(ids));
    }

    #[test]
    fn what_it_cannot_do_is_told_apart_from_what_nobody_may_ask() {
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path());
        let tokenizer = HuggingFace::load(directory.path()).expect("loads");
        let embeddings = Bytes::from(r#"{"input":"hello"}"#);
        assert!(matches!(
            tokenizer.encode(RequestKind::Embeddings, &embeddings),
            Err(EncodeError::Unsupported(_))
        ));
        assert!(HuggingFace::load(&directory.path().join("none")).is_err());
    }
}
