//! Which models are served and from what: the map of served names to sources.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// Longest served name, bytes: names are labels of metrics and arguments of commands.
const MOST_NAME_BYTES: usize = 256;

/// Most entries of a set.
const MOST_MODELS: usize = 1024;

/// What answers for a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Native where it is exact, else render.
    #[default]
    Auto,
    /// Our own tokenizer, in this process.
    Native,
    /// A `vllm launch render` child.
    Render,
}

impl EngineChoice {
    /// Reads `auto`, `native` or `render`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Some(Self::Auto),
            "native" => Some(Self::Native),
            "render" => Some(Self::Render),
            _ => None,
        }
    }
}

/// Where a model's tokenizer is, and what reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelSpec {
    /// A directory, or a repository of the hub.
    pub source: String,
    /// What answers; `None` for the service's own choice.
    pub engine: Option<EngineChoice>,
    /// A chat template file in place of the model's own.
    pub chat_template: Option<PathBuf>,
}

/// Served names and what is behind them.
pub type ModelSet = BTreeMap<String, ModelSpec>;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Source(String),
    Spec(WrittenSpec),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenSpec {
    source: String,
    engine: Option<EngineChoice>,
    chat_template: Option<PathBuf>,
}

/// Reads a map in JSON.
///
/// # Errors
/// What is wrong with it, without the text.
pub fn parse_json(text: &str) -> Result<ModelSet, String> {
    if text.trim().is_empty() {
        return Ok(ModelSet::new());
    }
    let written: BTreeMap<String, Option<Written>> = serde_json::from_str(text)
        .map_err(|error| format!("no JSON object of names and sources: {error}"))?;
    check(written)
}

/// Reads a map in YAML, of which JSON is a part.
///
/// # Errors
/// What is wrong with it.
pub fn parse_yaml(text: &str) -> Result<ModelSet, String> {
    if text.trim().is_empty() {
        return Ok(ModelSet::new());
    }
    let written: BTreeMap<String, Option<Written>> =
        serde_saphyr::from_str(text).map_err(|error| format!("no map of names and sources: {error}"))?;
    check(written)
}

/// Entries without a source are left out, as kthena's service does: charts render empty values.
fn check(written: BTreeMap<String, Option<Written>>) -> Result<ModelSet, String> {
    if written.len() > MOST_MODELS {
        return Err(format!("{} models; {MOST_MODELS} are the most", written.len()));
    }
    let mut set = ModelSet::new();
    for (name, entry) in written {
        let spec = match entry {
            None => continue,
            Some(Written::Source(source)) => ModelSpec { source, engine: None, chat_template: None },
            Some(Written::Spec(spec)) => {
                ModelSpec { source: spec.source, engine: spec.engine, chat_template: spec.chat_template }
            }
        };
        let spec = ModelSpec { source: spec.source.trim().to_owned(), ..spec };
        if spec.source.is_empty() {
            continue;
        }
        if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(format!("a served name must have 1 to {MOST_NAME_BYTES} printable bytes"));
        }
        // Both become arguments of a command; one that begins with a dash would be read as a flag there.
        if name.starts_with('-') || spec.source.starts_with('-') {
            return Err(format!("{name:?}: neither name nor source may begin with a dash"));
        }
        set.insert(name, spec);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_sources_or_to_more() {
        let set = parse_json(
            r#"{"b":"Qwen/Qwen3-0.6B","a":{"source":" /models/a ","engine":"render","chatTemplate":"/t.jinja"},
                "empty":"","nothing":null}"#,
        )
        .unwrap();
        assert_eq!(set.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            set["a"],
            ModelSpec {
                source: "/models/a".into(),
                engine: Some(EngineChoice::Render),
                chat_template: Some("/t.jinja".into())
            }
        );
        assert_eq!((set["b"].source.as_str(), set["b"].engine), ("Qwen/Qwen3-0.6B", None));
        let yaml = parse_yaml("b: Qwen/Qwen3-0.6B\na: {source: /models/a, engine: native}\n").unwrap();
        assert_eq!(yaml["a"].engine, Some(EngineChoice::Native));
        assert_eq!(yaml["b"], set["b"]);
        for nothing in ["", " \n", "{}"] {
            assert_eq!(parse_json(nothing), Ok(ModelSet::new()));
            assert_eq!(parse_yaml(nothing), Ok(ModelSet::new()));
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for bad in [
            "[]",
            "7",
            r#"{"a":7}"#,
            r#"{"a":"b""#,
            r#"{"":"x"}"#,
            r#"{"a":"--help"}"#,
            r#"{"-a":"x"}"#,
            r#"{"a\n":"x"}"#,
            r#"{"a":{"source":"x","engine":"fast"}}"#,
            r#"{"a":{"source":"x","color":"red"}}"#,
        ] {
            assert!(parse_json(bad).is_err(), "{bad}");
            assert!(parse_yaml(bad).is_err(), "{bad}");
        }
        assert_eq!(EngineChoice::parse(" Native "), Some(EngineChoice::Native));
        assert_eq!(EngineChoice::parse("vllm"), None);
    }
}
