//! `/v1/messages`: converted to a chat call as the engine converts it. Forms that hold more than text, images and tools
//! are inexact.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::chat::{self, ChatCall};
use super::field;
use super::messages::{BILLING_HEADER, FunctionOrder};
use super::tools::{self, Function};
use crate::json::{Json, Object};
use crate::template;

/// Reads the body.
pub fn read(body: &mut Object) -> Result<ChatCall, TokenizeError> {
    let mut messages = Vec::new();
    if let Some(text) = system_text(body)? {
        messages.push(message("system", [("content", Json::text(text))]));
    }
    let turns = body.get("messages").and_then(Json::as_list).filter(|list| !list.is_empty());
    for turn in turns.ok_or(TokenizeError::Invalid("no messages"))? {
        convert(turn.as_map().ok_or(TokenizeError::Invalid("a message is no object"))?, &mut messages)?;
    }
    let effort = effort(body)?;
    let has_arguments = field(body, "chat_template_kwargs").is_some();
    Ok(ChatCall {
        messages,
        tools: field(body, "tools").map(convert_tools).transpose()?,
        arguments: chat::arguments(body, effort, None)?,
        add_generation_prompt: true,
        continue_final_message: false,
        add_special_tokens: false,
        function_order: FunctionOrder::ArgumentsFirst,
        has_arguments,
    })
}

/// Blocks are joined without anything between them.
fn system_text(body: &Object) -> Result<Option<String>, TokenizeError> {
    let text = match field(body, "system") {
        None => return Ok(None),
        Some(Json::Text(text)) => text.to_string(),
        Some(Json::List(blocks)) => {
            let mut joined = String::new();
            for block in blocks {
                let block = block.as_map().ok_or(TokenizeError::Invalid("a system block is no object"))?;
                match (kind(block), block.get("text")) {
                    ("text", Some(Json::Text(text))) if !text.starts_with(BILLING_HEADER) => {
                        joined.push_str(text)
                    }
                    ("text", Some(Json::Text(_))) => {}
                    _ => return Err(TokenizeError::Inexact("a system block that is not text")),
                }
            }
            joined
        }
        Some(_) => return Err(TokenizeError::Invalid("system is neither text nor blocks")),
    };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn convert(turn: &Object, messages: &mut Vec<Json>) -> Result<(), TokenizeError> {
    let role = turn.get("role").and_then(Json::as_text).ok_or(TokenizeError::Invalid("no role"))?;
    if !matches!(&**role, "user" | "assistant") {
        return Err(TokenizeError::Inexact("a message that is neither the user's nor the assistant's"));
    }
    let blocks = match turn.get("content") {
        Some(text @ Json::Text(_)) => {
            messages.push(message(role, [("content", text.clone())]));
            return Ok(());
        }
        Some(Json::List(blocks)) => blocks,
        _ => return Err(TokenizeError::Invalid("content is neither text nor blocks")),
    };
    let (mut parts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), String::new());
    let mut thought = false;
    for block in blocks {
        let block = block.as_map().ok_or(TokenizeError::Invalid("a block is no object"))?;
        match kind(block) {
            "text" => {
                let text = block.get("text").and_then(Json::as_text).filter(|text| !text.is_empty());
                parts.extend(
                    text.map(|text| map([("type", Json::text("text")), ("text", Json::Text(text.clone()))])),
                );
            }
            "image" => parts.push(image(block)?),
            "thinking" => {
                thought = true;
                thoughts.push_str(block.get("thinking").and_then(Json::as_text).map_or("", |text| text));
            }
            "redacted_thinking" => {}
            "tool_use" if &**role == "assistant" => calls.push(tool_use(block)?),
            "tool_result" if &**role == "user" => tool_result(block, messages)?,
            _ => return Err(TokenizeError::Inexact("a content block that is neither text nor image")),
        }
    }
    let mut fields: Vec<(&str, Json)> = Vec::new();
    if thought && !thoughts.is_empty() {
        fields.push(("reasoning", Json::text(thoughts)));
    }
    if !calls.is_empty() {
        fields.push(("tool_calls", Json::List(calls)));
    }
    match parts.as_slice() {
        // A user's turn of tool results only has no message of its own.
        [] if &**role == "user" => return Ok(()),
        [] => {}
        [Json::Map(only)] if only.contains_key("text") => {
            fields.extend(only.get("text").map(|text| ("content", text.clone())));
        }
        _ => fields.push(("content", Json::List(parts))),
    }
    messages.push(message(role, fields));
    Ok(())
}

fn tool_use(block: &Object) -> Result<Json, TokenizeError> {
    let text = |name: &str| block.get(name).and_then(Json::as_text).cloned();
    let id = text("id").ok_or(TokenizeError::Inexact("a tool call without an id"))?;
    let arguments = match field(block, "input") {
        Some(input) => template::to_json(&input.to_value()),
        None => "{}".to_owned(),
    };
    Ok(map([
        ("id", Json::Text(id)),
        ("type", Json::text("function")),
        (
            "function",
            map([
                ("name", Json::Text(text("name").unwrap_or_default())),
                ("arguments", Json::text(arguments)),
            ]),
        ),
    ]))
}

/// An image as the chat API has it. Its data do not matter here.
fn image(block: &Object) -> Result<Json, TokenizeError> {
    let source = block.get("source").and_then(Json::as_map);
    let holder = match source.map(kind) {
        Some("base64") => "data",
        Some("url") => "url",
        _ => return Err(TokenizeError::Inexact("an image without its source")),
    };
    let data = source.and_then(|source| source.get(holder)).and_then(Json::as_text);
    if data.is_none_or(|data| data.is_empty()) {
        return Err(TokenizeError::Inexact("an image without its source"));
    }
    Ok(map([("type", Json::text("image_url")), ("image_url", map([("url", Json::text("data:"))]))]))
}

/// Texts of a result are joined with a newline; its images follow as a message of the user.
fn tool_result(block: &Object, messages: &mut Vec<Json>) -> Result<(), TokenizeError> {
    let mut images = Vec::new();
    let text: Arc<str> = match block.get("content") {
        None | Some(Json::Null) => "".into(),
        Some(Json::Text(text)) => Arc::clone(text),
        Some(Json::List(parts)) => {
            let mut texts: Vec<&str> = Vec::new();
            for part in parts {
                let part = part.as_map().ok_or(TokenizeError::Inexact("a tool result that is not text"))?;
                match (kind(part), part.get("text")) {
                    ("text", Some(Json::Text(text))) => texts.push(text),
                    ("image", _) => images.push(image(part)?),
                    _ => return Err(TokenizeError::Inexact("a tool result that is not text")),
                }
            }
            texts.join("\n").into()
        }
        Some(_) => return Err(TokenizeError::Invalid("a tool result of the wrong kind")),
    };
    let id = block.get("tool_use_id").and_then(Json::as_text).cloned().unwrap_or_default();
    messages.push(message("tool", [("tool_call_id", Json::Text(id)), ("content", Json::Text(text))]));
    if !images.is_empty() {
        messages.push(message("user", [("content", Json::List(images))]));
    }
    Ok(())
}

fn convert_tools(list: &Json) -> Result<Value, TokenizeError> {
    let list = list.as_list().ok_or(TokenizeError::Invalid("tools is no list"))?;
    let convert = |tool: &Json| {
        let tool = tool.as_map().ok_or(TokenizeError::Invalid("a tool is no object"))?;
        if !matches!(kind(tool), "" | "custom") {
            return Err(TokenizeError::Inexact("a tool of the server"));
        }
        let mut schema = match tool.get("input_schema") {
            Some(Json::Map(schema)) => schema.clone(),
            _ => return Err(TokenizeError::Invalid("a tool without its schema")),
        };
        // The engine completes a schema that does not say its type.
        schema.entry("type".into()).or_insert_with(|| Json::text("object"));
        let defer_loading = tools::optional(tool, "defer_loading", |value| matches!(value, Json::Bool(_)))?;
        let function = Function {
            name: tools::name(tool)?,
            description: tools::optional(tool, "description", |value| matches!(value, Json::Text(_)))?,
            parameters: &Json::Map(schema),
            strict: &Json::Null,
            defer_loading,
        };
        Ok(function.to_value(&Json::Null))
    };
    list.iter().map(convert).collect::<Result<Vec<_>, _>>().map(Value::from)
}

/// `thinking: disabled` counts as no effort. What thinking switched on does depends on the engine's version.
fn effort(body: &Object) -> Result<Option<Arc<str>>, TokenizeError> {
    if let Some(thinking) = field(body, "thinking") {
        return match thinking.as_map().map(kind) {
            Some("disabled") => Ok(Some("none".into())),
            _ => Err(TokenizeError::Inexact("thinking switched on")),
        };
    }
    let effort =
        field(body, "output_config").and_then(Json::as_map).and_then(|config| field(config, "effort"));
    Ok(effort.and_then(Json::as_text).cloned())
}

fn kind(block: &Object) -> &str {
    block.get("type").and_then(Json::as_text).map_or("", |kind| kind)
}

/// A chat message from its parts.
pub fn message<'a>(role: &str, fields: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    map([("role", Json::text(role))].into_iter().chain(fields))
}

/// An object from its parts.
pub fn map<'a>(fields: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    Json::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}
