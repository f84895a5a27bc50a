//! `/v1/responses`: converted to a chat call as the engine converts it. Only forms that need no earlier response and
//! hold text and function calls; anything else is routed without tokens.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::anthropic::{map, message};
use super::chat::{self, ChatCall};
use super::field;
use super::messages::FunctionOrder;
use super::tools::{self, Function};
use crate::json::{Json, Object};

/// Reads the body.
pub fn read(body: &mut Object) -> Result<ChatCall, TokenizeError> {
    for stateful in ["previous_response_id", "conversation", "previous_input_messages"] {
        if field(body, stateful).is_some() {
            return Err(TokenizeError::NotTokenizable);
        }
    }
    if field(body, "truncation").and_then(Json::as_text).is_some_and(|text| &**text != "disabled") {
        return Err(TokenizeError::Inexact("truncation"));
    }
    let mut messages = Vec::new();
    if let Some(Json::Text(text)) = field(body, "instructions").filter(|text| **text != Json::text("")) {
        messages.push(message("system", [("content", Json::Text(Arc::clone(text)))]));
    }
    match field(body, "input") {
        Some(text @ Json::Text(_)) => messages.push(message("user", [("content", text.clone())])),
        Some(Json::List(items)) if !items.is_empty() => {
            let first = messages.len();
            for item in items {
                convert(
                    item.as_map().ok_or(TokenizeError::Invalid("an input item is no object"))?,
                    first,
                    &mut messages,
                )?;
            }
        }
        _ => return Err(TokenizeError::Invalid("no input")),
    }
    let reasoning = field(body, "reasoning").and_then(Json::as_map);
    let effort = reasoning.and_then(|map| field(map, "effort")).and_then(Json::as_text).cloned();
    let has_arguments = field(body, "chat_template_kwargs").is_some();
    Ok(ChatCall {
        messages,
        tools: convert_tools(body)?,
        arguments: chat::arguments(body, effort, None)?,
        add_generation_prompt: true,
        continue_final_message: false,
        // This API has no such field, and the engine's default for it is not that of chats: a template that prints BOS
        // gives two of them.
        add_special_tokens: true,
        function_order: FunctionOrder::NameFirst,
        has_arguments,
    })
}

fn convert(item: &Object, first: usize, messages: &mut Vec<Json>) -> Result<(), TokenizeError> {
    let text = |name: &str| item.get(name).and_then(Json::as_text);
    if matches!(text("status").map(|status| &**status), Some("in_progress" | "incomplete")) {
        return Err(TokenizeError::Inexact("an unfinished item"));
    }
    match (text("type").map(|kind| &**kind), text("role").map(|role| &**role)) {
        (None | Some("message"), Some(role @ ("user" | "system" | "developer"))) => {
            let content = item.get("content").ok_or(TokenizeError::Invalid("a message without content"))?;
            messages.push(message(role, [("content", content.clone())]));
        }
        (None | Some("message"), Some("assistant")) => {
            let spoken = assistant_text(item)?;
            match previous_assistant(first, messages).filter(|turn| !turn.contains_key("content")) {
                Some(turn) => {
                    turn.insert("content".into(), spoken);
                }
                None => messages.push(message("assistant", [("content", spoken)])),
            }
        }
        (Some("function_call"), _) => {
            if field(item, "namespace").is_some() {
                return Err(TokenizeError::Inexact("a tool in a namespace"));
            }
            let call = function_call(item)?;
            match previous_assistant(first, messages) {
                Some(turn) => match turn.entry("tool_calls".into()).or_insert(Json::List(Vec::new())) {
                    Json::List(calls) => calls.push(call),
                    _ => return Err(TokenizeError::Inexact("a turn of mixed calls")),
                },
                None => messages.push(message("assistant", [("tool_calls", Json::List(vec![call]))])),
            }
        }
        (Some("function_call_output"), _) => {
            let (Some(output), Some(id)) = (text("output"), text("call_id")) else {
                return Err(TokenizeError::Inexact("a tool result that is not text"));
            };
            let fields = [("content", Json::Text(output.clone())), ("tool_call_id", Json::Text(id.clone()))];
            messages.push(message("tool", fields));
        }
        _ => return Err(TokenizeError::Inexact("an input item that is neither message nor function call")),
    }
    Ok(())
}

/// The assistant's turn that an item continues: only one that comes from the input, right before.
fn previous_assistant(first: usize, messages: &mut [Json]) -> Option<&mut Object> {
    if messages.len() <= first {
        return None;
    }
    match messages.last_mut() {
        Some(Json::Map(turn)) if turn.get("role") == Some(&Json::text("assistant")) => Some(turn),
        _ => None,
    }
}

/// The engine takes the first part only.
fn assistant_text(item: &Object) -> Result<Json, TokenizeError> {
    match item.get("content") {
        Some(text @ Json::Text(_)) => Ok(text.clone()),
        None | Some(Json::Null) => Ok(Json::text("")),
        Some(Json::List(parts)) => match parts.first() {
            None => Ok(Json::text("")),
            Some(Json::Map(part)) => match part.get("text") {
                Some(text @ Json::Text(_)) => Ok(text.clone()),
                _ => Err(TokenizeError::Inexact("an answer that is not text")),
            },
            Some(_) => Err(TokenizeError::Inexact("an answer that is not text")),
        },
        Some(_) => Err(TokenizeError::Invalid("content is neither text nor parts")),
    }
}

fn function_call(item: &Object) -> Result<Json, TokenizeError> {
    let text = |name: &str| {
        item.get(name)
            .and_then(Json::as_text)
            .cloned()
            .map(Json::Text)
            .ok_or(TokenizeError::Invalid("a malformed tool call"))
    };
    Ok(map([
        ("id", text("call_id")?),
        ("type", Json::text("function")),
        ("function", map([("name", text("name")?), ("arguments", text("arguments")?)])),
    ]))
}

/// Flat definitions become the chat form. An empty list counts as none here.
fn convert_tools(body: &Object) -> Result<Option<Value>, TokenizeError> {
    let list = match field(body, "tools") {
        None => return Ok(None),
        Some(Json::List(list)) if list.is_empty() => return Ok(None),
        Some(Json::List(list)) => list,
        Some(_) => return Err(TokenizeError::Invalid("tools is no list")),
    };
    let convert = |tool: &Json| {
        let tool = tool.as_map().ok_or(TokenizeError::Invalid("a tool is no object"))?;
        if tool.get("type") != Some(&Json::text("function")) {
            return Err(TokenizeError::Inexact("a tool of the server"));
        }
        let boolean = |value: &Json| matches!(value, Json::Bool(_));
        let function = Function {
            name: tools::name(tool)?,
            description: tools::optional(tool, "description", |value| matches!(value, Json::Text(_)))?,
            parameters: tools::optional(tool, "parameters", |value| matches!(value, Json::Map(_)))?,
            strict: tools::optional(tool, "strict", boolean)?,
            defer_loading: tools::optional(tool, "defer_loading", boolean)?,
        };
        Ok(function.to_value(&Json::Null))
    };
    list.iter().map(convert).collect::<Result<Vec<_>, _>>().map(|tools| Some(Value::from(tools)))
}
