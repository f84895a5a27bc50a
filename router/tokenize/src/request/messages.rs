//! Messages as the engine hands them to the template.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::media::Medium;
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
    Parts(Vec<Part>),
}

/// A part of a content, with what else the client wrote into it.
#[derive(Debug)]
struct Part {
    /// What stands in for the text of anything but text.
    medium: Option<Medium>,
    text: Arc<str>,
    rest: Vec<(Arc<str>, Value)>,
}

/// Fields of content parts that mean something to the engine, and so do not reach the template.
const PART_FIELDS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

/// In which order the engine writes the fields of a called function; templates that print whole calls show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionOrder {
    /// Of the chat API's type.
    ArgumentsFirst,
    /// As `/v1/responses` builds its calls.
    NameFirst,
}

impl Message {
    /// Changes the last text, if there is one.
    pub fn map_last_text(&mut self, change: impl FnOnce(&str) -> String) -> Option<()> {
        let text = match &mut self.content {
            Content::Text(text) => text,
            Content::Parts(parts) => &mut parts.last_mut().filter(|part| part.medium.is_none())?.text,
        };
        *text = change(text).into();
        Some(())
    }

    /// The template's value.
    pub fn into_value(self) -> Value {
        let content = match self.content {
            Content::Text(text) => Value::from(text),
            Content::Parts(parts) => parts.into_iter().map(Part::into_value).collect(),
        };
        object(
            [("role".into(), Value::from(self.role)), ("content".into(), content)]
                .into_iter()
                .chain(self.rest),
        )
    }
}

impl Part {
    fn of_text(text: &Arc<str>) -> Self {
        Self { medium: None, text: Arc::clone(text), rest: Vec::new() }
    }

    fn into_value(self) -> Value {
        let known = match self.medium {
            Some(medium) => vec![("type".into(), Value::from(medium.as_str()))],
            None => vec![("type".into(), Value::from("text")), ("text".into(), Value::from(self.text))],
        };
        object(known.into_iter().chain(self.rest))
    }
}

/// Normalises all messages. Media are kept as the template's own kind of parts, or left out where it takes texts only:
/// what the engine puts there is not known here.
///
/// # Errors
/// `Invalid` where the engine refuses, `Inexact` where we cannot follow it.
pub fn normalise(
    messages: &[Json],
    format: ContentFormat,
    knows_developer: bool,
    order: FunctionOrder,
) -> Result<Vec<Message>, TokenizeError> {
    let demote = |role: &str| role == "developer" && !knows_developer;
    let mut merge = false;
    // What the calls' arguments become stays until the text is rendered, so all of them have one bound.
    let mut values = json::MAX_VALUES;
    let mut out = Vec::with_capacity(messages.len());
    for message in messages {
        let message = message.as_map().ok_or(TokenizeError::Invalid("a message is no object"))?;
        let role = message.get("role").and_then(Json::as_text).ok_or(TokenizeError::Invalid("no role"))?;
        let mut read = read(message, role, format, order, &mut values)?;
        if demote(role) {
            merge = true;
            read.role = "system".into();
            read.rest.retain(|(name, _)| &**name != "tools");
        }
        out.push(read);
    }
    Ok(if merge { merge_system(out) } else { out })
}

fn read(
    message: &Object,
    role: &Arc<str>,
    format: ContentFormat,
    order: FunctionOrder,
    values: &mut usize,
) -> Result<Message, TokenizeError> {
    let parts = parts_of(message, role)?;
    let content = match format {
        // Templates want one string from a tool, even those that want parts from everyone else.
        ContentFormat::Parts if &**role == "tool" => Content::Text(join(parts, "\n")),
        ContentFormat::Parts => Content::Parts(parts),
        ContentFormat::Text => {
            let is_empty = |part: &Part| part.text.is_empty() || part.medium.is_some();
            Content::Text(join(parts.into_iter().filter(|part| !is_empty(part)).collect(), "\n"))
        }
    };
    let mut rest: Vec<(Arc<str>, Value)> = Vec::new();
    match &**role {
        "assistant" => {
            if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
                let calls = calls.as_list().ok_or(TokenizeError::Invalid("tool_calls is no list"))?;
                let calls =
                    calls.iter().map(|call| tool_call(call, order, values)).collect::<Result<Vec<_>, _>>()?;
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
    for name in ["name", "task"] {
        if let Some(text) = message.get(name).and_then(Json::as_text) {
            rest.push((name.into(), Value::from(Arc::clone(text))));
        }
    }
    if &**role == "developer" {
        rest.push(("tools".into(), message.get("tools").unwrap_or(&Json::Null).to_value()));
    }
    Ok(Message { role: Arc::clone(role), content, rest })
}

/// The parts of a message's content.
fn parts_of(message: &Object, role: &str) -> Result<Vec<Part>, TokenizeError> {
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Json::Null) if matches!(role, "assistant" | "function") => Ok(Vec::new()),
        Some(Json::Text(text)) => Ok(clean(Part::of_text(text), role).into_iter().collect()),
        Some(Json::List(parts)) => {
            parts.iter().filter_map(|part| read_part(part, role).transpose()).collect()
        }
        Some(_) => Err(TokenizeError::Invalid("content is neither text nor parts")),
    }
}

/// One part; nothing for a part that is skipped.
fn read_part(part: &Json, role: &str) -> Result<Option<Part>, TokenizeError> {
    let part = match part {
        Json::Text(text) => return Ok(clean(Part::of_text(text), role)),
        Json::Map(part) => part,
        _ => return Err(TokenizeError::Invalid("a content part is no object")),
    };
    if super::field(part, "uuid").is_some() {
        return Err(TokenizeError::Inexact("a content part with a uuid"));
    }
    let unknown = part.iter().filter(|(name, _)| !PART_FIELDS.contains(&&***name));
    let rest = unknown.map(|(name, value)| (Arc::clone(name), value.to_value())).collect();
    if let Some(medium) = Medium::of(part) {
        return Ok(Some(Part { medium: Some(medium), text: "".into(), rest }));
    }
    let kind = part.get("type").and_then(Json::as_text).map(|kind| &**kind);
    let key = match kind {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some("thinking") => "thinking",
        Some(_) => return Err(TokenizeError::Inexact("a content part of an unknown kind")),
        None => return Err(TokenizeError::Inexact("a content part without its type")),
    };
    let text = match part.get(key) {
        Some(Json::Text(text)) => Arc::clone(text),
        None | Some(Json::Null) => return Ok(None),
        Some(_) => return Err(TokenizeError::Invalid("a text part without text")),
    };
    let part = Part { medium: None, text, rest };
    Ok(if kind == Some("text") { clean(part, role) } else { Some(part) })
}

/// Cuts the billing line off a system text; a text of nothing else is gone altogether.
fn clean(mut part: Part, role: &str) -> Option<Part> {
    if role == "system" && part.text.starts_with(BILLING_HEADER) {
        part.text = part.text.split_once('\n').map(|(_, rest)| rest).filter(|rest| !rest.is_empty())?.into();
    }
    Some(part)
}

fn join(mut parts: Vec<Part>, separator: &str) -> Arc<str> {
    match parts.len() {
        0 => "".into(),
        1 => parts.swap_remove(0).text,
        _ => parts.iter().map(|part| &*part.text).collect::<Vec<_>>().join(separator).into(),
    }
}

/// A call of an earlier turn: its arguments are parsed, because templates print them as JSON. The keys stand in the
/// order of the engine's own type; others follow as they came.
fn tool_call(call: &Json, order: FunctionOrder, values: &mut usize) -> Result<Value, TokenizeError> {
    let invalid = TokenizeError::Invalid("a malformed tool call");
    let call = call.as_map().ok_or(invalid.clone())?;
    let text = |map: &Object, name: &str| map.get(name).and_then(Json::as_text).cloned();
    let id = text(call, "id").ok_or(invalid.clone())?;
    let kind = text(call, "type").filter(|kind| &**kind == "function").ok_or(invalid.clone())?;
    let function = call.get("function").and_then(Json::as_map).ok_or(invalid.clone())?;
    let name = text(function, "name").ok_or(invalid.clone())?;
    let arguments = parse_arguments(&text(function, "arguments").ok_or(invalid)?, values)?;
    let mut fields: Vec<(Arc<str>, Value)> =
        vec![("arguments".into(), arguments.to_value()), ("name".into(), Value::from(name))];
    if order == FunctionOrder::NameFirst {
        fields.reverse();
    }
    let function = object(fields.into_iter().chain(others(function, &["arguments", "name"])));
    let known =
        [("id".into(), Value::from(id)), ("function".into(), function), ("type".into(), Value::from(kind))];
    Ok(object(known.into_iter().chain(others(call, &["id", "function", "type"]))))
}

/// The fields of an object apart from some.
fn others<'a>(map: &'a Object, known: &'a [&str]) -> impl Iterator<Item = (Arc<str>, Value)> + 'a {
    map.iter()
        .filter(|(name, _)| !known.contains(&&***name))
        .map(|(name, value)| (Arc::clone(name), value.to_value()))
}

/// What is no JSON object becomes an empty one: a conversation must not become unusable by one bad call.
/// Takes off `values` what it keeps.
pub fn parse_arguments(text: &str, values: &mut usize) -> Result<Json, TokenizeError> {
    match json::parse_within(text, values) {
        Ok(map @ Json::Map(_)) => Ok(map),
        Ok(_) | Err(json::ParseError::Syntax(_)) => Ok(Json::Map(Object::new())),
        Err(json::ParseError::Surrogate(_) | json::ParseError::TooDeep) => {
            Err(TokenizeError::Inexact("tool arguments that cannot be printed"))
        }
        Err(json::ParseError::TooMany) => Err(TokenizeError::Inexact("too many values")),
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
            Content::Parts(parts) => join(parts, "\n"),
        })
        .filter(|text| !text.is_empty())
        .collect();
    let content = Content::Text(texts.join("\n\n").into());
    others.insert(0, Message { role: "system".into(), content, rest: Vec::new() });
    others
}

#[cfg(test)]
mod tests;
