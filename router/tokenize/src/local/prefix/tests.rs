use kvasir_core::Prompt;
use serde_json::{Value, json};

use super::*;
use crate::local::LoadOptions;
use crate::testing::{CHATML, request, write_tokenizer};

const PARTS: &str = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}\
                     {% if c.type == 'text' %}{{ c.text }}{% else %}<|im_end|>{% endif %}{% endfor %}<|im_end|>\n\
                     {% endfor %}";

fn load(change: impl FnOnce(&mut Value), template: &str) -> LocalTokenizer {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), change, template);
    LocalTokenizer::load_with(directory.path(), None, LoadOptions::default()).unwrap()
}

fn encode(tokenizer: &LocalTokenizer, body: &Value) -> Result<EncodedPrompt, TokenizeError> {
    tokenizer.encode_prompt(&request(RequestKind::Chat, body))
}

fn with_last(content: Value) -> Value {
    json!({"messages": [
        {"role": "system", "content": "hello world"},
        {"role": "user", "content": "abc"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": content},
    ]})
}

fn image() -> Value {
    json!([{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "data:,"}}])
}

#[test]
fn the_ids_before_an_image_are_those_of_every_prompt_that_begins_so() {
    for template in [CHATML, PARTS] {
        let tokenizer = load(|_| {}, template);
        let part = encode(&tokenizer, &with_last(image())).unwrap();
        assert!(!part.whole);
        let before = tokenizer.decode(&part.ids).unwrap();
        assert!(before.ends_with("hello<|im_end|>\n<|im_start|>"), "{before}");
        // Whatever stands at the image's place, text that merges and text that is a token of its own.
        for text in ["", "\n\n", "hello", "\u{301}", "<|im_end|>x", "<|im_start|>user"] {
            let whole = encode(&tokenizer, &with_last(json!(text))).unwrap();
            assert!(whole.whole && whole.ids.starts_with(&part.ids), "{text:?}");
        }
    }
}

#[test]
fn begin_tokens_that_were_asked_for_are_there() {
    let tokenizer = load(|_| {}, CHATML);
    let plain = encode(&tokenizer, &with_last(image())).unwrap().ids;
    let mut body = with_last(image());
    body["add_special_tokens"] = json!(true);
    let begun = encode(&tokenizer, &body).unwrap().ids;
    assert_eq!((begun[0], &begun[1..]), (plain[0], &plain[..]));
}

#[test]
fn without_a_safe_cut_there_are_none() {
    let unsafe_words = |json: &mut Value| json["added_tokens"][1]["single_word"] = json!(true);
    for tokenizer in
        [load(unsafe_words, CHATML), load(|_| {}, "{% for m in messages %}{{ m.content }}{% endfor %}")]
    {
        assert_eq!(encode(&tokenizer, &with_last(image())), Err(TokenizeError::Inexact(MEDIA)));
    }
}

#[test]
fn other_requests_are_as_before() {
    let tokenizer = load(|_| {}, CHATML);
    let text = encode(&tokenizer, &with_last(json!("hello"))).unwrap();
    assert!(text.whole);
    let mut given = request(RequestKind::Completions, &json!({"prompt": [1, 2]}));
    given.prompt = Prompt::TokenIds([1, 2].into());
    assert_eq!(tokenizer.encode_prompt(&given), Ok(EncodedPrompt { ids: vec![1, 2], whole: true }));
    let unknown = with_last(json!([{"type": "file", "file": {}}]));
    assert_eq!(encode(&tokenizer, &unknown).unwrap_err().label(), "inexact");
}
