//! The tokenizer for engines without a tokenizer directory: deterministic, reversible, about three bytes a token.

use bytes::Bytes;
use kvasir_core::RequestKind;
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::{EncodeError, Tokenize};

/// Ids below this are up to four ASCII bytes, seven bits each.
const PACKED: u32 = 1 << 28;
/// The ids of the bytes above 0x7f start here.
const OTHER_BYTES: u32 = PACKED;
const START: u32 = PACKED + 0x200;
const END: u32 = PACKED + 0x201;
const TOOLS: u32 = PACKED + 0x202;
const MEDIA: u32 = PACKED + 0x203;
/// Ids that stand for an image or a sound, besides the marker: enough to fill a block of 16.
const MEDIA_IDS: usize = 15;

/// A text is cut before each space and after each fourth letter or digit; everything else is a token of its own.
/// So text can be continued without changing the ids before it, up to the last word.
///
/// A chat is rendered as a start mark, the role, a line end, the content and an end mark for each message, then the
/// start of the assistant's turn. `tools` stand before it as they came. Parts that are not text become a marker and
/// 15 ids made of their content's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WordTokenizer;

impl Tokenize for WordTokenizer {
    fn encode(&self, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, EncodeError> {
        let call: Call<'_> = serde_json::from_slice(body).map_err(|error| invalid(&error))?;
        let mut ids = Vec::with_capacity(body.len() / 3);
        if call.messages.is_none()
            && let Some(prompt) = call.prompt.or(call.input.filter(|_| kind == RequestKind::Embeddings))
        {
            text(raw_string(prompt)?.as_str(), &mut ids);
            return Ok(ids);
        }
        if let Some(tools) = call.tools {
            ids.push(TOOLS);
            text(tools.get(), &mut ids);
        }
        for system in [call.system, call.instructions].into_iter().flatten() {
            message("system", Some(system), &mut ids)?;
        }
        let messages = match (call.messages, call.input) {
            (Some(messages), _) => messages,
            (None, Some(input)) if input.get().starts_with('"') => {
                message("user", Some(input), &mut ids)?;
                Vec::new()
            }
            (None, Some(input)) => serde_json::from_str(input.get()).map_err(|error| invalid(&error))?,
            (None, None) => return Err(EncodeError::Invalid("the request has no prompt".to_owned())),
        };
        for one in &messages {
            message(one.role.unwrap_or("tool"), one.content, &mut ids)?;
            if let Some(calls) = one.tool_calls {
                text(calls.get(), &mut ids);
            }
        }
        if call.continue_final_message {
            ids.truncate(ids.len().saturating_sub(2));
        } else if call.add_generation_prompt.unwrap_or(true) {
            ids.push(START);
            text("assistant\n", &mut ids);
        }
        Ok(ids)
    }

    fn decode(&self, ids: &[u32]) -> Option<String> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for id in ids {
            match *id {
                0 => bytes.push(0),
                START => bytes.extend_from_slice(b"<|start|>"),
                END => bytes.extend_from_slice(b"<|end|>"),
                TOOLS => bytes.extend_from_slice(b"<|tools|>"),
                MEDIA => bytes.extend_from_slice(b"<|media|>"),
                id if id < PACKED => {
                    let mut rest = id;
                    while rest > 0 {
                        bytes.push((rest & 0x7f) as u8);
                        rest >>= 7;
                    }
                }
                id => bytes.push(u8::try_from(id - OTHER_BYTES).unwrap_or(b'?')),
            }
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The fields that make the prompt.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    add_generation_prompt: Option<bool>,
    #[serde(default)]
    continue_final_message: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: Option<&'a str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

fn invalid(error: &serde_json::Error) -> EncodeError {
    EncodeError::Invalid(format!(
        "the body is not a request: {:?} at line {} column {}",
        error.classify(),
        error.line(),
        error.column()
    ))
}

fn raw_string(raw: &RawValue) -> Result<String, EncodeError> {
    serde_json::from_str(raw.get()).map_err(|error| invalid(&error))
}

fn message(role: &str, content: Option<&RawValue>, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    ids.push(START);
    text(role, ids);
    text("\n", ids);
    match content.map(RawValue::get) {
        None | Some("null") => {}
        Some(json) if json.starts_with('"') => {
            let content: String = serde_json::from_str(json).map_err(|error| invalid(&error))?;
            text(&content, ids);
        }
        Some(json) => {
            let parts: Vec<&RawValue> = serde_json::from_str(json).map_err(|error| invalid(&error))?;
            for raw in parts {
                match serde_json::from_str(raw.get()).map_err(|error| invalid(&error))? {
                    Part { text: Some(content) } => text(&content, ids),
                    Part { text: None } => media(raw.get(), ids),
                }
            }
        }
    }
    ids.push(END);
    text("\n", ids);
    Ok(())
}

fn media(json: &str, ids: &mut Vec<u32>) {
    ids.push(MEDIA);
    let mut state = xxh3_64(json.as_bytes());
    for _ in 0..MEDIA_IDS {
        state = xxh3_64(&state.to_le_bytes());
        ids.push(1 + (state as u32) % (PACKED - 1));
    }
}

/// Adds the ids of `text`.
fn text(text: &str, ids: &mut Vec<u32>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(first) = bytes.get(at) {
        if !first.is_ascii() {
            ids.push(OTHER_BYTES + u32::from(*first));
            at += 1;
            continue;
        }
        let mut id = u32::from(*first);
        let mut length = 1;
        if *first == b' ' || first.is_ascii_alphanumeric() {
            while length < 4
                && let Some(next) = bytes.get(at + length).filter(|byte| byte.is_ascii_alphanumeric())
            {
                id |= u32::from(*next) << (7 * length);
                length += 1;
            }
        }
        ids.push(id);
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(kind: RequestKind, body: &str) -> Vec<u32> {
        WordTokenizer.encode(kind, &Bytes::copy_from_slice(body.as_bytes())).expect("encodes")
    }

    #[test]
    fn text_survives_the_way_there_and_back() {
        for text in ["Hello, world!", "  two  spaces\n\tx", "zażółć 日本 🦀", "abcdefghij 12345", ""]
        {
            let body = serde_json::json!({ "prompt": text }).to_string();
            let ids = ids(RequestKind::Completions, &body);
            assert_eq!(WordTokenizer.decode(&ids).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_next_turn_continues_the_ids_of_the_one_before() {
        let first = ids(RequestKind::Chat, r#"{"messages":[{"role":"user","content":"Tell me."}]}"#);
        let mut spoken = first.clone();
        text(" the cat sat", &mut spoken);
        let second = ids(
            RequestKind::Chat,
            r#"{"messages":[{"role":"user","content":"Tell me."},{"role":"assistant","content":" the cat sat"},
                {"role":"user","content":"More."}]}"#,
        );
        assert!(second.starts_with(&spoken));
    }

    #[test]
    fn parts_are_joined_and_images_keep_their_identity() {
        let plain = ids(RequestKind::Chat, r#"{"messages":[{"role":"user","content":"a b"}]}"#);
        let parts = ids(
            RequestKind::Chat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":" b"}]}]}"#,
        );
        assert_eq!(plain, parts);
        let image = |name: &str| {
            let url = format!(r#"{{"type":"image_url","image_url":{{"url":"{name}"}}}}"#);
            ids(RequestKind::Chat, &format!(r#"{{"messages":[{{"role":"user","content":[{url}]}}]}}"#))
        };
        assert_ne!(image("x"), image("y"));
        assert_eq!(image("x"), image("x"));
    }

    #[test]
    fn the_other_kinds_render_like_a_chat() {
        let chat = ids(
            RequestKind::Chat,
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}"#,
        );
        let responses = ids(RequestKind::Responses, r#"{"instructions":"s","input":"u"}"#);
        let messages =
            ids(RequestKind::Messages, r#"{"system":"s","messages":[{"role":"user","content":"u"}]}"#);
        assert_eq!(chat, responses);
        assert_eq!(chat, messages);
    }

    #[test]
    fn a_request_without_a_prompt_is_refused() {
        for body in ["{}", "[1]", "{\"messages\":7}", "{\"prompt\":{}}"] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            assert!(matches!(WordTokenizer.encode(RequestKind::Chat, &body), Err(EncodeError::Invalid(_))));
        }
    }
}
