//! What transformers 5 makes of a Llama directory that has no `tokenizer.json`: not SentencePiece's own rules, but a
//! list of merges in the order of ids, and spaces marked by a pre-tokenizer.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::load::{Rebuilt, Settings};
use super::super::outline::AddedToken;
use super::{Model, PieceKind};

/// Writes the model as a `tokenizer.json`.
///
/// # Errors
/// What is not followed here; then only transformers itself can write the file.
pub fn tokenizer_json(model: &Model, files: &Settings) -> Result<Vec<u8>, String> {
    check(files)?;
    let config = with_defaults(&files.config);
    let vocab: HashMap<&str, usize> =
        model.pieces.iter().enumerate().map(|(id, piece)| (piece.text.as_str(), id)).collect();
    let prefix = usize::from(switch(&config, "add_prefix_space", true)?);
    let mut added: Vec<Value> = Vec::new();
    let mut ids: HashMap<String, usize> = HashMap::new();
    for token in added_tokens(model, files)? {
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

/// What would make transformers take another way.
fn check(files: &Settings) -> Result<(), String> {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    match text(&files.config, "tokenizer_class").as_deref().map(|name| name.trim_end_matches("Fast")) {
        Some("LlamaTokenizer") => {}
        Some(other) => return Err(format!("a tokenizer of the class {other}")),
        None => return Err("tokenizer_config.json names no tokenizer_class".to_owned()),
    }
    if files.has_own_code() {
        return Err("a tokenizer with code of its own".to_owned());
    }
    if let Some(other) = text(&files.model, "model_type").filter(|kind| kind != "llama") {
        return Err(format!("a LlamaTokenizer for a model of the type {other}"));
    }
    files.check_switches()?;
    if files.config.get("extra_special_tokens").is_some_and(|extra| !extra.is_null()) {
        return Err("extra_special_tokens".to_owned());
    }
    check_old_files(files)
}

/// Files of older versions may say again what the configuration says, and nothing else.
fn check_old_files(files: &Settings) -> Result<(), String> {
    let config = with_defaults(&files.config);
    for (name, value) in files.map.as_object().into_iter().flatten() {
        if content(Some(value)) != content(config.get(name)) {
            return Err(format!("{name} in special_tokens_map.json, but not in tokenizer_config.json"));
        }
    }
    let listed = files.config.get("added_tokens_decoder").and_then(Value::as_object);
    for (name, id) in files.added.as_object().into_iter().flatten() {
        let entry = listed.and_then(|listed| listed.get(&id.to_string()));
        if content(entry).as_deref() != Some(name) {
            return Err("tokens in added_tokens.json that added_tokens_decoder lacks".to_owned());
        }
    }
    Ok(())
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
    for (name, token) in Rebuilt::Llama.defaults() {
        config.entry(*name).or_insert_with(|| json!(token));
    }
    Value::Object(config)
}

/// All added tokens in the order in which they get ids: those of the configuration, then the listed ones, which are
/// the model's own unless the configuration lists others.
fn added_tokens(model: &Model, files: &Settings) -> Result<Vec<AddedToken>, String> {
    let mut tokens = files.special(&[], Rebuilt::Llama.defaults())?.missing(&[]);
    if files.config.get("additional_special_tokens").is_none_or(Value::is_null) {
        for piece in &model.pieces {
            let control = piece.kind == PieceKind::Control;
            let found = control || piece.kind == PieceKind::Symbol;
            if found && !tokens.iter().any(|other| other.content == piece.text) {
                tokens.push(AddedToken { normalized: false, ..AddedToken::plain(&piece.text, control) });
            }
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
///
/// # Errors
/// A switch is neither true nor false.
pub fn prepend(config: &Value) -> Result<&'static str, String> {
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
