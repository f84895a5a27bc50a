//! Tool definitions as the engine writes them anew before its template sees them.

use std::sync::Arc;

use kvasir_core::TokenizeError;
use minijinja::Value;

use crate::json::{Json, Object, object};

/// One function tool, in its parts.
#[derive(Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Text or null.
    pub description: &'a Json,
    /// A schema or null.
    pub parameters: &'a Json,
    /// A boolean, or null to leave it out.
    pub strict: &'a Json,
    /// A boolean, or null to leave it out.
    pub defer_loading: &'a Json,
}

/// The tools of a chat request: `{"type", "function": {"name", "description", "parameters"}}` in this order,
/// whatever the client's order was, and without keys of unknown meaning. Inside `parameters` nothing changes.
pub fn rewrite(tools: &Json) -> Result<Value, TokenizeError> {
    let list = tools.as_list().ok_or(TokenizeError::Invalid("tools is no list"))?;
    list.iter().map(rewrite_one).collect::<Result<Vec<_>, _>>().map(Value::from)
}

fn rewrite_one(tool: &Json) -> Result<Value, TokenizeError> {
    let tool = tool.as_map().ok_or(TokenizeError::Invalid("a tool is no object"))?;
    if tool.get("type").is_some_and(|kind| kind.as_text().map(|text| &**text) != Some("function")) {
        return Err(TokenizeError::Invalid("a tool of unknown type"));
    }
    let function = tool
        .get("function")
        .and_then(Json::as_map)
        .ok_or(TokenizeError::Invalid("a tool without its function"))?;
    let outer = optional(tool, "defer_loading", |value| matches!(value, Json::Bool(_)))?;
    let function = Function {
        name: name(function)?,
        description: optional(function, "description", |value| matches!(value, Json::Text(_)))?,
        parameters: optional(function, "parameters", |value| matches!(value, Json::Map(_)))?,
        strict: optional(function, "strict", |value| matches!(value, Json::Bool(_)))?,
        defer_loading: match optional(function, "defer_loading", |value| matches!(value, Json::Bool(_)))? {
            Json::Null => outer,
            own => own,
        },
    };
    Ok(function.to_value(outer))
}

/// The name of a function.
pub fn name(function: &Object) -> Result<&Arc<str>, TokenizeError> {
    function.get("name").and_then(Json::as_text).ok_or(TokenizeError::Invalid("a tool without a name"))
}

/// A field that may be missing or null and otherwise has a certain kind.
pub fn optional<'a>(
    map: &'a Object,
    name: &str,
    fits: impl FnOnce(&Json) -> bool,
) -> Result<&'a Json, TokenizeError> {
    match map.get(name) {
        None | Some(Json::Null) => Ok(&Json::Null),
        Some(value) if fits(value) => Ok(value),
        Some(_) => Err(TokenizeError::Invalid("a tool field of the wrong kind")),
    }
}

impl Function<'_> {
    /// The tool as the template sees it. A `defer_loading` of the tool itself is written last.
    pub fn to_value(&self, outer_defer_loading: &Json) -> Value {
        let mut function: Vec<(Arc<str>, Value)> = vec![
            ("name".into(), Value::from(Arc::clone(self.name))),
            ("description".into(), self.description.to_value()),
            ("parameters".into(), self.parameters.to_value()),
        ];
        if !self.strict.is_null() {
            function.push(("strict".into(), self.strict.to_value()));
        }
        if !self.defer_loading.is_null() {
            function.push(("defer_loading".into(), self.defer_loading.to_value()));
        }
        let mut tool: Vec<(Arc<str>, Value)> =
            vec![("type".into(), Value::from("function")), ("function".into(), object(function))];
        if !outer_defer_loading.is_null() {
            tool.push(("defer_loading".into(), outer_defer_loading.to_value()));
        }
        object(tool)
    }
}
