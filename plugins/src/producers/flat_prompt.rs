//! The flat prompt: a request's text as one string, with its messages marked off.
//!
//! A text prompt is taken as it is. Of a conversation each message gives
//! `<|im_start|>ROLE\nCONTENT<|im_end|>\n`; only role and text survive. Content is a string, or a list whose text
//! parts (`type` absent, `text`, `input_text` or `output_text`) are joined with a newline; a message without text
//! is skipped. A top-level `system` of the Anthropic form comes first with role `system`, the `instructions` of
//! the Responses form with role `developer`. This is not what an engine's chat template makes of it; it only has to
//! be equal for equal conversations.

use kvasir_core::{InferenceRequest, Prompt, RequestKind};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// At least the first `most` bytes of the flat prompt (less when it is shorter). Empty when the request holds no
/// text: prompts of token ids, lists of prompts, bodies that cannot be read.
pub fn flat_prompt(request: &InferenceRequest, most: usize) -> String {
    let mut flat = String::new();
    match &request.prompt {
        Prompt::Text(range) => {
            if let Ok(text) = serde_json::from_slice(request.slice(range)) {
                flat = text;
            }
        }
        Prompt::Messages(range) => {
            if request.kind == RequestKind::Messages {
                let text = top_level(request).system.and_then(parse).and_then(|content| text_of(&content));
                push(&mut flat, "system", text.as_deref().filter(|text| !text.is_empty()));
            }
            push_list(&mut flat, request.slice(range), most, |_| true);
        }
        Prompt::Input(range) => {
            let instructions = top_level(request).instructions.and_then(parse);
            let instructions = instructions.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty());
            push(&mut flat, "developer", instructions);
            let input = request.slice(range);
            match serde_json::from_slice::<String>(input) {
                Ok(text) => push(&mut flat, "user", Some(&text)),
                Err(_) => push_list(&mut flat, input, most, |kind| matches!(kind, "" | "message")),
            }
        }
        Prompt::TokenIds(_) | Prompt::None => {}
    }
    flat
}

/// The fields beside the prompt that are part of it.
#[derive(Deserialize, Default)]
struct TopLevel<'a> {
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
}

fn top_level(request: &InferenceRequest) -> TopLevel<'_> {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

fn parse(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok()
}

/// Adds the messages of a JSON list until `most` bytes are there. `wanted` judges an item's `type`.
fn push_list(flat: &mut String, list: &[u8], most: usize, wanted: impl Fn(&str) -> bool) {
    let Ok(items) = serde_json::from_slice::<Vec<&RawValue>>(list) else { return };
    for item in items {
        if flat.len() >= most {
            return;
        }
        let Some(item) = parse(item) else { continue };
        if !wanted(item.get("type").and_then(Value::as_str).unwrap_or_default()) {
            continue;
        }
        let role = item.get("role").and_then(Value::as_str).unwrap_or_default();
        if !role.is_empty() {
            push(flat, role, item.get("content").and_then(text_of).as_deref());
        }
    }
}

fn push(flat: &mut String, role: &str, text: Option<&str>) {
    if let Some(text) = text {
        for part in ["<|im_start|>", role, "\n", text, "<|im_end|>\n"] {
            flat.push_str(part);
        }
    }
}

/// The text of a message's content, if it has any.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(part_text).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

fn part_text(part: &Value) -> Option<&str> {
    let kind = part.get("type").map_or(Some("text"), Value::as_str)?;
    matches!(kind, "text" | "input_text" | "output_text").then_some(())?;
    part.get("text").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{body, chat, completion};

    const ALL: usize = usize::MAX;

    #[test]
    fn a_text_prompt_is_taken_as_it_is() {
        assert_eq!(flat_prompt(&completion("a \"b\" \u{e9}\n"), ALL), "a \"b\" \u{e9}\n");
        let list = body(RequestKind::Completions, r#"{"prompt":["a","b"]}"#, "prompt", Prompt::Text);
        assert_eq!(flat_prompt(&list, ALL), "");
    }

    #[test]
    fn messages_keep_role_and_text() {
        for (messages, flat) in [
            (r#"[{"role":"user","content":"Hello"}]"#, "<|im_start|>user\nHello<|im_end|>\n"),
            (r#"[{"role":"user","content":""}]"#, "<|im_start|>user\n<|im_end|>\n"),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"a"},{"text":"b"},{"type":"image_url"}]}]"#,
                "<|im_start|>user\na\nb<|im_end|>\n",
            ),
            (r#"[{"role":"assistant","content":null,"tool_calls":[]},{"content":"x"},7,{"role":4}]"#, ""),
            (r#"[{"role":"user","content":[{"type":"image_url"}]}]"#, ""),
            ("[]", ""),
            ("7", ""),
        ] {
            assert_eq!(flat_prompt(&chat(messages), ALL), flat, "{messages}");
        }
    }

    #[test]
    fn system_and_instructions_come_first() {
        let anthropic = body(
            RequestKind::Messages,
            r#"{"messages":[{"role":"user","content":"u"}],"system":[{"type":"text","text":"s"}]}"#,
            "messages",
            Prompt::Messages,
        );
        let expected = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n";
        assert_eq!(flat_prompt(&anthropic, ALL), expected);

        let responses = r#"{"instructions":"i","input":[{"role":"user","content":"u"},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"v"}]},
            {"type":"function_call_output","role":"user","content":"no"}]}"#;
        let responses = body(RequestKind::Responses, responses, "input", Prompt::Input);
        let expected = "<|im_start|>developer\ni<|im_end|>\n<|im_start|>user\nu<|im_end|>\n\
                        <|im_start|>user\nv<|im_end|>\n";
        assert_eq!(flat_prompt(&responses, ALL), expected);

        let plain = body(RequestKind::Responses, r#"{"input":"u"}"#, "input", Prompt::Input);
        assert_eq!(flat_prompt(&plain, ALL), "<|im_start|>user\nu<|im_end|>\n");
    }

    #[test]
    fn reading_stops_when_the_window_is_full() {
        let messages = r#"[{"role":"user","content":"0123456789"},{"role":"user","content":"later"}]"#;
        let whole = flat_prompt(&chat(messages), ALL);
        let first = flat_prompt(&chat(messages), 20);
        assert!(whole.starts_with(&first) && first.len() >= 20 && !first.contains("later"));
    }

    #[test]
    fn a_range_outside_the_body_has_no_text() {
        let broken = InferenceRequest { prompt: Prompt::Messages(5..900), ..chat("[]") };
        assert_eq!(flat_prompt(&broken, ALL), "");
    }
}
