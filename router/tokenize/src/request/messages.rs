//! Messages as the engine hands them to the template.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use crate::json::{self, Json, Object, object};
use crate::template::ContentFormat;

/// Claude Code puts a line with a hash of the request before its system prompt; the engine cuts it off, because
/// nothing would ever be cached otherwise.
pub const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// One message, ready for the template.
#[derive(Debug)]
pub struct Message {
    role: Arc<str>,
    content: Content,
    rest: Vec<(Arc<str>, Value)>,
}

#[derive(Debug)]
enum Content {
    Text(Arc<str>),
    Parts(Vec<Arc<str>>),
}

impl Message {
    /// Changes the last text, if there is one.
    pub fn map_last_text(&mut self, change: impl FnOnce(&str) -> String) -> Option<()> {
        let text = match &mut self.content {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.last_mut()?,
        };
        *text = change(text).into();
        Some(())
    }

    /// The template's value.
    pub fn into_value(self) -> Value {
        let content = match self.content {
            Content::Text(text) => Value::from(text),
            Content::Parts(parts) => parts
                .into_iter()
                .map(|text| {
                    object([("type".into(), Value::from("text")), ("text".into(), Value::from(text))])
                })
                .collect(),
        };
        object(
            [("role".into(), Value::from(self.role)), ("content".into(), content)]
                .into_iter()
                .chain(self.rest),
        )
    }
}

/// Normalises all messages.
///
/// # Errors
/// `Invalid` where the engine refuses, `Inexact` where we cannot follow it (images, audio).
pub fn normalise(
    messages: &[Json],
    format: ContentFormat,
    knows_developer: bool,
) -> Result<Vec<Message>, TokenizeError> {
    let demote = |role: &str| role == "developer" && !knows_developer;
    let mut merge = false;
    let mut out = Vec::with_capacity(messages.len());
    for message in messages {
        let message = message.as_map().ok_or(TokenizeError::Invalid("a message is no object"))?;
        let role = message.get("role").and_then(Json::as_text).ok_or(TokenizeError::Invalid("no role"))?;
        let mut read = read(message, role, format)?;
        if demote(role) {
            merge = true;
            read.role = "system".into();
            read.rest.retain(|(name, _)| &**name != "tools");
        }
        out.push(read);
    }
    Ok(if merge { merge_system(out) } else { out })
}

fn read(message: &Object, role: &Arc<str>, format: ContentFormat) -> Result<Message, TokenizeError> {
    let mut texts = texts_of(message, role)?;
    if &**role == "system" {
        for text in &mut texts {
            if text.starts_with(BILLING_HEADER) {
                *text = text.split_once('\n').map_or("", |(_, rest)| rest).into();
            }
        }
    }
    // Templates want one string from a tool, even those that want parts from everyone else.
    let content = match format {
        ContentFormat::Parts if &**role != "tool" => Content::Parts(texts),
        _ => Content::Text(join(texts)),
    };
    let mut rest: Vec<(Arc<str>, Value)> = Vec::new();
    match &**role {
        "assistant" => {
            if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
                let calls = calls.as_list().ok_or(TokenizeError::Invalid("tool_calls is no list"))?;
                let calls = calls.iter().map(tool_call).collect::<Result<Vec<_>, _>>()?;
                if !calls.is_empty() {
                    rest.push(("tool_calls".into(), Value::from(calls)));
                }
            }
            let reasoning =
                ["reasoning", "reasoning_content"].iter().find_map(|name| super::field(message, name));
            if let Some(reasoning) = reasoning {
                let text = reasoning.as_text().ok_or(TokenizeError::Invalid("reasoning is no text"))?;
                rest.push(("reasoning".into(), Value::from(Arc::clone(text))));
                rest.push(("reasoning_content".into(), Value::from(Arc::clone(text))));
            }
        }
        "tool" => {
            if let Some(id) = message.get("tool_call_id") {
                rest.push(("tool_call_id".into(), id.to_value()));
            }
        }
        _ => {}
    }
    if let Some(name) = message.get("name").and_then(Json::as_text) {
        rest.push(("name".into(), Value::from(Arc::clone(name))));
    }
    if &**role == "developer" {
        rest.push(("tools".into(), message.get("tools").unwrap_or(&Json::Null).to_value()));
    }
    Ok(Message { role: Arc::clone(role), content, rest })
}

/// The texts of a message's content.
fn texts_of(message: &Object, role: &str) -> Result<Vec<Arc<str>>, TokenizeError> {
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Json::Null) if matches!(role, "assistant" | "function") => Ok(Vec::new()),
        Some(Json::Text(text)) => Ok(vec![Arc::clone(text)]),
        Some(Json::List(parts)) => parts.iter().filter_map(|part| text_of(part).transpose()).collect(),
        Some(_) => Err(TokenizeError::Invalid("content is neither text nor parts")),
    }
}

/// The text of one part; nothing for a part that is skipped.
fn text_of(part: &Json) -> Result<Option<Arc<str>>, TokenizeError> {
    let part = match part {
        Json::Text(text) => return Ok(Some(Arc::clone(text))),
        Json::Map(part) => part,
        _ => return Err(TokenizeError::Invalid("a content part is no object")),
    };
    let key = match part.get("type").and_then(Json::as_text).map(|kind| &**kind) {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some(_) => return Err(TokenizeError::Inexact("a content part that is not text")),
        None => return Err(TokenizeError::Inexact("a content part without its type")),
    };
    match part.get(key) {
        Some(Json::Text(text)) => Ok(Some(Arc::clone(text))),
        None | Some(Json::Null) => Ok(None),
        Some(_) => Err(TokenizeError::Invalid("a text part without text")),
    }
}

fn join(texts: Vec<Arc<str>>) -> Arc<str> {
    let mut texts: Vec<Arc<str>> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    match texts.len() {
        0 => "".into(),
        1 => texts.swap_remove(0),
        _ => texts.join("\n").into(),
    }
}

/// A call of an earlier turn: its arguments are parsed, because templates print them as JSON. The keys stand in the
/// order of the engine's own type.
fn tool_call(call: &Json) -> Result<Value, TokenizeError> {
    let invalid = TokenizeError::Invalid("a malformed tool call");
    let call = call.as_map().ok_or(invalid.clone())?;
    let text = |map: &Object, name: &str| map.get(name).and_then(Json::as_text).cloned();
    let id = text(call, "id").ok_or(invalid.clone())?;
    let kind = text(call, "type").filter(|kind| &**kind == "function").ok_or(invalid.clone())?;
    let function = call.get("function").and_then(Json::as_map).ok_or(invalid.clone())?;
    let name = text(function, "name").ok_or(invalid.clone())?;
    let arguments = parse_arguments(&text(function, "arguments").ok_or(invalid)?)?;
    Ok(object([
        ("id".into(), Value::from(id)),
        (
            "function".into(),
            object([("arguments".into(), arguments.to_value()), ("name".into(), Value::from(name))]),
        ),
        ("type".into(), Value::from(kind)),
    ]))
}

/// What is no JSON object becomes an empty one: a conversation must not become unusable by one bad call.
fn parse_arguments(text: &str) -> Result<Json, TokenizeError> {
    match json::parse(text) {
        Ok(map @ Json::Map(_)) => Ok(map),
        Ok(_) | Err(json::ParseError::Syntax(_)) => Ok(Json::Map(Object::new())),
        Err(json::ParseError::Surrogate(_) | json::ParseError::TooDeep) => {
            Err(TokenizeError::Inexact("tool arguments that cannot be printed"))
        }
    }
}

/// With a developer message demoted, all system messages become one text at the front, with a blank line between them.
/// A lone one that is at the front already stays as it is, parts and all.
fn merge_system(messages: Vec<Message>) -> Vec<Message> {
    let is_system = |message: &Message| &*message.role == "system";
    if !messages.iter().skip(1).any(is_system) {
        return messages;
    }
    let (system, mut others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let texts: Vec<Arc<str>> = system
        .into_iter()
        .map(|message| match message.content {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.join("\n").into(),
        })
        .filter(|text| !text.is_empty())
        .collect();
    let content = Content::Text(texts.join("\n\n").into());
    others.insert(0, Message { role: "system".into(), content, rest: Vec::new() });
    others
}
