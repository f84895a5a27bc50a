//! Prompts with images, for seven real tokenizers: what is told of them is what any prompt that begins so has.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

mod common;

use std::path::PathBuf;

use bytes::Bytes;
use common::directory;
use kvasir_core::{InferenceRequest, Prompt, RequestId, RequestKind};
use kvasir_tokenize::{EncodedPrompt, LocalTokenizer};
use serde_json::{Value, json};

fn load(name: &str) -> LocalTokenizer {
    LocalTokenizer::load(&directory(name), None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn request(body: &Value) -> InferenceRequest {
    InferenceRequest {
        id: RequestId::new("r"),
        kind: RequestKind::Chat,
        requested_model: "m".into(),
        model: "m".into(),
        adapter: None,
        stream: false,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::from(body.to_string()),
    }
}

fn encode(tokenizer: &LocalTokenizer, system: bool, content: Value) -> EncodedPrompt {
    let mut messages = vec![
        json!({"role": "user", "content": "Compare the two figures, please: 12 345 or 0.5?\n\n"}),
        json!({"role": "assistant", "content": "Which figures? I see none."}),
        json!({"role": "user", "content": content}),
    ];
    if system {
        messages.insert(0, json!({"role": "system", "content": "You look at pictures.\nBe brief."}));
    }
    // Fixed, for the template that prints the day.
    let arguments = json!({"date_string": "26 Jul 2024"});
    let body = json!({"model": "m", "messages": messages, "chat_template_kwargs": arguments});
    tokenizer.encode_prompt(&request(&body)).unwrap_or_else(|error| panic!("{error}"))
}

/// What an engine may put at the place of an image, and texts that merge with what is before them.
const PLACEHOLDERS: [&str; 8] = [
    "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>",
    "\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
    "<|image|>",
    "[IMG][IMG][IMG_BREAK][IMG][IMG_END]",
    "<image>\n",
    "\n\n\n",
    " \u{301}a",
    "plain",
];

#[test]
fn the_ids_before_an_image_hold_for_whatever_is_put_in_its_place() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    for name in ["qwen2_5", "qwen3", "llama3", "llama3_1", "llama3_2", "deepseek_v3", "gemma3"] {
        let tokenizer = load(name);
        for system in [false, true] {
            let part = encode(&tokenizer, system, json!([{"type": "text", "text": "And here?"}, image]));
            assert!(!part.whole, "{name}");
            let mut shortest = usize::MAX;
            for placeholder in PLACEHOLDERS {
                let whole = encode(&tokenizer, system, json!(placeholder));
                assert!(whole.whole && whole.ids.starts_with(&part.ids), "{name} {placeholder:?}");
                shortest = shortest.min(whole.ids.len());
            }
            // All but the last turn's header, its content and what opens the answer.
            assert!(part.ids.len() + 16 > shortest, "{name}: {} of {shortest}", part.ids.len());
            let text = tokenizer.decode(&part.ids).unwrap_or_default();
            assert!(text.contains("I see none."), "{name}: {text}");
        }
    }
}

/// Ids of a real vLLM 0.32 with Qwen2-VL's processor, which expands each image to as many tokens as its size needs: once
/// with a template that prints parts, once with one that takes texts, before which the engine puts the placeholders.
#[test]
fn the_ids_before_an_image_are_the_engine_s() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/vllm-media.json");
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let golden: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut compared = 0;
    for form in golden["forms"].as_array().into_iter().flatten() {
        let template = tempfile::NamedTempFile::new().unwrap_or_else(|error| panic!("{error}"));
        let written = std::fs::write(template.path(), form["template"].as_str().unwrap_or_default());
        written.unwrap_or_else(|error| panic!("{error}"));
        let tokenizer = LocalTokenizer::load(&directory("qwen2_5"), Some(template.path()));
        let tokenizer = tokenizer.unwrap_or_else(|error| panic!("{error}"));
        for case in form["cases"].as_array().into_iter().flatten() {
            let part = tokenizer.encode_prompt(&request(&case["body"]));
            let part = part.unwrap_or_else(|error| panic!("{}: {error}", case["body"]));
            let engine: Vec<u32> = serde_json::from_value(case["token_ids"].clone()).unwrap_or_default();
            let pad = engine.iter().position(|id| *id == 151_655).unwrap_or_default();
            assert!(!part.whole && engine[..pad].starts_with(&part.ids), "{}", case["body"]);
            // At most the role of the message and its own text are missing.
            assert!(part.ids.len() + 12 > pad, "{} of {pad}", part.ids.len());
            compared += 1;
        }
    }
    assert_eq!(compared, 10);
}
