//! The body of a `/tokenize` call, spliced from the client's own bytes so that nothing is read differently there.

use bytes::Bytes;
use kvasir_core::{EngineKind, InferenceRequest, RequestKind, TokenizeError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::RemoteError;
use crate::request::{ChatShape, MAX_TEXT_BYTES, MEDIA, PromptInput, TOO_LONG};

/// The fields of a chat request that decide its ids.
#[derive(Deserialize)]
struct ChatFields<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_kwargs: Option<&'a RawValue>,
    #[serde(borrow)]
    add_generation_prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    continue_final_message: Option<&'a RawValue>,
    #[serde(borrow)]
    add_special_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_effort: Option<&'a RawValue>,
    #[serde(borrow)]
    documents: Option<&'a RawValue>,
    #[serde(borrow)]
    truncate_prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_embeds: Option<&'a RawValue>,
    #[serde(borrow)]
    input_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_transfer_params: Option<&'a RawValue>,
    #[serde(borrow)]
    mm_processor_kwargs: Option<&'a RawValue>,
}

/// The field of a transfer's parameters that stands in for the messages.
#[derive(Deserialize)]
struct Transfer<'a> {
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
}

/// Whether `/tokenize` takes a kind of request at all.
pub fn speaks(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Completions | RequestKind::Chat)
}

/// Builds the body for an engine of a kind.
///
/// # Errors
/// What cannot be asked for, or not exactly.
pub fn build(dialect: EngineKind, request: &InferenceRequest) -> Result<Bytes, RemoteError> {
    match request.kind {
        RequestKind::Completions => completion(dialect, request),
        RequestKind::Chat => chat(dialect, request).map_err(RemoteError::Failed),
        _ => Err(RemoteError::Unasked),
    }
}

fn completion(dialect: EngineKind, request: &InferenceRequest) -> Result<Bytes, RemoteError> {
    let PromptInput::Text { text, add_special_tokens } = PromptInput::read(request.kind, &request.body)?
    else {
        // Ids: a local tokenizer passes them through.
        return Err(RemoteError::Unasked);
    };
    let mut body = Splice::new(request);
    body.field("prompt", &quoted(&text));
    body.field("add_special_tokens", if add_special_tokens { "true" } else { "false" });
    if dialect == EngineKind::Vllm {
        body.field("return_token_strs", "false");
    }
    Ok(body.finish())
}

fn chat(dialect: EngineKind, request: &InferenceRequest) -> Result<Bytes, TokenizeError> {
    let fields: ChatFields<'_> = serde_json::from_slice(&request.body)
        .map_err(|_| TokenizeError::Invalid("the body is not understood"))?;
    let messages = fields.messages.ok_or(TokenizeError::Invalid("no messages"))?.get();
    if dialect == EngineKind::Sglang && fields.chat_template.is_some() {
        return Err(TokenizeError::Inexact("a chat template of the request's own"));
    }
    refuse_overrides(&fields)?;
    if messages.len() > MAX_TEXT_BYTES {
        return Err(TOO_LONG);
    }
    // vLLM's `/tokenize` drops it, its generation path does not.
    if memchr::memmem::find(messages.as_bytes(), b"\"reasoning_content\"").is_some() {
        return Err(TokenizeError::Inexact("reasoning_content at a remote tokenizer"));
    }
    // It would fetch and work on them, to tell ids whose blocks no other request shares.
    match ChatShape::of(messages) {
        Some(shape) if shape.media => return Err(TokenizeError::Inexact(MEDIA)),
        Some(_) => {}
        None => return Err(TokenizeError::Inexact("messages of an unknown form")),
    }
    let mut body = Splice::new(request);
    body.field("messages", messages);
    body.raw("tools", fields.tools);
    body.raw("add_generation_prompt", fields.add_generation_prompt);
    body.raw("continue_final_message", fields.continue_final_message);
    body.field("add_special_tokens", fields.add_special_tokens.map_or("false", RawValue::get));
    match dialect {
        EngineKind::Vllm => {
            // A server that does not allow it says so.
            body.raw("chat_template", fields.chat_template);
            body.raw("mm_processor_kwargs", fields.mm_processor_kwargs);
            if let Some(arguments) = arguments(&fields)? {
                body.field("chat_template_kwargs", &arguments);
            }
            body.field("return_token_strs", "false");
        }
        EngineKind::Sglang => {
            // It shows the template the chosen tools only.
            body.raw("tool_choice", fields.tool_choice);
            body.raw("chat_template_kwargs", fields.chat_template_kwargs);
            body.raw("reasoning_effort", fields.reasoning_effort);
        }
    }
    Ok(body.finish())
}

/// What cuts the prompt, or stands in for it at the engine and not at `/tokenize`.
fn refuse_overrides(fields: &ChatFields<'_>) -> Result<(), TokenizeError> {
    for (name, field) in [
        ("truncate_prompt_tokens", fields.truncate_prompt_tokens),
        ("prompt_embeds", fields.prompt_embeds),
        ("input_ids", fields.input_ids),
    ] {
        if field.is_some() {
            return Err(TokenizeError::Inexact(name));
        }
    }
    let Some(transfer) = fields.kv_transfer_params else { return Ok(()) };
    match serde_json::from_str::<Transfer<'_>>(transfer.get()) {
        Ok(Transfer { prompt_token_ids: None }) => Ok(()),
        _ => Err(TokenizeError::Inexact("the ids of a transfer")),
    }
}

/// The template arguments with what vLLM's generation path adds to them; its `/tokenize` does not know those fields.
fn arguments(fields: &ChatFields<'_>) -> Result<Option<String>, TokenizeError> {
    let given = fields.chat_template_kwargs.map_or("{}", RawValue::get);
    if fields.reasoning_effort.is_none() && fields.documents.is_none() {
        return Ok(fields.chat_template_kwargs.map(|raw| raw.get().to_owned()));
    }
    let known: serde_json::Map<String, serde_json::Value> = serde_json::from_str(given)
        .map_err(|_| TokenizeError::Invalid("chat_template_kwargs is no object"))?;
    let inner = given.trim().strip_suffix('}').map_or("{", str::trim_end).to_owned();
    let mut out = inner;
    let mut append = |name: &str, value: &str| {
        if !out.ends_with('{') {
            out.push(',');
        }
        out.push_str(&format!("\"{name}\":{value}"));
    };
    // The reader takes the last of two equal keys, so what is appended wins.
    if let Some(documents) = fields.documents {
        append("documents", documents.get());
    }
    if let Some(effort) = fields.reasoning_effort {
        if !known.contains_key("enable_thinking") {
            append("enable_thinking", if effort.get() == "\"none\"" { "false" } else { "true" });
        }
        append("reasoning_effort", effort.get());
    }
    out.push('}');
    Ok(Some(out))
}

struct Splice(String);

impl Splice {
    /// Begins with the model's name as the engine knows it.
    fn new(request: &InferenceRequest) -> Self {
        let mut text = String::with_capacity(request.body.len() + 256);
        text.push_str("{\"model\":");
        text.push_str(&quoted(request.model.as_str()));
        Self(text)
    }

    fn field(&mut self, name: &str, value: &str) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(value);
    }

    fn raw(&mut self, name: &str, value: Option<&RawValue>) {
        if let Some(value) = value {
            self.field(name, value.get());
        }
    }

    fn finish(mut self) -> Bytes {
        self.0.push('}');
        Bytes::from(self.0)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
