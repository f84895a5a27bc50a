//! Any bytes as a rank file, with and without the bytes that every file has: an error or ranks, never a panic.
#![no_main]

use std::path::Path;

use kvasir_tokenize::local::tiktoken::{Family, FamilyFiles, read_ranks, tokenizer_json};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// The lines of the single bytes: rank and byte are the same.
const BYTES: &str = include_str!("bytes.tiktoken");

fuzz_target!(|input: (&[u8], &str)| {
    let (file, pattern) = input;
    drop(read_ranks(file));
    let config = json!({"pat_str": pattern, "added_tokens_decoder": {"600": {"content": "<|x|>"}}});
    let files = FamilyFiles { ranks: Path::new("x.tiktoken"), config: &config, model: &Value::Null };
    let Ok(family) = Family::of(&files) else { return };
    // A high rank makes a large vocabulary, which is right and slow.
    if file.len() < 4_096 && !file.windows(5).any(|window| window.iter().all(u8::is_ascii_digit)) {
        drop(tokenizer_json(&[BYTES.as_bytes(), file].concat(), &family));
    }
});
