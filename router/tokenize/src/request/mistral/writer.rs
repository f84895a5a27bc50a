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
        let tools_at = if self.version >= MistralVersion::V13 { first_user } else { last_user };
        for (at, turn) in turns.into_iter().enumerate() {
            match turn.role {
                "user" => {
                    if let Some(tools) = tools.filter(|_| tools_at == Some(at)) {
                        self.enclosed("[AVAILABLE_TOOLS]", tools.to_owned(), "[/AVAILABLE_TOOLS]");
                    }
                    let mut text = only_text(turn.content)?;
                    if let Some(system) =
                        system.as_ref().filter(|text| !text.is_empty() && last_user == Some(at))
                    {
                        text = format!("{system}{BLANK_LINE}{text}");
                    }
                    self.enclosed("[INST]", text, "[/INST]");
                }
                "system" => self.enclosed("[SYSTEM_PROMPT]", only_text(turn.content)?, "[/SYSTEM_PROMPT]"),
                "tool" => self.result(turn)?,
                _ => self.assistant(turn)?,
            }
        }
        Ok(self.out)
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
                    open: false,
                },
            );
        }
        Ok((out, system))
    }

    fn assistant(&mut self, turn: Turn) -> Result<(), TokenizeError> {
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
        for chunk in turn.content {
            match chunk {
                // Only an answer that is one text loses its trailing blanks.
                Chunk::Text(text) if !thinks => self.text(text.trim_end_matches(' ').to_owned()),
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
            let list = calls.iter().map(|call| {
                let id = (&*call.id != "null" && !call.id.is_empty())
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
        match self.version {
            MistralVersion::V3 => {
                let content = if text.is_empty() { Json::Map(Object::new()) } else { parse_result(&text)? };
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
    }
}
