//! An engine's answer to `GET /v1/models`.

use serde::Deserialize;

/// Most entries kept; an engine with more adapters than this is not heard of.
const MAX_MODELS: usize = 4096;
/// Longest name kept, bytes; a longer one could not be asked for in a header or a metric either.
const MAX_NAME_BYTES: usize = 512;

/// One entry of the list.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ListedModel {
    /// The name requests use.
    pub id: String,
    /// The base model, for an adapter.
    #[serde(default)]
    pub parent: Option<String>,
    /// `vllm` or `sglang`, when the engine was left to say so.
    #[serde(default)]
    pub owned_by: Option<String>,
}

impl ListedModel {
    /// Whether it adapts another model. One that names itself as its parent is a base model.
    pub fn is_adapter(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| *parent != self.id)
    }
}

#[derive(Deserialize)]
struct List {
    data: Vec<ListedModel>,
}

/// Reads the list. Entries with an empty or over-long name are left out; so is what exceeds 4096 entries.
///
/// # Errors
/// A phrase that says why this is no model list; nothing of the body is in it.
pub fn read_model_list(body: &[u8]) -> Result<Vec<ListedModel>, String> {
    let list: List = serde_json::from_slice(body)
        .map_err(|error| format!("not a model list (line {}, column {})", error.line(), error.column()))?;
    let mut models = list.data;
    models.retain(|model| !model.id.is_empty() && model.id.len() <= MAX_NAME_BYTES);
    models.truncate(MAX_MODELS);
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_adapters_are_read() {
        let body = br#"{"object":"list","data":[
            {"id":"test-model","object":"model","created":1,"owned_by":"vllm","root":"m","parent":null,"max_model_len":8192},
            {"id":"sql-adapter","object":"model","owned_by":"vllm","root":"a","parent":"test-model"},
            {"id":""},{"id":"bare"},{"id":"own","parent":"own"}]}"#;
        let models = read_model_list(body).expect("a good list");
        let names: Vec<_> = models.iter().map(|model| (model.id.as_str(), model.parent.as_deref())).collect();
        assert_eq!(
            names,
            [("test-model", None), ("sql-adapter", Some("test-model")), ("bare", None), ("own", Some("own"))]
        );
        let adapters: Vec<_> = models.iter().map(ListedModel::is_adapter).collect();
        assert_eq!(adapters, [false, true, false, false]);
    }

    #[test]
    fn lists_are_bounded() {
        let entries: Vec<_> = (0..5000).map(|n| format!("{{\"id\":\"m{n}\"}}")).collect();
        let body = format!("{{\"data\":[{{\"id\":\"{}\"}},{}]}}", "x".repeat(600), entries.join(","));
        let models = read_model_list(body.as_bytes()).expect("a good list");
        assert_eq!((models.len(), models[0].id.as_str()), (4096, "m0"));
    }

    #[test]
    fn other_answers_are_refused() {
        for body in ["", "<html>", "{}", "{\"data\":{}}", "{\"data\":[{\"name\":\"x\"}]}", "[]"] {
            assert!(read_model_list(body.as_bytes()).is_err(), "{body:?}");
        }
    }
}
