//! Answers that are not streamed.

use serde_json::{Value, json};

use crate::generation::Generation;

/// What stands above every answer.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) id: String,
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Whether usage tells the cached tokens.
    pub(crate) tells_cached: bool,
    pub(crate) version: &'static str,
    /// Sequences for each prompt (`n`).
    pub(crate) choices: usize,
}

/// One finished sequence.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    pub(crate) text: String,
    pub(crate) finish_reason: &'static str,
    pub(crate) count: Count,
}

/// Tokens of one sequence or, added up, of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) output: usize,
}

impl From<&Generation> for Count {
    fn from(generation: &Generation) -> Self {
        Self {
            prompt: generation.prompt_tokens(),
            cached: generation.cached_tokens(),
            output: generation.produced(),
        }
    }
}

impl From<&Generation> for Spoken {
    fn from(generation: &Generation) -> Self {
        Self { text: generation.text(), finish_reason: generation.finish_reason(), count: generation.into() }
    }
}

/// The sum over all sequences of an answer. The `choices` sequences of one prompt stand together, and the prompt
/// counts once, as its first sequence saw it.
pub(crate) fn total(counts: impl IntoIterator<Item = Count>, choices: usize) -> Count {
    counts.into_iter().enumerate().fold(Count::default(), |sum, (index, count)| {
        let first = index % choices.max(1) == 0;
        Count {
            prompt: sum.prompt + if first { count.prompt } else { 0 },
            cached: sum.cached + if first { count.cached } else { 0 },
            output: sum.output + count.output,
        }
    })
}

/// `usage` of chat and completions.
pub(crate) fn usage(heading: &Heading, count: Count) -> Value {
    let details = heading.tells_cached.then(|| json!({ "cached_tokens": count.cached }));
    json!({
        "prompt_tokens": count.prompt,
        "total_tokens": count.prompt + count.output,
        "completion_tokens": count.output,
        "prompt_tokens_details": details,
    })
}

/// `/v1/chat/completions`.
pub(crate) fn chat(heading: &Heading, spoken: &[Spoken]) -> Value {
    let choices: Vec<Value> = spoken
        .iter()
        .enumerate()
        .map(|(index, one)| {
            json!({
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": one.text,
                    "refusal": null,
                    "tool_calls": [],
                    "reasoning": null,
                },
                "logprobs": null,
                "finish_reason": one.finish_reason,
                "stop_reason": null,
                "token_ids": null,
            })
        })
        .collect();
    answer("chat.completion", heading, choices, spoken)
}

/// `/v1/completions`.
pub(crate) fn completion(heading: &Heading, spoken: &[Spoken]) -> Value {
    let choices: Vec<Value> = spoken
        .iter()
        .enumerate()
        .map(|(index, one)| {
            json!({
                "index": index,
                "text": one.text,
                "logprobs": null,
                "finish_reason": one.finish_reason,
                "stop_reason": null,
                "prompt_logprobs": null,
                "token_ids": null,
            })
        })
        .collect();
    answer("text_completion", heading, choices, spoken)
}

fn answer(object: &str, heading: &Heading, choices: Vec<Value>, spoken: &[Spoken]) -> Value {
    json!({
        "id": heading.id,
        "object": object,
        "created": heading.created,
        "model": heading.model,
        "choices": choices,
        "service_tier": null,
        "system_fingerprint": format!("vllm-{}-mock", heading.version),
        "usage": usage(heading, total(spoken.iter().map(|one| one.count), heading.choices)),
        "prompt_logprobs": null,
        "kv_transfer_params": null,
    })
}

/// `/v1/responses`, finished.
pub(crate) fn response(heading: &Heading, spoken: &[Spoken]) -> Value {
    let count = total(spoken.iter().map(|one| one.count), heading.choices);
    let text = spoken.first().map_or("", |one| one.text.as_str());
    response_object(heading, "completed", json!([output_item(heading, "completed", Some(text))]), Some(count))
}

/// The object of the Responses API at any moment.
pub(crate) fn response_object(heading: &Heading, status: &str, output: Value, count: Option<Count>) -> Value {
    let usage = count.map(|count| {
        json!({
            "input_tokens": count.prompt,
            "input_tokens_details": { "cached_tokens": if heading.tells_cached { count.cached } else { 0 } },
            "output_tokens": count.output,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": count.prompt + count.output,
        })
    });
    json!({
        "id": heading.id,
        "created_at": heading.created,
        "model": heading.model,
        "object": "response",
        "output": output,
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "usage": usage,
    })
}

/// The one message of a response.
pub(crate) fn output_item(heading: &Heading, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(output_text).into_iter().collect();
    json!({
        "id": format!("msg_{}", heading.id),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    })
}

/// One part of that message.
pub(crate) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": null})
}

/// `/v1/messages`.
pub(crate) fn message(heading: &Heading, spoken: &[Spoken]) -> Value {
    let count = total(spoken.iter().map(|one| one.count), heading.choices);
    let (text, reason) = spoken.first().map_or(("", "stop"), |one| (one.text.as_str(), one.finish_reason));
    json!({
        "id": heading.id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "model": heading.model,
        "stop_reason": stop_reason(reason),
        "stop_sequence": null,
        "usage": message_usage(heading, count),
    })
}

/// Anthropic's word for the end.
pub(crate) fn stop_reason(finish_reason: &str) -> &'static str {
    if finish_reason == "length" { "max_tokens" } else { "end_turn" }
}

/// Anthropic's usage, where the cached tokens are not among the input tokens.
pub(crate) fn message_usage(heading: &Heading, count: Count) -> Value {
    if heading.tells_cached {
        json!({
            "input_tokens": count.prompt - count.cached,
            "cache_read_input_tokens": count.cached,
            "output_tokens": count.output,
        })
    } else {
        json!({ "input_tokens": count.prompt, "output_tokens": count.output })
    }
}
