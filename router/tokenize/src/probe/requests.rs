//! The probes themselves.

use bytes::Bytes;
use kvasir_core::{InferenceRequest, ModelName, Prompt, RequestId, RequestKind};
use serde_json::{Value, json};

/// One request of the set.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What it is about.
    pub name: &'static str,
    /// Which API it speaks.
    pub kind: RequestKind,
    body: Value,
}

/// Control tokens of many families: the tokenizer's own become ids, foreign ones stay text.
const SPECIAL: &str = "a<|im_start|>b <|im_end|>\n<s>c</s> <bos><start_of_turn>d<end_of_turn> <|eot_id|>e<|begin_of_text|>\
                       <|start_header_id|>f <｜User｜>g<｜end▁of▁sentence｜> [INST]h[/INST] <|endoftext|><think></think><|python_tag|>";

/// Composed and decomposed letters, scripts, sequences of emoji, unusual white space.
const UNICODE: &str = "caf\u{e9} cafe\u{301} \u{212b} \u{fb01} \u{1112}\u{1161}\u{11ab}\u{d55c} 你好，世界 日本語の テスト مرحبا שלום नमस्ते \
                       สวัสดี Ελληνικά ёлка 👩\u{200d}👩\u{200d}👧 👍🏽 🇩🇪 \u{200b}\u{a0}\u{3000}\u{feff} x² ½ \u{1}\u{7f}";

/// Prose, numbers, code and runs of white space.
const PLAIN: &str = "The router doesn't guess: 1234567 requests, 3.14 % of them at 0x1F, v1.2.3-rc.4.\n\n\n    fn main() {\n\
                     \t\tprintln!(\"{}\", 10i32.pow(2)); // done\r\n    }\n   trailing   \n\n";

impl Probe {
    fn new(name: &'static str, kind: RequestKind, body: Value) -> Self {
        Self { name, kind, body }
    }

    /// The request for a model. With `dated` the template is told which day it is.
    pub fn request(&self, model: &ModelName, dated: bool) -> InferenceRequest {
        let mut body = self.body.clone();
        body["model"] = json!(model.as_str());
        if dated && self.kind == RequestKind::Chat {
            body["chat_template_kwargs"] = json!({"date_string": "26 Jul 2024"});
        }
        InferenceRequest {
            id: RequestId::new("probe"),
            kind: self.kind,
            requested_model: model.as_str().into(),
            model: model.clone(),
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
}

/// The set. None of them generates anything.
pub fn probes() -> Vec<Probe> {
    let completion = |name, text: &str| Probe::new(name, RequestKind::Completions, json!({"prompt": text}));
    let chat = |name, messages: Value| Probe::new(name, RequestKind::Chat, json!({"messages": messages}));
    let user = |text: &str| json!({"role": "user", "content": text});
    let tool = json!({"type": "function", "function": {
        "name": "get_weather", "description": "Get the <b>weather</b> & 'more' in größe",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "名前"},
            "limit": {"type": "number", "default": 1e-7, "enum": [1.0, 2, null, true, "a\"b"]}}},
    }});
    let call = json!({"id": "abcdefghi", "type": "function",
                      "function": {"name": "get_weather", "arguments": "{\"city\": \"Zürich\", \"limit\": 1e5}"}});
    let mut with_tools = chat("tools", json!([user("What is the weather in Zürich?")]));
    with_tools.body["tools"] = json!([tool]);
    let mut round_trip = chat(
        "tool round trip",
        json!([
            user("What is the weather in Zürich?"),
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"sun\": true}"},
            {"role": "assistant", "content": "It is sunny."},
            user("And tomorrow?"),
        ]),
    );
    round_trip.body["tools"] = json!([tool]);
    vec![
        completion("plain prompt", PLAIN),
        completion("unicode prompt", UNICODE),
        completion("special-token text", SPECIAL),
        chat("chat", json!([user("Hello!")])),
        chat("chat with system", json!([{"role": "system", "content": "Be brief.\n"}, user("Hello!")])),
        chat(
            "chat with turns",
            json!([user(PLAIN), {"role": "assistant", "content": " Yes.\n\n"}, user("  And then? ")]),
        ),
        chat(
            "chat with parts",
            json!([{"role": "user", "content": [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]}]),
        ),
        chat("unicode chat", json!([user(UNICODE)])),
        chat("special-token chat", json!([user(SPECIAL)])),
        with_tools,
        round_trip,
    ]
}
