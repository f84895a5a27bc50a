//! What transformers 5 makes of a Llama directory that has no `tokenizer.json`: not SentencePiece's own rules, but a
//! list of merges in the order of ids, and spaces marked by a pre-tokenizer.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::outline::{AddedToken, configured_tokens};
use super::{Model, PieceKind};

/// Tokens that are named in the configuration, in the order in which they get ids, and what they are by default.
const NAMED: [(&str, Option<&str>); 3] =
    [("bos_token", Some("<s>")), ("eos_token", Some("</s>")), ("unk_token", Some("<unk>"))];

/// The files beside the model that decide ids.
#[derive(Debug)]
pub struct LlamaConfig<'a> {
    /// `tokenizer_config.json`.
    pub config: &'a Value,
    /// `special_tokens_map.json`, which old directories have.
    pub map: &'a Value,
    /// `added_tokens.json`, which old directories have.
    pub added: &'a Value,
    /// `config.json` of the model.
    pub model: &'a Value,
}

/// Writes the model as a `tokenizer.json`.
///
/// # Errors
/// What is not followed here; then only transformers itself can write the file.
pub fn tokenizer_json(model: &Model, files: &LlamaConfig<'_>) -> Result<Vec<u8>, String> {
    files.check()?;
    let config = with_defaults(files.config);
    let vocab: HashMap<&str, usize> =
        model.pieces.iter().enumerate().map(|(id, piece)| (piece.text.as_str(), id)).collect();
    let prefix = usize::from(switch(&config, "add_prefix_space", true)?);
    let mut added: Vec<Value> = Vec::new();
    let mut ids: HashMap<String, usize> = HashMap::new();
    for token in added_tokens(model, &config)? {
        let next = model.pieces.len() + ids.values().filter(|id| **id >= model.pieces.len()).count();
        let id = vocab.get(token.content.as_str()).copied().unwrap_or(next);
        ids.insert(token.content.clone(), id);
        added.push(json!({
            "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
            "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
        }));
    }
    added.sort_by_key(|token| token.get("id").and_then(Value::as_u64));
    let entries: Map<String, Value> =
        model.pieces.iter().enumerate().map(|(id, piece)| (piece.text.clone(), json!(id))).collect();
    let written = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend(&config)?, "split": false},
        "post_processor": post_processor(&config, &ids)?,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": prefix, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": entries, "merges": merges(model, &vocab),
        },
    });
    Ok(written.to_string().into_bytes())
}

impl LlamaConfig<'_> {
    /// What would make transformers take another way.
    fn check(&self) -> Result<(), String> {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        match text(self.config, "tokenizer_class").as_deref().map(|name| name.trim_end_matches("Fast")) {
            Some("LlamaTokenizer") => {}
            Some(other) => return Err(format!("a tokenizer of the class {other}")),
            None => return Err("tokenizer_config.json names no tokenizer_class".to_owned()),
        }
        if self.config.pointer("/auto_map/AutoTokenizer").is_some() {
            return Err("a tokenizer with code of its own".to_owned());
        }
        if let Some(other) = text(self.model, "model_type").filter(|kind| kind != "llama") {
            return Err(format!("a LlamaTokenizer for a model of the type {other}"));
        }
        if self.config.get("split_special_tokens") == Some(&Value::Bool(true)) {
            return Err("split_special_tokens".to_owned());
        }
        if self.config.get("extra_special_tokens").is_some_and(|extra| !extra.is_null()) {
            return Err("extra_special_tokens".to_owned());
        }
        self.check_old_files()
    }

    /// Files of older versions may say again what the configuration says, and nothing else.
    fn check_old_files(&self) -> Result<(), String> {
        let config = with_defaults(self.config);
        for (name, value) in self.map.as_object().into_iter().flatten() {
            if content(Some(value)) != content(config.get(name)) {
                return Err(format!("{name} in special_tokens_map.json, but not in tokenizer_config.json"));
            }
        }
        let listed = self.config.get("added_tokens_decoder").and_then(Value::as_object);
        for (name, id) in self.added.as_object().into_iter().flatten() {
            let entry = listed.and_then(|listed| listed.get(&id.to_string()));
            if content(entry).as_deref() != Some(name) {
                return Err("tokens in added_tokens.json that added_tokens_decoder lacks".to_owned());
            }
        }
        Ok(())
    }
}

/// The text of a token: a text, or an object with one.
fn content(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Object(object) => object.get("content").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    }
}

/// The configuration with the tokens that the class names itself.
fn with_defaults(config: &Value) -> Value {
    let mut config = config.as_object().cloned().unwrap_or_default();
    for (name, token) in NAMED {
        config.entry(name).or_insert_with(|| json!(token));
    }
    Value::Object(config)
}

/// All added tokens in the order in which they get ids: those of the configuration, then the listed ones, which are
/// the model's own unless the configuration lists others.
fn added_tokens(model: &Model, config: &Value) -> Result<Vec<AddedToken>, String> {
    let mut tokens = configured_tokens(config, &[]);
    let plain = |content: &str, special: bool| AddedToken {
        content: content.to_owned(),
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special,
    };
    let listed: Vec<AddedToken> = match config.get("additional_special_tokens") {
        Some(Value::Array(list)) => list
            .iter()
            .map(|token| match token {
                Value::String(content) => Ok(plain(content, true)),
                other => serde_json::from_value(other.clone())
                    .map(|token: AddedToken| AddedToken { special: true, ..token })
                    .map_err(|_| "additional_special_tokens is malformed".to_owned()),
            })
            .collect::<Result<_, _>>()?,
        Some(Value::Null) | None => model
            .pieces
            .iter()
            .filter(|piece| matches!(piece.kind, PieceKind::Control | PieceKind::Symbol))
            .map(|piece| plain(&piece.text, piece.kind == PieceKind::Control))
            .collect(),
        Some(_) => return Err("additional_special_tokens is malformed".to_owned()),
    };
    for token in listed {
        if !tokens.iter().any(|other| other.content == token.content) {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

/// A switch that is missing, null, or true or false.
fn switch(config: &Value, name: &str, default: bool) -> Result<bool, String> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("{name} is no boolean")),
    }
}

/// Before which parts of a text a space is put that it does not have.
fn prepend(config: &Value) -> Result<&'static str, String> {
    let (prefix, legacy) = (switch(config, "add_prefix_space", true)?, switch(config, "legacy", false)?);
    Ok(match (prefix, legacy) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    })
}

fn post_processor(config: &Value, ids: &HashMap<String, usize>) -> Result<Value, String> {
    let mut steps = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
    let mut specials = Map::new();
    for (flag, name, first) in [("add_bos_token", "bos_token", true), ("add_eos_token", "eos_token", false)] {
        let Some(token) = content(config.get(name)).filter(|token| !token.is_empty()) else { continue };
        if !switch(config, flag, false)? {
            continue;
        }
        let id = ids.get(&token).ok_or_else(|| format!("{name} has no id"))?;
        steps.insert(
            if first { 0 } else { steps.len() },
            json!({"SpecialToken": {"id": token, "type_id": 0}}),
        );
        specials.insert(token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}));
    }
    let pair = json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]);
    Ok(json!({"type": "TemplateProcessing", "single": steps, "pair": pair, "special_tokens": specials}))
}

/// Every way in which two pieces make up a third, in the order of the third's id; of these the shortest left part
/// first.
fn merges(model: &Model, vocab: &HashMap<&str, usize>) -> Vec<Value> {
    let mut merges: Vec<Value> = Vec::new();
    for piece in &model.pieces {
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if vocab.contains_key(left) && vocab.contains_key(right) {
                merges.push(json!([left, right]));
            }
        }
    }
    merges
}
