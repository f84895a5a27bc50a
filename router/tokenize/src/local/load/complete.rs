//! The `tokenizer.json` that the engine works with: the file, changed as the class and the files beside it say.

use std::path::Path;

use serde::Deserialize;
use tokenizers::Tokenizer;

use super::super::outline::AddedToken;
use super::class::Class;
use super::rebuild::same_rules;
use super::settings::{Default, Settings};
use super::{LoadError, unsupported};

/// What is told to a user whose directory is not followed.
const FIX: &str = "ask the engine by leaving the directory out, or give it the class PreTrainedTokenizerFast (and no auto_map) \
                   here and at the engine, which makes both use tokenizer.json as it is";

/// A directory with a `tokenizer.json`.
#[derive(Debug)]
pub struct Complete<'a> {
    path: &'a Path,
    settings: &'a Settings,
    class: Class,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: u64,
    #[serde(flatten)]
    token: AddedToken,
}

impl<'a> Complete<'a> {
    /// The directory of a file.
    ///
    /// # Errors
    /// What the engine does with it is not followed here.
    pub fn of(path: &'a Path, settings: &'a Settings) -> Result<Self, LoadError> {
        let class = settings.check_switches().and_then(|()| Class::of(settings));
        let class = class.map_err(|reason| unsupported(path, &reason, FIX))?;
        Ok(Self { path, settings, class })
    }

    /// The tokens that the class names itself.
    pub fn defaults(&self) -> &'static [Default] {
        match self.class {
            Class::Generic => &[],
            Class::Rebuilt(class) => class.defaults(),
        }
    }

    /// The text of the file as the engine's class has it; the very same where the class changes nothing.
    ///
    /// # Errors
    /// The file is damaged, or what the engine does with it is not followed here.
    pub fn text(&self, text: Vec<u8>) -> Result<Vec<u8>, LoadError> {
        let damaged = |reason: String| LoadError::Damaged { path: self.path.to_owned(), reason };
        let not_followed = |reason: String| unsupported(self.path, &reason, FIX);
        let file: File = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let own: Vec<(u64, AddedToken)> =
            file.added_tokens.into_iter().map(|entry| (entry.id, entry.token)).collect();
        let special = self.settings.special(&own, self.defaults()).map_err(not_followed)?;
        let present: Vec<AddedToken> = own.into_iter().map(|(_, token)| token).collect();
        let missing = special.missing(&present);
        let parse = || Tokenizer::from_bytes(&text).map_err(|error| damaged(error.to_string()));
        let write = |tokenizer: Tokenizer| {
            tokenizer.to_string(false).map(String::into_bytes).map_err(|error| damaged(error.to_string()))
        };
        let Class::Rebuilt(class) = self.class else {
            if missing.is_empty() {
                return Ok(text);
            }
            let mut tokenizer = parse()?;
            add(&mut tokenizer, &missing).map_err(damaged)?;
            return write(tokenizer);
        };
        let as_it_is = parse()?;
        let mut rebuilt = class.apply(&as_it_is, &self.settings.config, &special).map_err(not_followed)?;
        add(&mut rebuilt, &special.missing(&[])).map_err(damaged)?;
        if class.adds_plainly() {
            let plain: Vec<AddedToken> =
                special.all().map(|token| AddedToken::plain(&token.content, true)).collect();
            add(&mut rebuilt, &plain).map_err(damaged)?;
        }
        if same_rules(&as_it_is, &rebuilt) {
            return Ok(text);
        }
        if self.settings.model.is_null() {
            let reason = "a class that changes tokenizer.json for some types of models, and no config.json";
            let fix = "put the model's config.json beside it";
            return Err(unsupported(self.path, reason, fix));
        }
        write(rebuilt)
    }
}

/// Adds tokens in their order. One whose text is there takes the place of the other.
fn add(tokenizer: &mut Tokenizer, tokens: &[AddedToken]) -> Result<(), String> {
    let tokens = tokens.iter().map(|token| {
        tokenizers::AddedToken::from(token.content.clone(), token.special)
            .single_word(token.single_word)
            .lstrip(token.lstrip)
            .rstrip(token.rstrip)
            .normalized(token.normalized)
    });
    tokenizer.add_tokens(tokens).map(drop).map_err(|error| error.to_string())
}
