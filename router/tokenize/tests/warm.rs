//! What was remembered of earlier prompts changes no id, for every real tokenizer.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

mod common;
mod configured;

use std::path::Path;

use common::directory;
use configured::configured;
use kvasir_tokenize::{LoadOptions, LocalTokenizer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Conversations for each tokenizer.
const CASES: u32 = 48;

/// Pieces of a conversation: what people write, and the control tokens of several families.
fn turns() -> impl Strategy<Value = Vec<String>> {
    let token = prop::sample::select(vec![
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<bos>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "<\u{ff5c}User\u{ff5c}>",
        "<\u{ff5c}Assistant\u{ff5c}>",
        "<|im_user|>",
        "<|picture|>",
        "<|more|>",
        "<tool_call>",
        "<|im_",
        "[/INS",
    ]);
    let piece = prop_oneof![
        3 => "( ?[a-z]{1,9}[.,!?]?){1,8}",
        2 => "[ \\t\\n\\r]{1,12}",
        1 => any::<String>(),
        1 => "[\u{4e00}-\u{4f00}\u{3040}-\u{309f}\u{ac00}-\u{ac80}\u{410}-\u{44f}\u{e0}-\u{ff}]{1,24}",
        1 => "[0-9]{1,12}",
        4 => token.prop_map(str::to_owned),
    ];
    prop::collection::vec(prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat()), 1..6)
}

/// A tokenizer that has seen every beginning of a conversation, and those of all earlier ones, against one that
/// remembers nothing.
fn check(name: &str, directory: &Path) {
    let load = |memory_bytes| {
        LocalTokenizer::load_with(directory, None, LoadOptions { memory_bytes, ..LoadOptions::default() })
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let (warm, cold) = (load(LoadOptions::default().memory_bytes), load(0));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&(turns(), any::<bool>()), |(turns, special)| {
        let mut text = String::new();
        for turn in turns {
            text.push_str(&turn);
            let expected = cold.encode_text(&text, special);
            prop_assert_eq!(&warm.encode_text(&text, special), &expected, "{:?}", text);
            prop_assert_eq!(&warm.encode_text(&text, special), &expected, "{:?} again", text);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn files_of_hugging_face() {
    for name in ["qwen2_5", "qwen3", "llama3", "llama3_1", "llama3_2", "deepseek_v3", "gemma3"] {
        check(name, &directory(name));
    }
}

#[test]
fn files_of_mistral() {
    for name in ["mistral_tekken", "mistral_spm_v1", "mistral_spm_v2", "mistral_spm_v3", "mistral_spm_v7"] {
        check(name, &directory(name));
    }
}

#[test]
fn files_with_a_configuration() {
    for (name, tokenizer, file, as_file) in [
        ("llama_spm", "mistral_spm_v1", "tokenizer.model.v1", "tokenizer.model"),
        ("llama_spm_legacy", "mistral_spm_v1", "tokenizer.model.v1", "tokenizer.model"),
        ("llama_json", "llama_json", "tokenizer.json", "tokenizer.json"),
        ("extra_listed", "qwen2_5", "tokenizer.json", "tokenizer.json"),
        ("extra_old", "qwen2_5", "tokenizer.json", "tokenizer.json"),
        ("qwen1", "qwen1", "qwen.tiktoken", "qwen.tiktoken"),
        ("kimi_k2", "kimi_k2", "tiktoken.model", "tiktoken.model"),
        ("cl100k", "cl100k", "cl100k_base.tiktoken", "cl100k_base.tiktoken"),
        ("pat_str", "qwen1", "qwen.tiktoken", "qwen.tiktoken"),
    ] {
        check(name, configured(name, tokenizer, file, as_file).path());
    }
}
