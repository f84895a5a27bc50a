//! `/v1/chat/completions`: the fields that reach the chat template, and the rendering.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use super::messages::FunctionOrder;
use super::{MAX_TEXT_BYTES, TOO_LONG, field, flag, media, messages, tools};
use crate::json::{Json, Object};
use crate::template::{self, ChatTemplates, RenderInput, TemplateError};

/// Template arguments that the engine's rendering function takes for itself: what it does with them we do not
/// follow.
const RESERVED_ARGUMENTS: [&str; 11] = [
    "conversation",
    "max_length",
    "model_config",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer",
    "tokenizer_kwargs",
    "truncation",
];

/// A server may allow it with a switch that we do not see.
const OWN_TEMPLATE: TokenizeError = TokenizeError::Inexact("a chat template of the request's own");

/// Names and values for the template, in order.
type Variables = Vec<(Arc<str>, Value)>;

/// A conversation with everything that decides how it is rendered.
#[derive(Debug)]
pub struct ChatCall {
    /// The messages as the client wrote them, or as converted from another API.
    pub(super) messages: Vec<Json>,
    /// The tools, rewritten; none without.
    pub(super) tools: Option<Value>,
    /// Template arguments, in order.
    pub(super) arguments: Object,
    /// Whether the assistant's turn is opened.
    pub(super) add_generation_prompt: bool,
    /// Whether the last message stays open.
    pub(super) continue_final_message: bool,
    /// Whether the tokenizer adds its special tokens to the rendered text.
    pub(super) add_special_tokens: bool,
    /// The order of a called function's fields.
    pub(super) function_order: FunctionOrder,
    /// Whether the client gave template arguments.
    pub(super) has_arguments: bool,
}

impl ChatCall {
    /// Reads a chat body, and takes out of it what is large.
    pub(super) fn read(body: &mut Object) -> Result<Self, TokenizeError> {
        if field(body, "chat_template").is_some() {
            return Err(OWN_TEMPLATE);
        }
        let messages = match body.swap_remove("messages") {
            Some(Json::List(messages)) if !messages.is_empty() => messages,
            _ => return Err(TokenizeError::Invalid("no messages")),
        };
        let add_generation_prompt = flag(body, "add_generation_prompt", true)?;
        let continue_final_message = flag(body, "continue_final_message", false)?;
        if add_generation_prompt && continue_final_message {
            return Err(TokenizeError::Invalid("continue_final_message with add_generation_prompt"));
        }
        let effort = match field(body, "reasoning_effort") {
            None => None,
            Some(Json::Text(effort)) => Some(Arc::clone(effort)),
            Some(_) => return Err(TokenizeError::Invalid("reasoning_effort is no text")),
        };
        let has_arguments = field(body, "chat_template_kwargs").is_some();
        let documents = body.swap_remove("documents").filter(|documents| !documents.is_null());
        Ok(Self {
            messages,
            tools: field(body, "tools").map(tools::rewrite).transpose()?,
            arguments: arguments(body, effort, documents)?,
            add_generation_prompt,
            continue_final_message,
            add_special_tokens: flag(body, "add_special_tokens", false)?,
            function_order: FunctionOrder::ArgumentsFirst,
            has_arguments,
        })
    }

    /// Whether the tokenizer adds its special tokens to the rendered text.
    pub fn add_special_tokens(&self) -> bool {
        self.add_special_tokens
    }

    /// The text that the engine encodes.
    ///
    /// # Errors
    /// [`TokenizeError::Template`] where the template refuses, and what reading the messages may find.
    pub fn render(self, templates: &ChatTemplates) -> Result<String, TokenizeError> {
        if self.messages.iter().any(media::is_in) {
            return Err(TokenizeError::Inexact(media::MEDIA));
        }
        self.render_messages(&self.messages, templates)
    }

    /// The same for messages in place of the call's own. Media in them are not what the engine encodes.
    pub(super) fn render_messages(
        &self,
        messages: &[Json],
        templates: &ChatTemplates,
    ) -> Result<String, TokenizeError> {
        let (tools, variables) = self.tools_and_variables()?;
        let template = templates.select(tools.is_some()).map_err(refused)?;
        let mut messages = messages::normalise(
            messages,
            template.content_format(),
            template.knows_developer(),
            self.function_order,
        )?;
        if self.continue_final_message {
            if !template.mentions_content() {
                return Err(TokenizeError::Invalid("the template cannot continue a message"));
            }
            messages
                .last_mut()
                .ok_or(TokenizeError::Invalid("no messages"))?
                .map_last_text(template::tag_final_text)
                .ok_or(TokenizeError::Invalid("no text to continue"))?;
        }
        let rendered = template
            .render(RenderInput {
                messages: messages.into_iter().map(messages::Message::into_value).collect(),
                tools: tools.unwrap_or(Value::from(())),
                variables,
                add_generation_prompt: self.add_generation_prompt,
            })
            .map_err(refused)?;
        if rendered.len() > MAX_TEXT_BYTES {
            return Err(TOO_LONG);
        }
        if self.continue_final_message {
            return template::cut_at_tag(rendered)
                .ok_or(TokenizeError::Invalid("the template does not print the final message"));
        }
        Ok(rendered)
    }

    /// `tools` among the template arguments stand in for the request's own, as the client wrote them.
    fn tools_and_variables(&self) -> Result<(Option<Value>, Variables), TokenizeError> {
        let mut tools = self.tools.clone();
        let mut variables = Vec::with_capacity(self.arguments.len());
        for (name, value) in &self.arguments {
            // The engine drops arguments that say nothing.
            if value.is_null() || value.as_text().is_some_and(|text| &**text == "auto") {
                continue;
            }
            match &**name {
                "tools" => {
                    let list = value.as_list().ok_or(TokenizeError::Invalid("tools is no list"))?;
                    if !list.iter().all(|tool| tool.as_map().is_some()) {
                        return Err(TokenizeError::Invalid("a tool is no object"));
                    }
                    tools = Some(value.to_value());
                }
                // The request's own fields win, and they always have a value.
                "add_generation_prompt" | "continue_final_message" => {}
                _ => variables.push((Arc::clone(name), value.to_value())),
            }
        }
        Ok((tools, variables))
    }
}

/// The template arguments: the client's, then what the engine derives from other fields.
pub fn arguments(
    body: &mut Object,
    effort: Option<Arc<str>>,
    documents: Option<Json>,
) -> Result<Object, TokenizeError> {
    let mut arguments = match body.swap_remove("chat_template_kwargs") {
        None | Some(Json::Null) => Object::new(),
        Some(Json::Map(map)) => map,
        Some(_) => return Err(TokenizeError::Invalid("chat_template_kwargs is no object")),
    };
    if arguments.contains_key("messages") {
        return Err(TokenizeError::Invalid("messages among the template arguments"));
    }
    if field(&arguments, "chat_template").is_some() {
        return Err(OWN_TEMPLATE);
    }
    if RESERVED_ARGUMENTS.iter().any(|name| field(&arguments, name).is_some()) {
        return Err(TokenizeError::Inexact("a reserved template argument"));
    }
    if let Some(documents) = documents {
        arguments.insert("documents".into(), documents);
    }
    if let Some(effort) = effort {
        // A request for reasoning switches thinking on or off for templates that ask, unless the client did.
        if !arguments.contains_key("enable_thinking") {
            arguments.insert("enable_thinking".into(), Json::Bool(&*effort != "none"));
        }
        arguments.insert("reasoning_effort".into(), Json::Text(effort));
    }
    Ok(arguments)
}

fn refused(error: TemplateError) -> TokenizeError {
    if error == TemplateError::Render(template::UNCERTAIN) {
        return TokenizeError::Inexact(template::UNCERTAIN);
    }
    TokenizeError::Template(error.to_string())
}
