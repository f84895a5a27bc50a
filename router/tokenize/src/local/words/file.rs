//! Reads merges out of a `tokenizer.json`, where words can be merged one by one.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::super::outline::{AddedToken, Outline};
use super::cuts::Cuts;
use super::merge::Merges;
use super::pairs::Pairs;

/// What stands for a space in most vocabularies.
pub const SPACE: char = '\u{2581}';

/// Before which pieces of a text, those between added tokens, a space is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// None.
    Never,
    /// All.
    Always,
    /// All that have none.
    Missing,
    /// The one that begins the text, if it has none.
    First,
}

/// How a text is changed before it is merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changes {
    /// What a space becomes.
    pub space: char,
    /// Where spaces are put.
    pub prefix: Prefix,
}

#[derive(Deserialize)]
struct File {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
}

/// A merge in the form of today, and in the one before it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

impl Merge {
    fn halves(&self) -> Option<(&str, &str)> {
        match self {
            Self::Pair(left, right) => Some((left, right)),
            Self::Line(line) => line.split_once(' ').filter(|(_, right)| !right.contains(' ')),
        }
    }
}

impl Changes {
    /// Those of a tokenizer.
    ///
    /// # Errors
    /// What else it does to a text.
    pub fn of(outline: &Outline) -> Result<Self, &'static str> {
        let unknown = "a normaliser or pre-tokenizer that works across words";
        let (normalizer, pre_tokenizer) = (&outline.normalizer, &outline.pre_tokenizer);
        let steps: &[Value] = match kind(normalizer) {
            Some("Sequence") => normalizer.get("normalizers").and_then(Value::as_array).ok_or(unknown)?,
            _ if normalizer.is_null() => &[],
            _ => std::slice::from_ref(normalizer),
        };
        let (replaces, prefix) = match steps {
            [] => (false, Prefix::Never),
            [replace] if replaces_spaces(replace) => (true, Prefix::Never),
            [prepend, replace] if prepends_space(prepend) && replaces_spaces(replace) => {
                (true, Prefix::Always)
            }
            _ => return Err(unknown),
        };
        let changes = Self { space: if replaces { SPACE } else { ' ' }, prefix };
        match kind(pre_tokenizer) {
            _ if pre_tokenizer.is_null() => Ok(changes),
            // There are no spaces left to split at.
            Some("Split") if replaces && pattern(pre_tokenizer) == Some(" ") => Ok(changes),
            Some("Metaspace") if steps.is_empty() => {
                Ok(Self { space: SPACE, prefix: metaspace(pre_tokenizer)? })
            }
            _ => Err(unknown),
        }
    }
}

/// Its rule of spaces, where it does nothing else.
fn metaspace(pre_tokenizer: &Value) -> Result<Prefix, &'static str> {
    let text = |name: &str| pre_tokenizer.get(name).and_then(Value::as_str);
    if text("replacement") != Some("\u{2581}") || pre_tokenizer.get("split") != Some(&Value::Bool(false)) {
        return Err("a pre-tokenizer that splits at spaces");
    }
    match text("prepend_scheme") {
        Some("never") => Ok(Prefix::Never),
        Some("always") => Ok(Prefix::Missing),
        Some("first") => Ok(Prefix::First),
        _ => Err("a pre-tokenizer of an old form"),
    }
}

fn kind(step: &Value) -> Option<&str> {
    step.get("type").and_then(Value::as_str)
}

fn pattern(step: &Value) -> Option<&str> {
    step.pointer("/pattern/String").and_then(Value::as_str)
}

fn replaces_spaces(step: &Value) -> bool {
    let content = step.get("content").and_then(Value::as_str);
    kind(step) == Some("Replace") && pattern(step) == Some(" ") && content == Some("\u{2581}")
}

fn prepends_space(step: &Value) -> bool {
    kind(step) == Some("Prepend") && step.get("prepend").and_then(Value::as_str) == Some("\u{2581}")
}

/// The merges of a `tokenizer.json`, and where no merge and no added token crosses.
///
/// # Errors
/// Why words cannot be merged one by one.
pub fn read(text: &[u8], changes: Changes, tokens: &[AddedToken]) -> Result<(Merges, Cuts), &'static str> {
    let File { model } = serde_json::from_slice(text).map_err(|_| "a model of another form")?;
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if model.kind != "BPE" || affixes.iter().any(|affix| affix.as_ref().is_some_and(|text| !text.is_empty()))
    {
        return Err("a model that does not merge pairs, or marks where words begin and end");
    }
    // A piece would be looked up whole.
    if model.ignore_merges {
        return Err("whole pieces that are looked up before merging");
    }
    // Of two names of one id, a merge could mean either.
    if model.vocab.values().collect::<HashSet<_>>().len() != model.vocab.len() {
        return Err("an id with two names");
    }
    // A letter without an id is then its bytes, whatever stands around it.
    let bytes = byte_ids(&model).ok_or("letters without an id that do not become bytes")?;
    let mut cuts = Cuts::everywhere();
    let pairs = pairs(&model, &bytes, changes, &mut cuts)?;
    close_tokens(tokens, &mut cuts);
    let mut letters: HashMap<char, u32> = HashMap::new();
    for (name, id) in &model.vocab {
        let mut name = name.chars();
        if let (Some(letter), None) = (name.next(), name.next()) {
            letters.insert(letter, *id);
        }
    }
    let space = *letters.get(&changes.space).ok_or("no token for a space")?;
    letters.insert(' ', space);
    Ok((Merges::new(letters, bytes, pairs), cuts))
}

/// Ids of the tokens for single bytes, if there is one for each.
fn byte_ids(model: &Model) -> Option<[u32; 256]> {
    let mut ids = [0; 256];
    for (id, byte) in ids.iter_mut().zip(0..=u8::MAX).filter(|_| model.byte_fallback) {
        *id = *model.vocab.get(&format!("<0x{byte:02X}>"))?;
    }
    model.byte_fallback.then_some(ids)
}

/// The list of merges; closes the cuts at their seams.
fn pairs(model: &Model, bytes: &[u32], changes: Changes, cuts: &mut Cuts) -> Result<Pairs, &'static str> {
    let wrong = "a merge that is none";
    let bytes: HashSet<u32> = bytes.iter().copied().collect();
    let mut merges = Vec::with_capacity(model.merges.len());
    let mut name = String::new();
    for merge in &model.merges {
        let (left, right) = merge.halves().ok_or(wrong)?;
        name.clear();
        name.extend([left, right]);
        let id = |text: &str| model.vocab.get(text).copied().ok_or(wrong);
        let (left_id, right_id, merged) = (id(left)?, id(right)?, id(&name)?);
        // Such a token may stand for a byte, and then its name is not what is in the text.
        if bytes.contains(&left_id) || bytes.contains(&right_id) {
            return Err("bytes that are merged");
        }
        merges.push((left_id, right_id, merged));
        let (before, behind) = left.chars().next_back().zip(right.chars().next()).ok_or(wrong)?;
        // In the text this is a space or the letter itself.
        let forms =
            |letter: char| [Some(letter), (letter == changes.space).then_some(' ')].into_iter().flatten();
        for (before, behind) in
            forms(before).flat_map(|before| forms(behind).map(move |behind| (before, behind)))
        {
            cuts.close(last_byte(before), first_byte(behind));
        }
    }
    let highest = model.vocab.values().copied().max().unwrap_or_default();
    Pairs::of(merges, highest).ok_or("more merges or higher ids than are followed")
}

fn close_tokens(tokens: &[AddedToken], cuts: &mut Cuts) {
    for token in tokens {
        for pair in token.content.as_bytes().windows(2) {
            if let [left, right] = pair {
                cuts.close(*left, *right);
            }
        }
    }
}

fn last_byte(letter: char) -> u8 {
    letter.encode_utf8(&mut [0; 4]).bytes().next_back().unwrap_or_default()
}

fn first_byte(letter: char) -> u8 {
    letter.encode_utf8(&mut [0; 4]).bytes().next().unwrap_or_default()
}
