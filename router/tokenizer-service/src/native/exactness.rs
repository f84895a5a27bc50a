//! Whether our own tokenizer gives a source's ids exactly, as far as its files tell.
//!
//! The encoder checks itself while it loads, and a conversation is rendered afterwards; what no trial finds is a model
//! for which the engine does not use `tokenizer.json` and a Jinja template at all.

use std::path::Path;

use kvasir_tokenize::local::{MISTRAL_FILES, writes_chats};
use serde_json::Value;

/// Why the files of a directory speak against the native engine; `None` when nothing does. Reads files.
pub fn objection(directory: &Path) -> Option<String> {
    // The engine reads these in place of tokenizer.json where they are.
    if let Some(file) = MISTRAL_FILES.iter().find(|file| directory.join(file).exists()) {
        return Some(format!("the engine reads {file}"));
    }
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    if let Some(name) = writes_chats(&read("config.json")) {
        return Some(format!("the engine renders {name} in its own way"));
    }
    if read("tokenizer_config.json").pointer("/auto_map/AutoTokenizer").is_some() {
        return Some("the tokenizer is code of the repository".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_the_engine_reads_otherwise_are_told() {
        let cases = [
            ("tekken.json", "{}", Some("tekken.json")),
            (
                "config.json",
                r#"{"architectures":["DeepseekV32ForCausalLM"]}"#,
                Some("DeepseekV32ForCausalLM"),
            ),
            ("config.json", r#"{"architectures":["GptOssForCausalLM"]}"#, Some("GptOssForCausalLM")),
            ("config.json", r#"{"model_type":"gpt_oss"}"#, Some("gpt_oss")),
            ("tokenizer.model.v11", "", Some("tokenizer.model.v11")),
            ("tokenizer.model.v7m1", "", Some("tokenizer.model.v7m1")),
            ("config.json", r#"{"architectures":["Qwen2ForCausalLM"]}"#, None),
            ("tokenizer_config.json", r#"{"auto_map":{"AutoTokenizer":["t.T",null]}}"#, Some("code")),
            ("tokenizer_config.json", "not JSON", None),
        ];
        for (file, text, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(objection(folder.path()), None);
            std::fs::write(folder.path().join(file), text).unwrap();
            let found = objection(folder.path());
            match expected {
                None => assert_eq!(found, None, "{text}"),
                Some(part) => assert!(found.clone().unwrap_or_default().contains(part), "{found:?}"),
            }
        }
    }
}
