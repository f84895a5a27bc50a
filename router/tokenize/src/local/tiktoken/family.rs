//! Families of rank files: how their models cut a text, and which tokens they add.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

use serde_json::Value;

/// Contractions, words with what stands before them, digits one by one, marks, and white space. Qwen's first models.
const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Runs of Han by themselves, words by their case, three digits at a time. Moonshot's models.
const KIMI: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// OpenAI's encodings before 2023.
const R50K: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// `cl100k_base` as it was first written: the fast encoder knows it. Today's form takes blanks at the end of a text whole,
/// which makes no difference, for no token has blanks behind its last line break.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// `o200k_base`.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Ids from which Qwen's special tokens count, whatever the file holds.
const QWEN_SPECIALS: u32 = 151_643;

/// Qwen's tokens without a use of their own.
const QWEN_EXTRAS: u32 = 205;

/// Moonshot's ids behind the ranks, those without a name included.
const KIMI_SPECIALS: u32 = 258;

/// Highest id of a special token: the vocabulary has an entry for each id below it.
const HIGHEST_ID: u32 = 1 << 21;

/// In which order a chat template gets the keys of the tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ToolOrder {
    /// As they came.
    #[default]
    AsGiven,
    /// Sorted, at every level.
    Sorted,
    /// Either, depending on the revision of the model's code.
    Unknown,
}

/// How the texts of one family are cut, and its special tokens.
#[derive(Debug)]
pub struct Family {
    /// How a text is cut before merging, in the syntax of Oniguruma.
    pub pattern: Cow<'static, str>,
    /// Whether a text is composed (NFC) first.
    pub composes: bool,
    /// Most letters of a text, and of a run of blanks or of other letters: longer ones are cut by the model's code.
    pub limits: Option<(usize, usize)>,
    /// What becomes of tools.
    pub tools: ToolOrder,
    origin: Origin,
    listed: BTreeMap<u32, String>,
}

/// Whose rules a family follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Qwen,
    Kimi,
    Other,
}

/// The files that tell the family.
#[derive(Debug)]
pub struct FamilyFiles<'a> {
    /// The rank file.
    pub ranks: &'a Path,
    /// `tokenizer_config.json`.
    pub config: &'a Value,
    /// `config.json` of the model.
    pub model: &'a Value,
}

impl Family {
    /// The family of a directory.
    ///
    /// # Errors
    /// It is not known here, and what can be done.
    pub fn of(files: &FamilyFiles<'_>) -> Result<Self, String> {
        let listed = listed(files.config)?;
        let family = |pattern: &'static str, origin| Self {
            pattern: pattern.into(),
            composes: false,
            limits: None,
            tools: ToolOrder::AsGiven,
            origin,
            listed: listed.clone(),
        };
        if let Some(pattern) = files.config.get("pat_str") {
            let pattern = pattern.as_str().ok_or("pat_str in tokenizer_config.json is no text")?;
            check_pattern(pattern)?;
            return Ok(Self { pattern: pattern.to_owned().into(), ..family("", Origin::Other) });
        }
        match class(files.config) {
            Some("QWenTokenizer" | "QwenTokenizer") => {
                // The models with pictures and sound add tokens of their own under the same name.
                if files.model.get("visual").is_some() || files.model.get("audio").is_some() {
                    return Err("a Qwen model with pictures or sound".to_owned());
                }
                Ok(Self { composes: true, ..family(QWEN, Origin::Qwen) })
            }
            Some("TikTokenTokenizer") => {
                if files
                    .model
                    .get("model_type")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kind.contains("k3"))
                {
                    return Err("Kimi K3, whose chats are written by code of the model".to_owned());
                }
                Ok(Self {
                    limits: Some((400_000, 25_000)),
                    tools: tool_order(files),
                    ..family(KIMI, Origin::Kimi)
                })
            }
            _ => {
                let (pattern, specials) = encoding(files).ok_or(
                    "no tokenizer that is known here: write how it cuts texts (its pattern, as pat_str) and its special \
                     tokens (as added_tokens_decoder) into tokenizer_config.json",
                )?;
                let mut family = family(pattern, Origin::Other);
                for (id, name) in specials {
                    family.listed.entry(*id).or_insert_with(|| (*name).to_owned());
                }
                Ok(family)
            }
        }
    }

    /// The special tokens by id, for a file with these ranks.
    ///
    /// # Errors
    /// The file does not fit the family.
    pub fn specials(&self, ranks: &[Vec<u8>]) -> Result<BTreeMap<u32, String>, String> {
        let count = u32::try_from(ranks.len()).map_err(|_| "too many ranks")?;
        let specials: BTreeMap<u32, String> = match self.origin {
            Origin::Other => self.listed.clone(),
            Origin::Qwen if count != QWEN_SPECIALS => {
                return Err(format!("{count} ranks, while Qwen's file has {QWEN_SPECIALS}"));
            }
            Origin::Qwen => ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
                .iter()
                .map(|name| (*name).to_owned())
                .chain((0..QWEN_EXTRAS).map(|number| format!("<|extra_{number}|>")))
                .zip(QWEN_SPECIALS..)
                .map(|(name, id)| (id, name))
                .collect(),
            Origin::Kimi => (count..count + KIMI_SPECIALS)
                .map(|id| {
                    let name = self.listed.get(&id).cloned();
                    (id, name.unwrap_or_else(|| format!("<|reserved_token_{id}|>")))
                })
                .collect(),
        };
        let taken = |id: &u32| {
            usize::try_from(*id).ok().and_then(|id| ranks.get(id)).is_some_and(|token| !token.is_empty())
        };
        if let Some(id) = specials.keys().find(|id| taken(id)) {
            return Err(format!("the special token {id} has the id of a rank"));
        }
        // Which of two such tokens tiktoken finds is left to chance.
        let mut names: Vec<&String> = specials.values().collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| matches!(pair, [one, other] if other.starts_with(one.as_str()))) {
            return Err("a special token that begins with another".to_owned());
        }
        Ok(specials)
    }
}

/// The name of the tokenizer's class: that of the model's own code, else that of transformers.
fn class(config: &Value) -> Option<&str> {
    let map = config.pointer("/auto_map/AutoTokenizer");
    let own = map.and_then(|map| map.as_str().or_else(|| map.get(0)?.as_str()));
    let name = own.or_else(|| config.get("tokenizer_class")?.as_str())?;
    name.rsplit('.').next()
}

/// Whether the model's code sorts the keys of tools before the template sees them: older revisions do not.
fn tool_order(files: &FamilyFiles<'_>) -> ToolOrder {
    let map = files.config.pointer("/auto_map/AutoTokenizer");
    let name = map.and_then(|map| map.as_str().or_else(|| map.get(0)?.as_str()));
    let module = name.and_then(|name| name.rsplit("--").next()?.split('.').next());
    let code = module
        .filter(|module| module.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
        .map(|module| files.ranks.with_file_name(format!("{module}.py")))
        .and_then(|path| super::super::load::read(&path).ok());
    match code {
        Some(code) if memchr::memmem::find(&code, b"def deep_sort_dict").is_some() => ToolOrder::Sorted,
        Some(_) => ToolOrder::AsGiven,
        None => ToolOrder::Unknown,
    }
}

/// One of OpenAI's encodings, by the file's name or by what the configuration names.
fn encoding(files: &FamilyFiles<'_>) -> Option<(&'static str, &'static [(u32, &'static str)])> {
    let named = files.config.get("encoding_name").and_then(Value::as_str);
    let name = named.or_else(|| files.ranks.file_stem()?.to_str())?;
    Some(match name {
        "gpt2" | "r50k_base" | "p50k_base" => (R50K, &[(50_256, "<|endoftext|>")]),
        "cl100k_base" => (
            CL100K,
            &[
                (100_257, "<|endoftext|>"),
                (100_258, "<|fim_prefix|>"),
                (100_259, "<|fim_middle|>"),
                (100_260, "<|fim_suffix|>"),
                (100_276, "<|endofprompt|>"),
            ],
        ),
        "o200k_base" => (O200K, &[(199_999, "<|endoftext|>"), (200_018, "<|endofprompt|>")]),
        _ => return None,
    })
}

/// The tokens of `added_tokens_decoder`, none of which may touch what stands around it.
fn listed(config: &Value) -> Result<BTreeMap<u32, String>, String> {
    let mut listed = BTreeMap::new();
    for (id, token) in config.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten() {
        let number = id.parse().ok().filter(|id| *id < HIGHEST_ID);
        let number = number.ok_or_else(|| format!("added_tokens_decoder has the id {id}"))?;
        let content = token.get("content").and_then(Value::as_str).filter(|content| !content.is_empty());
        let content =
            content.ok_or_else(|| format!("the token {id} of added_tokens_decoder has no content"))?;
        let set = |name: &str| token.get(name) == Some(&Value::Bool(true));
        if ["lstrip", "rstrip", "single_word"].iter().any(|name| set(name)) {
            return Err(format!("the token {id} of added_tokens_decoder touches what stands around it"));
        }
        listed.insert(number, content.to_owned());
    }
    Ok(listed)
}

/// A name in braces, as in `\p{L}`, is no count.
fn skip_escape(letters: &mut Peekable<Chars<'_>>) {
    let named = letters.next().is_some_and(|kind| kind.is_ascii_alphabetic());
    if named && letters.peek() == Some(&'{') {
        letters.by_ref().find(|letter| *letter == '}');
    }
}

/// What tiktoken's syntax means and Oniguruma's does not.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let mut letters = pattern.chars().peekable();
    let mut in_class = 0_usize;
    let mut previous = ' ';
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => skip_escape(&mut letters),
            '[' => in_class += 1,
            ']' => in_class = in_class.saturating_sub(1),
            '^' | '$' if in_class == 0 => {
                return Err(r"pat_str uses ^ or $: write \A or \z".to_owned());
            }
            '+' if in_class == 0 && previous == '}' => {
                return Err("pat_str has a count with + behind it: leave the + out".to_owned());
            }
            _ => {}
        }
        previous = letter;
    }
    Ok(())
}
