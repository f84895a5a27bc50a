//! Chat templates as the engine renders them: Jinja with Python's strings, numbers and JSON.

mod calendar;
mod content_format;
mod environment;
mod generation;
mod letters;
mod methods;
mod python;
mod source;
mod tojson;

use std::fmt;
use std::sync::Arc;

use minijinja::{Environment, Value};

use crate::json::ValueMap;

pub use calendar::{WallClock, system_wall_clock};
pub use content_format::ContentFormat;
pub use python::BigInt;
pub(crate) use python::is_space;
use python::trim_end;
pub use source::{SpecialTokens, TemplateSource, TemplateSourceError};
pub(crate) use tojson::{to_json, to_json_text};

/// What a template's author may do to us in one rendering: instructions, and 64 bytes of data each. Enough for
/// 256 MiB of prompt, and about a second of work.
const FUEL: u64 = 20_000_000;

/// Appended to the final message while rendering, to find where it ends; the value transformers uses, because a
/// template may look for it.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Functions that every template has. The engine drops arguments of these names.
const FUNCTIONS: [&str; 6] = ["range", "dict", "lipsum", "cycler", "joiner", "namespace"];

/// What a template did to letters that Unicode versions treat differently: the engine's ids cannot be told.
pub(crate) const UNCERTAIN: &str = "letters that Unicode versions treat differently";

/// Why a template cannot be used or did not render.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template has a fault.
    #[error("the chat template does not compile: {0}")]
    Compile(String),
    /// There is none for this kind of request.
    #[error("the model has no chat template for requests {0} tools")]
    Missing(&'static str),
    /// The template refused the request (`raise_exception`), or failed on it. Only the kind of failure is kept:
    /// templates put message text into their exceptions.
    #[error("{0}")]
    Render(&'static str),
}

/// A model's compiled templates with its special tokens.
pub struct ChatTemplates {
    environment: Environment<'static>,
    default: Option<Traits>,
    with_tools: Option<Traits>,
    special: Vec<(Arc<str>, Value)>,
    sources: Vec<String>,
}

/// What is known about one template from its text.
#[derive(Clone, Copy, Debug)]
struct Traits {
    name: &'static str,
    format: ContentFormat,
    knows_developer: bool,
    mentions_content: bool,
}

/// One of the templates, chosen for a request.
#[derive(Clone, Copy, Debug)]
pub struct ChatTemplate<'a> {
    templates: &'a ChatTemplates,
    traits: Traits,
}

/// What a rendering gets. All values are final: normalisation has happened.
#[derive(Debug)]
pub struct RenderInput {
    /// The messages.
    pub messages: Vec<Value>,
    /// `tools`; none for a request without.
    pub tools: Value,
    /// Other variables, in order; a later one wins over an earlier one of the same name.
    pub variables: Vec<(Arc<str>, Value)>,
    /// Whether the turn of the assistant is opened.
    pub add_generation_prompt: bool,
}

impl ChatTemplates {
    /// Compiles what was found.
    ///
    /// # Errors
    /// The template's fault, with its line.
    pub fn compile(
        source: &TemplateSource,
        special: SpecialTokens,
        clock: WallClock,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment::python_like(clock);
        let mut add = |name: &'static str, text: &Option<String>| -> Result<Option<Traits>, TemplateError> {
            let Some(text) = text else { return Ok(None) };
            environment
                .add_template_owned(name, generation::drop_tags(text))
                .map_err(|error| TemplateError::Compile(error.to_string()))?;
            Ok(Some(Traits {
                name,
                format: ContentFormat::of(text),
                knows_developer: text.contains("'developer'") || text.contains("\"developer\""),
                mentions_content: text.contains("content"),
            }))
        };
        let default = add("default", &source.default)?;
        let with_tools = add("tool_use", &source.tool_use)?;
        let sources = [&source.default, &source.tool_use].into_iter().flatten().cloned().collect();
        Ok(Self { environment, default, with_tools, special: special.into_pairs(), sources })
    }

    /// Whether one of the templates' texts has a word in it.
    pub fn mentions(&self, word: &str) -> bool {
        self.sources.iter().any(|text| text.contains(word))
    }

    /// The template for a request.
    ///
    /// # Errors
    /// [`TemplateError::Missing`]
    pub fn select(&self, with_tools: bool) -> Result<ChatTemplate<'_>, TemplateError> {
        let traits = match (with_tools, self.with_tools) {
            (true, Some(traits)) => Some(traits),
            _ => self.default,
        };
        traits
            .map(|traits| ChatTemplate { templates: self, traits })
            .ok_or(TemplateError::Missing(if with_tools { "with" } else { "without" }))
    }
}

impl fmt::Debug for ChatTemplates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplates")
            .field("default", &self.default)
            .field("with_tools", &self.with_tools)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate<'_> {
    /// Which form of content the template reads.
    pub fn content_format(&self) -> ContentFormat {
        self.traits.format
    }

    /// Whether the template's text names the developer role.
    pub fn knows_developer(&self) -> bool {
        self.traits.knows_developer
    }

    /// Whether `continue_final_message` can work: the template must read `content`.
    pub fn mentions_content(&self) -> bool {
        self.traits.mentions_content
    }

    /// Renders.
    ///
    /// # Errors
    /// [`TemplateError::Render`] without any text of the request.
    pub fn render(&self, input: RenderInput) -> Result<String, TemplateError> {
        let mut context = ValueMap::new();
        for (name, value) in &self.templates.special {
            context.insert(Value::from(Arc::clone(name)), value.clone());
        }
        context.insert(Value::from("documents"), Value::from(()));
        let variables = input.variables.into_iter().filter(|(name, _)| !FUNCTIONS.contains(&&**name));
        for (name, value) in variables {
            context.insert(Value::from(name), value);
        }
        context.insert(Value::from("messages"), input.messages.into_iter().collect());
        context.insert(Value::from("tools"), input.tools);
        context.insert(Value::from("add_generation_prompt"), Value::from(input.add_generation_prompt));
        let template = self
            .templates
            .environment
            .get_template(self.traits.name)
            .map_err(|_| TemplateError::Render("the template is gone"))?;
        template.render(Value::from(context)).map_err(|error| TemplateError::Render(classify(&error)))
    }
}

/// The text with the tag that marks where the final message ends.
pub(crate) fn tag_final_text(text: &str) -> String {
    format!("{text}{CONTINUE_TAG}")
}

/// Cuts a rendering at the tag. A template that trims takes the tag's trailing space away: then the white space
/// before the tag is cut as well.
pub(crate) fn cut_at_tag(mut rendered: String) -> Option<String> {
    let at = rendered.rfind(CONTINUE_TAG.trim_end())?;
    let whole = rendered.get(at..).is_some_and(|rest| rest.starts_with(CONTINUE_TAG));
    rendered.truncate(at);
    if !whole {
        let kept = trim_end(&rendered).len();
        rendered.truncate(kept);
    }
    Some(rendered)
}

fn classify(error: &minijinja::Error) -> &'static str {
    use minijinja::ErrorKind as K;
    if environment::is_raised(error) {
        return "the template refused the request";
    }
    if letters::is_uncertain(error) {
        return UNCERTAIN;
    }
    match error.kind() {
        K::OutOfFuel => "the template did too much work",
        K::UndefinedError => "the template used something undefined",
        K::UnknownFilter | K::UnknownFunction | K::UnknownTest | K::UnknownMethod => {
            "the template used an unknown function"
        }
        _ => "the template failed on the request",
    }
}

#[cfg(test)]
mod tests;
