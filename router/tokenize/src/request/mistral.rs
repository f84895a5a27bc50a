//! Conversations for Mistral's own tokenizers: no template, but the rules of `mistral-common`, which put control tokens
//! between texts that are encoded one by one. A control token's name in a text stays text.

mod writer;

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::chat::ChatCall;
use super::messages::{FunctionOrder, parse_arguments};
use crate::json::{Json, Object, object};
use crate::template;

use writer::Writer;

/// Between messages that become one, between their parts, and between system texts.
const BLANK_LINE: &str = "\n\n";

/// Longest id of a call; the engine keeps the end of a longer one.
const CALL_ID: usize = 9;

/// The versions of the rules that are known here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MistralVersion {
    /// Instructions marked by text. No tools; system texts stand in the first message of the user.
    V1,
    /// Control tokens, and tools whose calls and results are forgotten with the next message of the user.
    V2,
    /// Calls and results stay, with ids.
    V3,
    /// System messages of their own, results with their call's id.
    V7,
    /// Each call with name, id and arguments.
    V11,
    /// Calls without ids, tools in the first message of the user, reasoning.
    V13,
}

impl MistralVersion {
    /// From `version` of the tokenizer's file.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v2" => Some(Self::V2),
            "v3" => Some(Self::V3),
            "v7" => Some(Self::V7),
            "v11" => Some(Self::V11),
            "v13" => Some(Self::V13),
            _ => None,
        }
    }
}

/// A piece of a prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A control token, by name.
    Control(&'static str),
    /// Text, encoded on its own.
    Text(String),
}

/// One message with its content as chunks.
#[derive(Debug)]
struct Turn {
    role: &'static str,
    content: Vec<Chunk>,
    /// Whether there is any content, be it a list of empty parts.
    spoken: bool,
    calls: Vec<Call>,
    call_id: Option<Arc<str>>,
    /// Which function a result is of, where the client says so.
    name: Option<Arc<str>>,
    open: bool,
}

#[derive(Debug)]
enum Chunk {
    Text(String),
    Thought(Arc<str>),
}

#[derive(Clone, Debug)]
struct Call {
    id: Arc<str>,
    name: Arc<str>,
    arguments: Json,
}

impl ChatCall {
    /// The pieces of the prompt.
    ///
    /// # Errors
    /// `Invalid` where the engine refuses, `Inexact` where we do not follow it.
    pub fn mistral_segments(self, version: MistralVersion) -> Result<Vec<Segment>, TokenizeError> {
        if self.has_arguments {
            return Err(TokenizeError::Invalid("template arguments for a Mistral tokenizer"));
        }
        if self.function_order == FunctionOrder::NameFirst {
            return Err(TokenizeError::Inexact("this API with a Mistral tokenizer"));
        }
        let mut values = crate::json::MAX_VALUES;
        let mut turns =
            self.messages.iter().map(|message| read(message, &mut values)).collect::<Result<Vec<_>, _>>()?;
        let last = turns.last_mut().ok_or(TokenizeError::Invalid("no messages"))?;
        last.open = self.continue_final_message && last.role == "assistant";
        match (last.role, last.open) {
            ("assistant", false) => {
                return Err(TokenizeError::Invalid("the last message is the assistant's"));
            }
            (_, false) if self.continue_final_message => {
                return Err(TokenizeError::Invalid("no message of the assistant to continue"));
            }
            _ => {}
        }
        let tools = self.tools.as_ref().and_then(|tools| tool_list(tools).transpose()).transpose()?;
        Writer::new(version).write(turns, tools.as_deref())
    }
}

/// The tools as one line of JSON; none for an empty list.
fn tool_list(tools: &Value) -> Result<Option<String>, TokenizeError> {
    let unreadable = |_| TokenizeError::Invalid("a tool is no object");
    let mut list: Vec<Value> = Vec::new();
    for tool in tools.try_iter().map_err(unreadable)? {
        let function = tool.get_attr("function").map_err(unreadable)?;
        let field = |name: &str, otherwise: Value| match function.get_attr(name) {
            Ok(value) if !value.is_none() && !value.is_undefined() => value,
            _ => otherwise,
        };
        let function = object([
            ("name".into(), field("name", Value::from(""))),
            ("description".into(), field("description", Value::from(""))),
            ("parameters".into(), field("parameters", object([]))),
        ]);
        list.push(object([("type".into(), Value::from("function")), ("function".into(), function)]));
    }
    Ok((!list.is_empty()).then(|| template::to_json_text(&Value::from(list))))
}

fn read(message: &Json, values: &mut usize) -> Result<Turn, TokenizeError> {
    let message = message.as_map().ok_or(TokenizeError::Invalid("a message is no object"))?;
    let role = match message.get("role").and_then(Json::as_text).map(|role| &**role) {
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("tool") => "tool",
        Some("system" | "developer") => "system",
        _ => return Err(TokenizeError::Invalid("a message of an unknown role")),
    };
    let mut content = content_of(message, role)?;
    let silent = match content.as_slice() {
        [] => true,
        [Chunk::Text(text)] => text.is_empty() && !matches!(message.get("content"), Some(Json::List(_))),
        _ => false,
    };
    let mut calls = Vec::new();
    if role == "assistant" {
        let thought = ["reasoning", "reasoning_content"].iter().find_map(|name| super::field(message, name));
        if let Some(thought) = thought {
            let text = thought.as_text().ok_or(TokenizeError::Invalid("reasoning is no text"))?;
            content.insert(0, Chunk::Thought(Arc::clone(text)));
        }
        for call in message.get("tool_calls").and_then(Json::as_list).unwrap_or_default() {
            calls.push(call_of(call, values)?);
        }
    }
    let call_id = match role {
        "tool" => {
            let id = message.get("tool_call_id").and_then(Json::as_text);
            Some(shorten(id.ok_or(TokenizeError::Invalid("a tool result without its call"))?))
        }
        _ => None,
    };
    let name = match super::field(message, "name") {
        Some(Json::Text(name)) if role == "tool" => Some(Arc::clone(name)),
        _ => None,
    };
    let spoken = !silent || matches!(content.first(), Some(Chunk::Thought(_)));
    Ok(Turn { role, content, spoken, calls, call_id, name, open: false })
}

fn content_of(message: &Object, role: &str) -> Result<Vec<Chunk>, TokenizeError> {
    match message.get("content") {
        None | Some(Json::Null) if role == "assistant" => Ok(Vec::new()),
        Some(Json::Text(text)) => Ok(vec![Chunk::Text(text.to_string())]),
        // The engine reads such a message as one of another kind, and its parts twice: the second time none are left.
        Some(Json::List(_)) if message.contains_key("tools") => {
            Err(TokenizeError::Inexact("parts beside tools in a message"))
        }
        Some(Json::List(parts)) => parts
            .iter()
            .map(|part| {
                let part = part.as_map().ok_or(TokenizeError::Invalid("a content part is no object"))?;
                match (part.get("type").and_then(Json::as_text).map(|kind| &**kind), part.get("text")) {
                    (Some("text"), Some(Json::Text(text))) => Ok(Chunk::Text(text.to_string())),
                    (Some("text"), _) => Err(TokenizeError::Invalid("a text part without text")),
                    _ => Err(TokenizeError::Inexact("a content part that is not text")),
                }
            })
            .collect(),
        _ => Err(TokenizeError::Invalid("content is neither text nor parts")),
    }
}

fn call_of(call: &Json, values: &mut usize) -> Result<Call, TokenizeError> {
    let invalid = TokenizeError::Invalid("a malformed tool call");
    let text = |map: &Object, name: &str| map.get(name).and_then(Json::as_text).cloned();
    let call = call.as_map().ok_or(invalid.clone())?;
    let function = call.get("function").and_then(Json::as_map).ok_or(invalid.clone())?;
    let arguments = text(function, "arguments").ok_or(invalid.clone())?;
    Ok(Call {
        id: shorten(&text(call, "id").ok_or(invalid.clone())?),
        name: text(function, "name").ok_or(invalid)?,
        arguments: parse_arguments(&arguments, values)?,
    })
}

fn shorten(id: &Arc<str>) -> Arc<str> {
    match id.char_indices().rev().nth(CALL_ID - 1) {
        Some((at, _)) if at > 0 => id.get(at..).unwrap_or(id).into(),
        _ => Arc::clone(id),
    }
}

#[cfg(test)]
mod tests;
