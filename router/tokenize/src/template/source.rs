//! Where a model's chat templates and special tokens are found in its directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::Value;
use serde_json::Value as Config;

/// Template texts by use. `None` where the model has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateSource {
    /// For requests in general.
    pub default: Option<String>,
    /// For requests with tools, where the model has another one for them.
    pub tool_use: Option<String>,
}

/// Why a template file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the chat template {path}: {error}")]
pub struct TemplateSourceError {
    path: PathBuf,
    error: std::io::Error,
}

impl TemplateSource {
    /// Looks where transformers looks: the override, `chat_template.jinja` (with `additional_chat_templates/`), then
    /// the `chat_template` of `tokenizer_config.json`, a text or a list of named texts, then `chat_template.json`.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
    pub fn find(
        directory: &Path,
        config: &Config,
        override_file: Option<&Path>,
    ) -> Result<Self, TemplateSourceError> {
        if let Some(path) = override_file {
            return Ok(Self { default: Some(read(path)?), tool_use: None });
        }
        let file = directory.join("chat_template.jinja");
        if file.is_file() {
            let extra = directory.join("additional_chat_templates").join("tool_use.jinja");
            let tool_use = extra.is_file().then(|| read(&extra)).transpose()?;
            return Ok(Self { default: Some(read(&file)?), tool_use });
        }
        let found = Self::from_config(config.get("chat_template"));
        if found.default.is_some() || found.tool_use.is_some() {
            return Ok(found);
        }
        let file = directory.join("chat_template.json");
        if file.is_file() {
            let parsed: Config = serde_json::from_str(&read(&file)?).unwrap_or_default();
            return Ok(Self::from_config(parsed.get("chat_template")));
        }
        Ok(Self::default())
    }

    fn from_config(value: Option<&Config>) -> Self {
        match value {
            Some(Config::String(text)) => Self { default: Some(text.clone()), tool_use: None },
            Some(Config::Array(list)) => {
                let named = |name: &str| {
                    list.iter()
                        .find(|entry| entry.get("name").and_then(Config::as_str) == Some(name))
                        .and_then(|entry| entry.get("template"))
                        .and_then(Config::as_str)
                        .map(str::to_owned)
                };
                Self { default: named("default"), tool_use: named("tool_use") }
            }
            _ => Self::default(),
        }
    }
}

fn read(path: &Path) -> Result<String, TemplateSourceError> {
    std::fs::read_to_string(path).map_err(|error| TemplateSourceError { path: path.to_owned(), error })
}

/// The special tokens that templates print by name: `bos_token` and its kin.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens(Vec<(Arc<str>, Value)>);

impl SpecialTokens {
    /// Names and texts; a later one wins over an earlier one of the same name.
    pub fn of<'a>(names: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(names.into_iter().map(|(name, text)| (name.into(), Value::from(text))).collect())
    }

    /// Names and values.
    pub fn into_pairs(self) -> Vec<(Arc<str>, Value)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_has_a_template_wins() {
        let directory = tempfile::tempdir().unwrap();
        let config = serde_json::json!({"chat_template": "from config"});
        let find =
            |file: Option<&Path>| TemplateSource::find(directory.path(), &config, file).unwrap().default;
        assert_eq!(find(None).as_deref(), Some("from config"));
        std::fs::write(directory.path().join("chat_template.jinja"), "from file").unwrap();
        assert_eq!(find(None).as_deref(), Some("from file"));
        let own = directory.path().join("own.jinja");
        assert!(TemplateSource::find(directory.path(), &config, Some(&own)).is_err());
        std::fs::write(&own, "own").unwrap();
        assert_eq!(find(Some(&own)).as_deref(), Some("own"));
    }

    #[test]
    fn named_templates_are_told_apart() {
        let config = serde_json::json!({"chat_template": [
            {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"},
        ]});
        let source = TemplateSource::find(Path::new("/nowhere"), &config, None).unwrap();
        assert_eq!((source.default.as_deref(), source.tool_use.as_deref()), (Some("d"), Some("t")));
    }
}
