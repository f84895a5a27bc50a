//! Streamed answers of the Responses API and of Anthropic's Messages API.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::Desk;
use super::stream::{Format, named_event};
use super::whole::{Count, Heading, message_usage, output_item, output_text, response_object, stop_reason};

/// `response.*` events.
pub(crate) struct ResponseEvents {
    heading: Heading,
    desk: Arc<Desk>,
    text: String,
    sequence: u64,
}

impl ResponseEvents {
    /// `desk` keeps the finished answer.
    pub(crate) fn new(heading: Heading, desk: Arc<Desk>) -> Self {
        Self { heading, desk, text: String::new(), sequence: 0 }
    }

    fn push(&mut self, name: &str, mut fields: Value, out: &mut VecDeque<Bytes>) {
        fields["type"] = name.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.push_back(named_event(name, &fields));
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.heading.id)
    }
}

impl Format for ResponseEvents {
    fn begin(&mut self, _: usize, _: Count, out: &mut VecDeque<Bytes>) {
        for name in ["response.created", "response.in_progress"] {
            let response = response_object(&self.heading, "in_progress", json!([]), None);
            self.push(name, json!({ "response": response }), out);
        }
        let item = output_item(&self.heading, "in_progress", None);
        self.push("response.output_item.added", json!({"output_index": 0, "item": item}), out);
        let part = json!({
            "item_id": self.item_id(), "output_index": 0, "content_index": 0, "part": output_text(""),
        });
        self.push("response.content_part.added", part, out);
    }

    fn token(&mut self, _: usize, text: &str, _: Option<&'static str>, out: &mut VecDeque<Bytes>) {
        self.text.push_str(text);
        let delta = json!({
            "item_id": self.item_id(), "output_index": 0, "content_index": 0, "delta": text, "logprobs": [],
        });
        self.push("response.output_text.delta", delta, out);
    }

    fn end(&mut self, count: Count, out: &mut VecDeque<Bytes>) {
        let place = json!({"item_id": self.item_id(), "output_index": 0, "content_index": 0});
        let mut text = place.clone();
        text["text"] = self.text.as_str().into();
        self.push("response.output_text.done", text, out);
        let mut part = place;
        part["part"] = output_text(&self.text);
        self.push("response.content_part.done", part, out);
        let item = output_item(&self.heading, "completed", Some(&self.text));
        self.push("response.output_item.done", json!({"output_index": 0, "item": item}), out);
        let response = response_object(&self.heading, "completed", json!([item]), Some(count));
        self.desk.store_response(self.heading.id.clone(), Bytes::from(response.to_string()));
        self.push("response.completed", json!({ "response": response }), out);
    }
}

/// `message_start` to `message_stop`.
pub(crate) struct MessageEvents {
    heading: Heading,
    finish_reason: &'static str,
}

impl MessageEvents {
    pub(crate) fn new(heading: Heading) -> Self {
        Self { heading, finish_reason: "stop" }
    }
}

impl Format for MessageEvents {
    fn begin(&mut self, _: usize, count: Count, out: &mut VecDeque<Bytes>) {
        let message = json!({
            "id": self.heading.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.heading.model,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": message_usage(&self.heading, Count { output: 0, ..count }),
        });
        out.push_back(named_event("message_start", &json!({"type": "message_start", "message": message})));
        out.push_back(named_event(
            "content_block_start",
            &json!({
                "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
            }),
        ));
    }

    fn token(
        &mut self,
        _: usize,
        text: &str,
        finish_reason: Option<&'static str>,
        out: &mut VecDeque<Bytes>,
    ) {
        if let Some(reason) = finish_reason {
            self.finish_reason = reason;
        }
        out.push_back(named_event(
            "content_block_delta",
            &json!({
                "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
            }),
        ));
    }

    fn end(&mut self, count: Count, out: &mut VecDeque<Bytes>) {
        out.push_back(named_event("content_block_stop", &json!({"type": "content_block_stop", "index": 0})));
        let delta = json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(self.finish_reason), "stop_sequence": null},
            "usage": message_usage(&self.heading, count),
        });
        out.push_back(named_event("message_delta", &delta));
        out.push_back(named_event("message_stop", &json!({"type": "message_stop"})));
    }
}
