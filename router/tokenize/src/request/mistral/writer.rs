//! Turns to pieces: what the rules put between the texts, by version.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::{BLANK_LINE, Call, Chunk, MistralVersion, Segment, Turn};
use crate::json::{Json, Object, ParseError, object, parse};
use crate::template;

/// The texts of several messages as one content: parts and messages are divided by blank lines, empty ones skipped,
/// and thoughts keep their place.
fn gather(contents: impl IntoIterator<Item = Vec<Chunk>>) -> Vec<Chunk> {
    let mut out: Vec<Chunk> = Vec::new();
    for chunk in contents.into_iter().flatten() {
        match (chunk, out.last_mut()) {
            (Chunk::Text(text), _) if text.is_empty() => {}
            (Chunk::Text(text), Some(Chunk::Text(before))) => {
                before.push_str(BLANK_LINE);
                before.push_str(&text);
            }
            (chunk, _) => out.push(chunk),
        }
    }
    out
}

/// The single text of a content without thoughts.
fn only_text(content: Vec<Chunk>) -> Result<String, TokenizeError> {
    let mut text = String::new();
    for chunk in content {
        match chunk {
            Chunk::Text(part) => text.push_str(&part),
            Chunk::Thought(_) => return Err(TokenizeError::Invalid("a thought in the wrong place")),
        }
    }
    Ok(text)
}

/// Writes one prompt.
pub struct Writer {
    version: MistralVersion,
    out: Vec<Segment>,
}

impl Writer {
    /// A prompt that has begun.
    pub fn new(version: MistralVersion) -> Self {
        Self { version, out: vec![Segment::Control("<s>")] }
    }

    /// The pieces of a conversation.
    ///
    /// # Errors
    /// As [`super::ChatCall::mistral_segments`].
    pub fn write(mut self, turns: Vec<Turn>, tools: Option<&str>) -> Result<Vec<Segment>, TokenizeError> {
        let (turns, system) = self.aggregate(turns)?;
        let users = || turns.iter().enumerate().filter(|(_, turn)| turn.role == "user").map(|(at, _)| at);
        let (first_user, last_user) = (users().next(), users().next_back());
        if self.version == MistralVersion::V2 {
            check_results(turns.get(last_user.unwrap_or_default()..).unwrap_or_default())?;
        }
        let tools_at = if self.version >= MistralVersion::V13 { first_user } else { last_user };
        let system_at = if self.version == MistralVersion::V1 { first_user } else { last_user };
        for (at, turn) in turns.into_iter().enumerate() {
            let forgotten = self.version == MistralVersion::V2 && last_user.is_some_and(|last| at < last);
            match turn.role {
                "user" => {
                    let tools = tools.filter(|_| tools_at == Some(at));
                    let system = system.as_deref().filter(|text| !text.is_empty() && system_at == Some(at));
                    self.user(only_text(turn.content)?, system, tools);
                }
                "system" => self.enclosed("[SYSTEM_PROMPT]", only_text(turn.content)?, "[/SYSTEM_PROMPT]"),
                "tool" if forgotten => {}
                "tool" => self.result(turn)?,
                _ => self.assistant(turn, forgotten)?,
            }
        }
        Ok(self.out)
    }

    fn user(&mut self, mut text: String, system: Option<&str>, tools: Option<&str>) {
        if let Some(system) = system {
            text = format!("{system}{BLANK_LINE}{text}");
        }
        if self.version == MistralVersion::V1 {
            // The marks are text like any other; tools are not spoken of.
            return self.text(format!("[INST] {text} [/INST]"));
        }
        if let Some(tools) = tools {
            self.enclosed("[AVAILABLE_TOOLS]", tools.to_owned(), "[/AVAILABLE_TOOLS]");
        }
        self.enclosed("[INST]", text, "[/INST]");
    }

    /// Messages of one role in a row become one, except results and system messages. Before v7 the system texts are
    /// taken out, and the user speaks first.
    fn aggregate(&self, turns: Vec<Turn>) -> Result<(Vec<Turn>, Option<String>), TokenizeError> {
        let inline = self.version >= MistralVersion::V7;
        let mut system: Option<String> = None;
        let mut out: Vec<Turn> = Vec::new();
        let mut previous = "";
        let mut calls: Vec<Arc<str>> = Vec::new();
        for mut turn in turns {
            let role = turn.role;
            if role == "assistant" && !inline && turn.calls.is_empty() != turn.spoken {
                return Err(TokenizeError::Invalid("either text or tool calls"));
            }
            turn.content = gather([std::mem::take(&mut turn.content)]);
            match (role, previous == role) {
                ("system", _) if !inline => {
                    if turn.spoken {
                        let text = only_text(turn.content)?;
                        system = Some(match system {
                            Some(before) => format!("{before}{BLANK_LINE}{text}"),
                            None => text,
                        });
                    }
                }
                ("user" | "assistant", true) => {
                    if let Some(last) = out.last_mut() {
                        last.content = gather([std::mem::take(&mut last.content), turn.content]);
                        last.calls.extend(turn.calls);
                        last.open |= turn.open;
                    }
                }
                _ => out.push(turn),
            }
            previous = role;
        }
        if self.version >= MistralVersion::V11 {
            sort_results(&mut out, &mut calls);
        }
        if out.first().is_none_or(|first| !inline && first.role != "user") {
            out.insert(
                0,
                Turn {
                    role: "user",
                    content: Vec::new(),
                    spoken: false,
                    calls: Vec::new(),
                    call_id: None,
                    name: None,
                    open: false,
                },
            );
        }
        Ok((out, system))
    }

    /// An answer, or calls; calls that are forgotten leave nothing, not even an end.
    fn assistant(&mut self, turn: Turn, forgotten: bool) -> Result<(), TokenizeError> {
        if turn.content.is_empty() && turn.calls.is_empty() {
            return Err(TokenizeError::Invalid("the assistant says nothing"));
        }
        let thinks = turn.content.iter().any(|chunk| matches!(chunk, Chunk::Thought(_)));
        if thinks && self.version < MistralVersion::V13 {
            return Err(TokenizeError::Invalid("reasoning before v13"));
        }
        if !turn.content.is_empty() && !turn.calls.is_empty() && self.version < MistralVersion::V7 {
            return Err(TokenizeError::Invalid("either text or tool calls"));
        }
        if !turn.calls.is_empty() && self.version == MistralVersion::V1 {
            return Err(TokenizeError::Invalid("tools before v2"));
        }
        if !turn.calls.is_empty() && forgotten {
            return Ok(());
        }
        for chunk in turn.content {
            match chunk {
                // Only an answer that is one text loses its trailing blanks, and not in v1.
                Chunk::Text(text) if !thinks && self.version > MistralVersion::V1 => {
                    self.text(text.trim_end_matches(' ').to_owned())
                }
                Chunk::Text(text) => self.text(text),
                Chunk::Thought(text) => self.enclosed("[THINK]", text.to_string(), "[/THINK]"),
            }
        }
        if !turn.calls.is_empty() {
            self.calls(&turn.calls);
        }
        if !turn.open {
            self.control("</s>");
        }
        Ok(())
    }

    fn calls(&mut self, calls: &[Call]) {
        if self.version < MistralVersion::V11 {
            let with_id = self.version >= MistralVersion::V3;
            let list = calls.iter().map(|call| {
                let id = (with_id && &*call.id != "null" && !call.id.is_empty())
                    .then(|| ("id".into(), Value::from(Arc::clone(&call.id))));
                let fields = [
                    ("name".into(), Value::from(Arc::clone(&call.name))),
                    ("arguments".into(), call.arguments.to_value()),
                ];
                object(fields.into_iter().chain(id))
            });
            self.control("[TOOL_CALLS]");
            return self.text(template::to_json_text(&list.collect()));
        }
        for call in calls {
            self.control("[TOOL_CALLS]");
            self.text(call.name.to_string());
            if self.version < MistralVersion::V13 && &*call.id != "null" && !call.id.is_empty() {
                self.control("[CALL_ID]");
                self.text(call.id.to_string());
            }
            self.control("[ARGS]");
            self.text(template::to_json_text(&call.arguments.to_value()));
        }
    }

    fn result(&mut self, turn: Turn) -> Result<(), TokenizeError> {
        let text = only_text(turn.content)?;
        let id = turn.call_id.unwrap_or_default();
        let parsed =
            |text: &str| if text.is_empty() { Ok(Json::Map(Object::new())) } else { parse_result(text) };
        match self.version {
            MistralVersion::V1 => return Err(TokenizeError::Invalid("tools before v2")),
            MistralVersion::V2 => {
                let content = parsed(&text)?;
                let name = turn.name.map_or(Value::from(()), Value::from);
                let result = object([("name".into(), name), ("content".into(), content.to_value())]);
                let list = template::to_json_text(&Value::from(vec![result]));
                self.enclosed("[TOOL_RESULTS]", list, "[/TOOL_RESULTS]");
            }
            MistralVersion::V3 => {
                let content = parsed(&text)?;
                let result =
                    object([("content".into(), content.to_value()), ("call_id".into(), Value::from(id))]);
                self.enclosed("[TOOL_RESULTS]", template::to_json_text(&result), "[/TOOL_RESULTS]");
            }
            MistralVersion::V7 | MistralVersion::V11 => {
                self.control("[TOOL_RESULTS]");
                self.text(id.to_string());
                self.enclosed("[TOOL_CONTENT]", text, "[/TOOL_RESULTS]");
            }
            MistralVersion::V13 => self.enclosed("[TOOL_RESULTS]", text, "[/TOOL_RESULTS]"),
        }
        Ok(())
    }

    fn enclosed(&mut self, before: &'static str, text: String, after: &'static str) {
        self.control(before);
        self.text(text);
        self.control(after);
    }

    fn control(&mut self, name: &'static str) {
        self.out.push(Segment::Control(name));
    }

    fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.out.push(Segment::Text(text));
        }
    }
}

/// v2 has no place for more than one result of a turn with calls.
fn check_results(turns: &[Turn]) -> Result<(), TokenizeError> {
    let (mut called, mut results) = (false, 0);
    for turn in turns {
        if turn.role == "tool" {
            results += usize::from(called);
            if results > 1 {
                return Err(TokenizeError::Invalid("several results in v2"));
            }
        } else {
            called = turn.role == "assistant" && !turn.calls.is_empty();
            results = 0;
        }
    }
    Ok(())
}

/// Results in the order of their calls, others behind them.
fn sort_results(turns: &mut [Turn], calls: &mut Vec<Arc<str>>) {
    let mut at = 0;
    while at < turns.len() {
        let run = turns.get(at..).unwrap_or_default().iter().take_while(|turn| turn.role == "tool").count();
        if run == 0 {
            if let Some(turn) = turns.get(at).filter(|turn| turn.role == "assistant") {
                calls.extend(turn.calls.iter().map(|call| Arc::clone(&call.id)));
            }
            at += 1;
            continue;
        }
        if let Some(results) = turns.get_mut(at..at + run) {
            let place = |turn: &Turn| {
                calls.iter().rposition(|id| Some(id) == turn.call_id.as_ref()).unwrap_or(usize::MAX)
            };
            results.sort_by_key(place);
        }
        calls.clear();
        at += run;
    }
}

/// A result that is JSON is printed as JSON, any other as a string.
fn parse_result(text: &str) -> Result<Json, TokenizeError> {
    match parse(text) {
        Ok(value) => Ok(value),
        Err(ParseError::Syntax(_)) => Ok(Json::text(text)),
        Err(ParseError::Surrogate(_) | ParseError::TooDeep) => {
            Err(TokenizeError::Inexact("a tool result that cannot be printed"))
        }
        Err(ParseError::TooMany) => Err(TokenizeError::Inexact("too many values")),
    }
}
