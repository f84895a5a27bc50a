//! The files beside a tokenizer that say which special tokens it has: what transformers 5 takes of them, in its order.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::outline::AddedToken;
use super::{LoadError, read_optional};

/// Tokens that every tokenizer has a name for, in the order in which they get ids.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The name that `extra_special_tokens` had before transformers 5.
const OLD_EXTRA: &str = "additional_special_tokens";

/// A token that a class names by itself.
pub type Default = (&'static str, &'static str);

/// The files.
#[derive(Debug, Default)]
pub struct Settings {
    /// `tokenizer_config.json`.
    pub config: Value,
    /// `special_tokens_map.json`, which old directories have.
    pub map: Value,
    /// `added_tokens.json`, which old directories have.
    pub added: Value,
    /// `config.json` of the model.
    pub model: Value,
}

/// The tokens that they name.
#[derive(Debug)]
pub struct Special {
    /// Tokens by id, sorted.
    pub listed: Vec<(u64, AddedToken)>,
    /// Tokens by name, in the order in which they get ids.
    pub named: Vec<(String, AddedToken)>,
    /// Tokens without a name.
    pub extra: Vec<AddedToken>,
}

impl Settings {
    /// Reads them. None of them need be there.
    ///
    /// # Errors
    /// One is there, and damaged: half a configuration would give wrong ids silently.
    pub fn read(directory: &Path) -> Result<Self, LoadError> {
        let file = |name: &str| read_optional(&directory.join(name));
        Ok(Self {
            config: file("tokenizer_config.json")?,
            map: file("special_tokens_map.json")?,
            added: file("added_tokens.json")?,
            model: file("config.json")?,
        })
    }

    /// Whether the tokenizer is code of the model's own.
    pub fn has_own_code(&self) -> bool {
        self.config.get("auto_map").is_some_and(|map| {
            map.is_array() || map.get("AutoTokenizer").is_some_and(|class| !class.is_null())
        })
    }

    /// Switches that are not followed.
    ///
    /// # Errors
    /// One of them is on.
    pub fn check_switches(&self) -> Result<(), String> {
        let on = |name: &&&str| self.config.get(**name).is_some_and(|value| *value == Value::Bool(true));
        let switches = ["split_special_tokens", "fix_mistral_regex"];
        switches.iter().find(on).map_or(Ok(()), |name| Err(format!("{name} in tokenizer_config.json")))
    }

    /// The tokens, where `own` are those of `tokenizer.json` and `defaults` those of the class.
    ///
    /// # Errors
    /// An entry that transformers does not take.
    pub fn special(&self, own: &[(u64, AddedToken)], defaults: &[Default]) -> Result<Special, String> {
        let config = self.config.as_object().cloned().unwrap_or_default();
        let mut keys = Keys::of(config);
        let mut listed: Vec<(u64, AddedToken)> = Vec::new();
        match keys.standard.get("added_tokens_decoder") {
            Some(decoder) => {
                for (id, token) in decoder.as_object().into_iter().flatten() {
                    put(
                        &mut listed,
                        id.parse().map_err(|_| malformed("added_tokens_decoder"))?,
                        token_of(token)?,
                    );
                }
            }
            None => {
                keys.merge(self.map.as_object());
                keys.merge_added(self.added.as_object(), &mut listed)?;
                for (id, token) in own {
                    put(&mut listed, *id, token.clone());
                }
            }
        }
        listed.sort_by_key(|(id, _)| *id);
        keys.into_special(listed, defaults)
    }
}

impl Special {
    /// Names and texts, as templates print them.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(name, token)| (name.as_str(), token.content.as_str()))
    }

    /// The named tokens, and those without a name.
    pub fn all(&self) -> impl Iterator<Item = &AddedToken> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// What is added to a tokenizer that has the tokens `present`: listed ones that differ in anything, and of the
    /// others those whose text is not there.
    pub fn missing(&self, present: &[AddedToken]) -> Vec<AddedToken> {
        let mut missing: Vec<AddedToken> = self
            .listed
            .iter()
            .map(|(_, token)| token)
            .filter(|token| !present.contains(token))
            .cloned()
            .collect();
        for token in self.all() {
            if !present.iter().chain(&missing).any(|other| other.content == token.content) {
                missing.push(token.clone());
            }
        }
        missing.retain(|token| !token.content.is_empty());
        missing
    }
}

/// The configuration, sorted by what its keys are for.
struct Keys {
    standard: Map<String, Value>,
    /// Tokens with a name of the model's own, which come before those of `own_names`.
    first_names: Vec<(String, Value)>,
    /// The same, of those that the configuration has as plain texts, or in a map.
    own_names: Vec<(String, Value)>,
}

impl Keys {
    fn of(mut config: Map<String, Value>) -> Self {
        let is_empty = |value: Option<&Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        };
        if is_empty(config.get("extra_special_tokens"))
            && let Some(more) = config.remove(OLD_EXTRA)
        {
            config.insert("extra_special_tokens".to_owned(), more);
        }
        let is_own = |name: &str| name.ends_with("_token") && !NAMES.contains(&name);
        let typed = |value: &Value| value.get("__type").and_then(Value::as_str) == Some("AddedToken");
        let those = |wanted: &dyn Fn(&Value) -> bool| -> Vec<(String, Value)> {
            let found = config.iter().filter(|(name, value)| is_own(name) && wanted(value));
            found.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let (first_names, mut own_names) = (those(&typed), those(&Value::is_string));
        let is_map = config.get("extra_special_tokens").is_some_and(Value::is_object);
        if is_map && let Some(Value::Object(map)) = config.remove("extra_special_tokens") {
            own_names.extend(map);
        }
        Self { standard: config, first_names, own_names }
    }

    /// `special_tokens_map.json` wins over the configuration.
    fn merge(&mut self, map: Option<&Map<String, Value>>) {
        for (name, value) in map.into_iter().flatten() {
            match (name.as_str(), value) {
                ("extra_special_tokens", Value::Array(list)) => {
                    let known =
                        self.standard.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
                    let more = list.iter().filter(|token| !known.contains(token)).cloned();
                    let all = known.iter().cloned().chain(more).collect();
                    self.standard.insert(name.clone(), Value::Array(all));
                }
                ("extra_special_tokens", Value::Object(names)) => {
                    self.standard.remove(name);
                    self.own_names.extend(names.clone());
                }
                (OLD_EXTRA, _) => {
                    self.standard.insert(name.clone(), value.clone());
                }
                (_, value) if NAMES.contains(&name.as_str()) => {
                    self.standard.insert(name.clone(), special(value.clone()));
                }
                (_, Value::String(_) | Value::Object(_)) if name.ends_with("_token") => {
                    self.first_names.retain(|(other, _)| other != name);
                    self.first_names.push((name.clone(), special(value.clone())));
                }
                _ => {}
            }
        }
    }

    fn merge_added(
        &self,
        added: Option<&Map<String, Value>>,
        listed: &mut Vec<(u64, AddedToken)>,
    ) -> Result<(), String> {
        let values = NAMES.iter().filter_map(|name| self.standard.get(*name));
        let extra = self.standard.get("extra_special_tokens").and_then(Value::as_array);
        let named: Vec<&str> = values.chain(extra.into_iter().flatten()).filter_map(text).collect();
        for (content, id) in added.into_iter().flatten() {
            let is_special = named.contains(&content.as_str());
            let token = AddedToken { normalized: !is_special, ..AddedToken::plain(content, is_special) };
            put(listed, id.as_u64().ok_or_else(|| malformed("added_tokens.json"))?, token);
        }
        Ok(())
    }

    fn into_special(self, listed: Vec<(u64, AddedToken)>, defaults: &[Default]) -> Result<Special, String> {
        let mut named: Vec<(String, AddedToken)> = Vec::new();
        for name in NAMES {
            let default = defaults.iter().find(|(other, _)| *other == name).map(|(_, token)| *token);
            let token = match self.standard.get(name) {
                None => default.map(|token| AddedToken::plain(token, true)),
                Some(Value::Null) => None,
                Some(value) => Some(token_of(value).map_err(|_| malformed(name))?),
            };
            let same = |token: &AddedToken| listed.iter().find(|(_, other)| other.content == token.content);
            if let Some(token) = token {
                let flags = same(&token).map(|(_, other)| other.clone());
                named.push((name.to_owned(), flags.unwrap_or(token)));
            }
        }
        for (name, value) in self.first_names.iter().chain(&self.own_names) {
            let token = token_of(value).map_err(|_| malformed(name))?;
            match named.iter_mut().find(|(other, _)| other == name) {
                Some((_, known)) => *known = token,
                None => named.push((name.clone(), token)),
            }
        }
        // The name of old counts where the new one is not there: a map under the new one is not, for it has names.
        let extra = self.standard.get("extra_special_tokens").or_else(|| self.standard.get(OLD_EXTRA));
        let extra = match extra {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list.iter().map(token_of).collect::<Result<_, _>>()?,
            Some(_) => return Err(malformed("extra_special_tokens")),
        };
        Ok(Special { listed, named, extra })
    }
}

/// A later token of an id takes the place of an earlier one.
fn put(listed: &mut Vec<(u64, AddedToken)>, id: u64, token: AddedToken) {
    listed.retain(|(other, _)| *other != id);
    listed.push((id, token));
}

/// The same entry, marked as special.
fn special(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("special".to_owned(), Value::Bool(true));
    }
    value
}

/// The text of an entry: a text itself, or an object with one.
fn text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn token_of(value: &Value) -> Result<AddedToken, String> {
    match value {
        Value::String(content) => Ok(AddedToken::plain(content, true)),
        other => serde_json::from_value(other.clone()).map_err(|_| malformed("a special token")),
    }
}

fn malformed(name: &str) -> String {
    format!("{name} that is malformed")
}

#[cfg(test)]
mod tests;
