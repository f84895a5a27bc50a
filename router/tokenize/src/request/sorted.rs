//! Tools with their keys in order, as the code of some models gives them to its template.

use std::sync::Arc;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::ChatCall;
use crate::json::{Json, object};

/// The template argument that stands in for the tools.
const TOOLS: &str = "tools";

impl ChatCall {
    /// Whether the template sees tools.
    pub fn has_tools(&self) -> bool {
        self.tools.is_some() || self.arguments.contains_key(TOOLS)
    }

    /// The call with the keys of its tools sorted at every level.
    pub fn with_sorted_tools(mut self) -> Self {
        self.tools = self.tools.map(|tools| sorted(&tools));
        if let Some(tools) = self.arguments.get_mut(TOOLS) {
            *tools = sorted_json(tools);
        }
        self
    }
}

fn sorted(value: &Value) -> Value {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Map => {
            let mut pairs: Vec<(Arc<str>, Value)> = items()
                .filter_map(|key| {
                    Some((Arc::from(key.as_str()?), sorted(&value.get_item(&key).unwrap_or_default())))
                })
                .collect();
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
            object(pairs)
        }
        ValueKind::Seq => items().map(|item| sorted(&item)).collect(),
        _ => value.clone(),
    }
}

fn sorted_json(json: &Json) -> Json {
    match json {
        Json::Map(map) => {
            let mut map: crate::json::Object =
                map.iter().map(|(key, value)| (Arc::clone(key), sorted_json(value))).collect();
            map.sort_unstable_keys();
            Json::Map(map)
        }
        Json::List(list) => Json::List(list.iter().map(sorted_json).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use kvasir_core::RequestKind;

    use crate::request::PromptInput;
    use crate::template::to_json_text;

    #[test]
    fn keys_are_sorted_and_lists_are_not() {
        let body = br#"{"messages":[{"role":"user","content":"x"}],
            "tools":[{"type":"function","function":{"name":"f","parameters":{"b":[{"z":1e5,"a":null}],"B":2,"\u00e9":3}}}],
            "chat_template_kwargs":{"tools":[{"b":{"d":1,"c":[2,1]},"a":"x"}],"other":{"b":1,"a":2}}}"#;
        let Ok(PromptInput::Chat(call)) = PromptInput::read(RequestKind::Chat, body) else {
            panic!("a chat")
        };
        assert!(call.has_tools());
        let call = call.with_sorted_tools();
        assert_eq!(
            to_json_text(&call.tools.clone().unwrap()),
            "[{\"function\": {\"description\": null, \"name\": \"f\", \"parameters\": {\"B\": 2, \"b\": [{\"a\": null, \
             \"z\": 100000.0}], \"\u{e9}\": 3}}, \"type\": \"function\"}]"
        );
        let argument = |name: &str| to_json_text(&call.arguments[name].to_value());
        assert_eq!(argument("tools"), r#"[{"a": "x", "b": {"c": [2, 1], "d": 1}}]"#);
        assert_eq!(argument("other"), r#"{"b": 1, "a": 2}"#);
        let plain = br#"{"messages":[{"role":"user","content":"x"}]}"#;
        let Ok(PromptInput::Chat(call)) = PromptInput::read(RequestKind::Chat, plain) else {
            panic!("a chat")
        };
        assert!(!call.has_tools());
    }
}
