//! Request bodies, put together from text that was escaped once.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::config::{Api, Target};
use crate::error::ProbeError;

/// What stands before and after the prompt in every body of a run.
#[derive(Clone, Debug)]
pub(crate) struct BodyShape {
    api: Api,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Who says a piece of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// The system prompt.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Everything said so far, as it stands in a body: the messages of a chat, or one running text.
#[derive(Clone, Debug)]
pub(crate) struct Transcript {
    api: Api,
    escaped: Vec<u8>,
}

impl BodyShape {
    /// The shape for a target; its extra fields are checked and merged.
    pub(crate) fn new(target: &Target) -> Result<Self, ProbeError> {
        for field in ["model", "messages", "prompt", "stream"] {
            if target.extra_body.contains_key(field) {
                return Err(ProbeError::ReservedField(field.to_owned()));
            }
        }
        let mut fields = Map::new();
        fields.insert("stream".to_owned(), Value::from(target.stream));
        if target.stream {
            fields.insert("stream_options".to_owned(), serde_json::json!({"include_usage": true}));
        }
        fields.insert("max_tokens".to_owned(), Value::from(target.max_tokens));
        fields.insert("temperature".to_owned(), Value::from(0));
        fields.extend(target.extra_body.clone());

        let (opening, closing) = match target.api {
            Api::Chat => (r#","messages":["#, "],"),
            Api::Completions => (r#","prompt":""#, r#"","#),
        };
        let head = format!(r#"{{"model":"{}"{opening}"#, escape(&target.model));
        // The fields are an object of their own; its opening brace is what joins it to the prompt.
        let tail = format!("{closing}{}", Value::Object(fields).to_string().trim_start_matches('{'));
        Ok(Self { api: target.api, head: head.into_bytes(), tail: tail.into_bytes() })
    }

    /// An empty transcript of this shape.
    pub(crate) fn transcript(&self) -> Transcript {
        Transcript { api: self.api, escaped: Vec::new() }
    }

    /// The body that sends a transcript.
    pub(crate) fn wrap(&self, transcript: &Transcript) -> Bytes {
        let mut body = Vec::with_capacity(self.head.len() + transcript.escaped.len() + self.tail.len());
        body.extend_from_slice(&self.head);
        body.extend_from_slice(&transcript.escaped);
        body.extend_from_slice(&self.tail);
        Bytes::from(body)
    }
}

impl Transcript {
    /// Appends what someone says, in pieces that are escaped already.
    ///
    /// Completions have no speakers: an answer goes on where the text ended, and what a person adds starts a new
    /// paragraph.
    pub(crate) fn say(&mut self, speaker: Speaker, escaped: &[&str]) {
        let closing: &[u8] = match self.api {
            Api::Chat => {
                if !self.escaped.is_empty() {
                    self.escaped.push(b',');
                }
                let role = match speaker {
                    Speaker::System => "system",
                    Speaker::User => "user",
                    Speaker::Assistant => "assistant",
                };
                self.escaped.extend_from_slice(format!(r#"{{"role":"{role}","content":""#).as_bytes());
                b"\"}"
            }
            Api::Completions => {
                if !self.escaped.is_empty() && speaker != Speaker::Assistant {
                    self.escaped.extend_from_slice(br"\n\n");
                }
                b""
            }
        };
        for piece in escaped {
            self.escaped.extend_from_slice(piece.as_bytes());
        }
        self.escaped.extend_from_slice(closing);
    }
}

/// The text as it stands between the quotes of a JSON string.
pub(crate) fn escape(text: &str) -> String {
    let mut quoted = Value::from(text).to_string();
    quoted.pop();
    quoted.drain(..1);
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(target: &Target, lines: &[(Speaker, &str)]) -> Value {
        let shape = BodyShape::new(target).unwrap();
        let mut transcript = shape.transcript();
        for (speaker, text) in lines {
            transcript.say(*speaker, &[&escape(text), &escape("\t!")]);
        }
        serde_json::from_slice(&shape.wrap(&transcript)).unwrap()
    }

    const TALK: [(Speaker, &str); 4] = [
        (Speaker::System, "be \"kind\""),
        (Speaker::User, "hi\n"),
        (Speaker::Assistant, "\u{1}ho"),
        (Speaker::User, "bye \\"),
    ];

    #[test]
    fn a_chat_body_holds_every_message() {
        let target = Target::new("http://a", "the \"model\"");
        assert_eq!(
            body(&target, &TALK),
            json!({
                "model": "the \"model\"",
                "messages": [
                    {"role": "system", "content": "be \"kind\"\t!"},
                    {"role": "user", "content": "hi\n\t!"},
                    {"role": "assistant", "content": "\u{1}ho\t!"},
                    {"role": "user", "content": "bye \\\t!"},
                ],
                "stream": true,
                "stream_options": {"include_usage": true},
                "max_tokens": 64,
                "temperature": 0,
            })
        );
    }

    #[test]
    fn a_completions_body_is_one_text_and_extra_fields_win() {
        let mut target = Target::new("http://a", "m");
        target.api = Api::Completions;
        target.stream = false;
        target.extra_body = serde_json::from_str(r#"{"max_tokens":3,"ignore_eos":true}"#).unwrap();
        assert_eq!(
            body(&target, &TALK[1..]),
            json!({
                "model": "m",
                "prompt": "hi\n\t!\u{1}ho\t!\n\nbye \\\t!",
                "stream": false,
                "max_tokens": 3,
                "temperature": 0,
                "ignore_eos": true,
            })
        );
    }

    #[test]
    fn the_prompt_cannot_be_replaced() {
        let mut target = Target::new("http://a", "m");
        target.extra_body = serde_json::from_str(r#"{"messages":[]}"#).unwrap();
        assert_eq!(BodyShape::new(&target).unwrap_err(), ProbeError::ReservedField("messages".to_owned()));
    }
}
