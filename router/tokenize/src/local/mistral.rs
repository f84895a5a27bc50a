//! Mistral's own tokenizers: their files, and the control tokens that its rules put between texts.

use std::collections::HashMap;
use std::path::Path;

use super::encoder::Encoder;
use super::load::{LoadError, LoadOptions, assemble, read, unsupported};
use super::sentencepiece::{Model, PieceKind, SentencePiece};
use super::tekken::Tekken;
use super::{Affixes, ChatRules, LocalTokenizer, MistralRules, TextRules};
use crate::memory::PrefixMemory;
use crate::request::MistralVersion;

/// Loads a `tekken.json`.
pub fn load_tekken(path: &Path, options: &LoadOptions) -> Result<LocalTokenizer, LoadError> {
    let damaged = |reason: String| LoadError::Damaged { path: path.to_owned(), reason };
    let Tekken { tokenizer, version, controls, vocab_size } = Tekken::parse(&read(path)?).map_err(damaged)?;
    let begin = *controls.get("<s>").ok_or_else(|| damaged("no control token <s>".to_owned()))?;
    let rules = ChatRules::Mistral(MistralRules { version, controls });
    let tokenizer = assemble(path, tokenizer, rules, options)?;
    let affixes = Some(Affixes { before: vec![begin], after: Vec::new() });
    Ok(LocalTokenizer { affixes, vocab_size, ..tokenizer })
}

/// Loads a SentencePiece model of Mistral's. There is one encoder for it, whatever the choice.
pub fn load_model(
    path: &Path,
    version: Option<MistralVersion>,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let damaged = |reason: String| LoadError::Damaged { path: path.to_owned(), reason };
    let model = Model::parse(&read(path)?).map_err(damaged)?;
    let begin = model.begin.ok_or_else(|| damaged("no control token begins a text".to_owned()))?;
    let end = model.end.ok_or_else(|| damaged("no control token ends a text".to_owned()))?;
    let mut controls: HashMap<String, u32> = model
        .pieces
        .iter()
        .zip(0..)
        .filter(|(piece, _)| piece.kind == PieceKind::Control)
        .map(|(piece, id)| (piece.text.clone(), id))
        .collect();
    controls.extend([("<s>".to_owned(), begin), ("</s>".to_owned(), end)]);
    let fix = "use the directory's tokenizer.json, if there is one, by leaving this file out";
    let encoder = SentencePiece::new(model).map_err(|reason| unsupported(path, reason, fix))?;
    let tokenizer = LocalTokenizer {
        vocab_size: encoder.vocab_size(),
        encoder: Encoder::SentencePiece(Box::new(encoder)),
        fallback: None,
        affixes: Some(Affixes { before: vec![begin], after: Vec::new() }),
        boundaries: None,
        chat: ChatRules::Mistral(MistralRules { version, controls }),
        texts: TextRules::default(),
        memory: PrefixMemory::new(options.memory_bytes),
    };
    tokenizer.warm_up();
    Ok(tokenizer)
}
