//! Ids equal to those of a real vLLM 0.32 for seven real tokenizers, through both encoders.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

mod common;

use std::path::Path;

use bytes::Bytes;
use common::directory;
use kvasir_core::{RequestKind, TokenizeError};
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const BOTH: [EncoderChoice; 2] = [EncoderChoice::Auto, EncoderChoice::Reference];

fn data(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn golden(file: &str) -> Value {
    serde_json::from_slice(&data(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn load(name: &str, encoder: EncoderChoice) -> LocalTokenizer {
    let options = LoadOptions { encoder, ..LoadOptions::default() };
    let tokenizer = LocalTokenizer::load_with(&directory(name), None, options)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    if encoder == EncoderChoice::Auto {
        let fast = if name == "gemma3" { "words" } else { "fastokens" };
        assert_eq!(tokenizer.encoder_name(), fast, "{name}: {:?}", tokenizer.fallback_reason());
    }
    tokenizer
}

fn ids_of(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}"))
}

fn encode(tokenizer: &LocalTokenizer, kind: RequestKind, body: &Value) -> Result<Vec<u32>, TokenizeError> {
    tokenizer.encode_body(kind, &Bytes::from(body.to_string()))
}

/// The ids that the generation path computes, or those of `/tokenize` where the generation path refused for want of
/// a tool parser. `None` where both refuse.
fn chat_target(case: &Value) -> Option<Vec<u32>> {
    let known = |name: &str| case.get(name).filter(|ids| !ids.is_null()).map(ids_of);
    known("render_token_ids").or_else(|| known("token_ids"))
}

/// The same for a plain prompt, where a refusal is one of the prompt itself.
fn prompt_target(case: &Value) -> Option<Vec<u32>> {
    case.get("render_token_ids").or(case.get("token_ids")).filter(|ids| !ids.is_null()).map(ids_of)
}

fn check(name: &str) {
    let golden = golden(&format!("vllm-{name}.json"));
    for encoder in BOTH {
        let tokenizer = load(name, encoder);
        let mut compared = 0;
        for case in golden["chat"].as_array().into_iter().flatten() {
            let label = format!("{name} {} {}", tokenizer.encoder_name(), case["case"]);
            // A second time the memory of segments answers.
            for _ in 0..2 {
                let ids = encode(&tokenizer, RequestKind::Chat, &case["request"]);
                match chat_target(case) {
                    Some(expected) => assert_eq!(ids, Ok(expected), "{label}"),
                    None => assert!(ids.is_err(), "{label}: should be refused"),
                }
            }
            if let Some(rendered) = case["rendered"].as_str() {
                let body = Bytes::from(case["request"].to_string());
                let ours = tokenizer.render_body(RequestKind::Chat, &body);
                assert_eq!(ours.as_ref().map(Option::as_deref), Ok(Some(rendered)), "{label}");
            }
            compared += 1;
        }
        for case in golden["completion"].as_array().into_iter().flatten() {
            let label = format!("{name} {} {}", tokenizer.encoder_name(), case["prompt"]);
            let ids = encode(&tokenizer, RequestKind::Completions, &json!({"prompt": case["prompt"]}));
            match prompt_target(case) {
                Some(expected) => assert_eq!(ids, Ok(expected), "{label}"),
                None => assert!(ids.is_err(), "{label}: should be refused"),
            }
            let bare = match &case["token_ids_no_special"] {
                Value::String(_) => &case["token_ids"],
                ids => ids,
            };
            let text = case["prompt"].as_str().unwrap_or_default();
            assert_eq!(
                tokenizer.encode_text(text, false),
                Ok(ids_of(bare)),
                "{label} without special tokens"
            );
            compared += 1;
        }
        assert!(compared >= 22, "{name}: only {compared} cases");
        check_long(name, &tokenizer);
    }
}

fn check_long(name: &str, tokenizer: &LocalTokenizer) {
    let text = String::from_utf8(data("long_prompt.txt")).unwrap_or_default();
    let golden = golden("long_prompt.json");
    let expected =
        golden["results"].as_array().into_iter().flatten().find(|entry| entry["tokenizer"] == name);
    let expected = expected.unwrap_or_else(|| panic!("no long prompt for {name}"));
    let ids = tokenizer.encode_text(&text, false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(json!(ids.len()), expected["count"]);
    assert_eq!(ids[..16], ids_of(&expected["first16"]));
    assert_eq!(ids[ids.len() - 16..], ids_of(&expected["last16"]));
    let mut hash = Sha256::new();
    ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(json!(hash), expected["sha256_of_le_u32_ids"]);
    assert_eq!(tokenizer.decode(&ids).as_deref(), Ok(&*text), "{name}: not what was encoded");
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

/// The generation path is the target; where it refuses, so do we. `/tokenize` refuses calls with null content and takes
/// template arguments, which the generation path does not.
#[test]
fn mistral_tekken() {
    let golden = golden("vllm-mistral_tekken.json");
    for encoder in BOTH {
        let tokenizer = load("mistral_tekken", encoder);
        for case in golden["chat"].as_array().into_iter().flatten() {
            let label = format!("{} {}", tokenizer.encoder_name(), case["case"]);
            for _ in 0..2 {
                let ids = encode(&tokenizer, RequestKind::Chat, &case["request"]);
                match chat_target(case).filter(|_| case.get("render_error").is_none()) {
                    Some(expected) => assert_eq!(ids, Ok(expected), "{label}"),
                    None => assert!(ids.is_err(), "{label}: should be refused"),
                }
            }
        }
        for case in golden["completion"].as_array().into_iter().flatten() {
            let label = format!("{} {}", tokenizer.encoder_name(), case["prompt"]);
            let ids = encode(&tokenizer, RequestKind::Completions, &json!({"prompt": case["prompt"]}));
            match prompt_target(case) {
                Some(expected) => assert_eq!(ids, Ok(expected), "{label}"),
                None => assert!(ids.is_err(), "{label}: should be refused"),
            }
            let text = case["prompt"].as_str().unwrap_or_default();
            let bare = tokenizer.encode_text(text, false);
            assert_eq!(bare, Ok(ids_of(&case["token_ids_no_special"])), "{label} without special tokens");
            let whole = ids_of(&case["token_ids"]);
            assert_eq!(tokenizer.decode(&whole).as_deref(), Ok(&*format!("<s>{text}")), "{label}");
        }
    }
}
