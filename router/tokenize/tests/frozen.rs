//! A sample of the generated corpus of `make exactness`, with the ids that a real engine's renderer gave.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
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

/// The cache that `e2e/tokenizers/fetch.sh` fills.
#[expect(clippy::disallowed_methods, reason = "the place of a test's cache is no setting of the router")]
fn directory(name: &str) -> PathBuf {
    let cache = std::env::var("KVASIR_CACHE").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache").join("kvasir")
    });
    cache.join("tokenizers").join(name)
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
    let cases = cases(name);
    let directory = directory(tokenizer);
    assert_eq!(cases.len(), SAMPLE, "{name}");
    for encoder in [EncoderChoice::Auto, EncoderChoice::Reference] {
        let options = LoadOptions { encoder, ..LoadOptions::default() };
        let tokenizer = LocalTokenizer::load_with(&directory, None, options)
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
