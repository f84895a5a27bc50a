//! A sample of the generated corpus of `make exactness`, with the ids that a real engine's renderer gave.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

mod common;
mod configured;

use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use common::directory;
use configured::configured;
use flate2::read::GzDecoder;
use kvasir_core::RequestKind;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use serde::Deserialize;

/// Requests in each file.
const SAMPLE: usize = 200;

/// One request: the body as text, for its numbers have more forms than one.
#[derive(Deserialize)]
struct Case {
    path: String,
    body: String,
    ids: Vec<u32>,
}

fn cases(name: &str) -> Vec<Case> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/frozen").join(format!("{name}.jsonl.gz"));
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect()
}

fn kind(path: &str) -> RequestKind {
    [RequestKind::Chat, RequestKind::Completions, RequestKind::Responses, RequestKind::Messages]
        .into_iter()
        .find(|kind| kind.path_label() == path)
        .unwrap_or_else(|| panic!("{path}"))
}

fn check(name: &str) {
    check_with(name, name);
}

/// The sample of a name with the tokenizer of another.
fn check_with(name: &str, tokenizer: &str) {
    check_in(name, &directory(tokenizer));
}

/// The sample of a name with its configuration in `data/directories` and the file of a tokenizer, under another name.
fn check_configured(name: &str, tokenizer: &str, file: &str, as_file: &str) {
    let folder = configured(name, tokenizer, file, as_file);
    check_in(name, folder.path());
}

fn check_in(name: &str, directory: &Path) {
    let cases = cases(name);
    assert_eq!(cases.len(), SAMPLE, "{name}");
    for encoder in [EncoderChoice::Auto, EncoderChoice::Reference] {
        let options = LoadOptions { encoder, ..LoadOptions::default() };
        let tokenizer = LocalTokenizer::load_with(directory, None, options)
            .unwrap_or_else(|error| panic!("{name}: {error}: run e2e/tokenizers/fetch.sh first"));
        for (number, case) in cases.iter().enumerate() {
            let body = Bytes::from(case.body.clone());
            let ids = tokenizer.encode_body(kind(&case.path), &body);
            let label = format!("{name} {} request {number} {}", tokenizer.encoder_name(), case.path);
            assert_eq!(ids.as_deref(), Ok(&case.ids[..]), "{label}");
        }
    }
}

#[test]
fn qwen2_5() {
    check("qwen2_5");
}

#[test]
fn qwen3() {
    check("qwen3");
}

#[test]
fn llama3() {
    check("llama3");
}

#[test]
fn llama3_1() {
    check("llama3_1");
}

#[test]
fn llama3_2() {
    check("llama3_2");
}

#[test]
fn deepseek_v3() {
    check("deepseek_v3");
}

#[test]
fn gemma3() {
    check("gemma3");
}

#[test]
fn mistral_v3() {
    check_with("mistral_v3", "mistral_tekken");
}

#[test]
fn mistral_spm_v1() {
    check("mistral_spm_v1");
}

#[test]
fn mistral_spm_v2() {
    check("mistral_spm_v2");
}

#[test]
fn mistral_spm_v3() {
    check("mistral_spm_v3");
}

#[test]
fn mistral_spm_v7() {
    check("mistral_spm_v7");
}

#[test]
fn llama_spm() {
    check_configured("llama_spm", "mistral_spm_v1", "tokenizer.model.v1", "tokenizer.model");
}

#[test]
fn llama_spm_legacy() {
    check_configured("llama_spm_legacy", "mistral_spm_v1", "tokenizer.model.v1", "tokenizer.model");
}

#[test]
fn qwen1() {
    check_configured("qwen1", "qwen1", "qwen.tiktoken", "qwen.tiktoken");
}

#[test]
fn kimi_k2() {
    check_configured("kimi_k2", "kimi_k2", "tiktoken.model", "tiktoken.model");
}

#[test]
fn cl100k() {
    check_configured("cl100k", "cl100k", "cl100k_base.tiktoken", "cl100k_base.tiktoken");
}

#[test]
fn pat_str() {
    check_configured("pat_str", "qwen1", "qwen.tiktoken", "qwen.tiktoken");
}

#[test]
fn llama_json() {
    check_configured("llama_json", "llama_json", "tokenizer.json", "tokenizer.json");
}

#[test]
fn extra_listed() {
    check_configured("extra_listed", "qwen2_5", "tokenizer.json", "tokenizer.json");
}

#[test]
fn extra_old() {
    check_configured("extra_old", "qwen2_5", "tokenizer.json", "tokenizer.json");
}
