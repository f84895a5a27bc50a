//! Tokenizers that are named by repository: fetched from the hub, or a mirror of it, into its usual cache.
//!
//! The cache has the layout of the hub's own tools, so that a renderer finds what was fetched here, and the other way
//! round. Only files that decide token ids are fetched, all of one commit; each is checked against its announced size
//! and, where the entity tag is a digest, its content.

mod cache;
mod error;
mod transfer;

use std::path::PathBuf;

use crate::cli::Secret;

pub use error::HubError;

use cache::RepositoryCache;
use transfer::{Remote, Transfer};

/// The branch that is followed.
const REVISION: &str = "main";

/// What a tokenizer needs first: without it there is nothing to load.
const TOKENIZER: &str = "tokenizer.json";

/// What else decides ids, where the repository has it.
const OPTIONAL: [&str; 7] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "chat_template.json",
    "config.json",
];

/// Where tokenizers come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubConfig {
    /// Base URL, without a slash at its end.
    pub endpoint: String,
    /// Credential.
    pub token: Option<Secret>,
    /// The cache directory.
    pub cache: PathBuf,
    /// Ask nobody.
    pub offline: bool,
    /// Whether the endpoint was said, and is to be passed on.
    pub from_flag: bool,
}

/// A repository's files in the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The directory.
    pub directory: PathBuf,
    /// Files that the repository has and that were only asked about.
    pub others: Vec<&'static str>,
    /// Whether all of those were asked about; a cache alone may not tell.
    pub complete: bool,
}

/// Fetches repositories.
#[derive(Debug)]
pub struct Hub {
    cache: PathBuf,
    offline: bool,
    transfer: Transfer,
}

impl Hub {
    /// A hub by its configuration.
    pub fn new(config: &HubConfig) -> Self {
        let transfer = Transfer::new(&config.endpoint, config.token.clone());
        Self { cache: config.cache.clone(), offline: config.offline, transfer }
    }

    /// The files of a repository. `others` are not fetched, only asked about.
    ///
    /// When the hub cannot be reached, what the cache holds is used.
    ///
    /// # Errors
    /// [`HubError`]
    pub async fn fetch(&self, repository: &str, others: &[&'static str]) -> Result<Snapshot, HubError> {
        if !is_repository(repository) {
            return Err(HubError::NotARepository(repository.to_owned()));
        }
        let cache = RepositoryCache::new(&self.cache, repository);
        if self.offline {
            return cached(&cache, others).ok_or_else(|| HubError::NotCached(repository.to_owned()));
        }
        match self.download(repository, &cache, others).await {
            Err(error @ HubError::Unreachable(_)) => match cached(&cache, others) {
                Some(snapshot) => {
                    tracing::warn!(repository, %error, "the hub cannot be reached; the cached files are used");
                    Ok(snapshot)
                }
                None => Err(error),
            },
            outcome => outcome,
        }
    }

    async fn download(
        &self,
        repository: &str,
        cache: &RepositoryCache,
        others: &[&'static str],
    ) -> Result<Snapshot, HubError> {
        let first = self.transfer.look(repository, REVISION, TOKENIZER).await?;
        let Remote::There(first) = first else {
            return Err(HubError::MissingFile { repository: repository.to_owned(), file: TOKENIZER });
        };
        let commit = first.commit.clone();
        self.keep(repository, cache, TOKENIZER, &first).await?;
        for file in OPTIONAL {
            match self.transfer.look(repository, &commit, file).await? {
                Remote::There(file_head) => self.keep(repository, cache, file, &file_head).await?,
                Remote::Absent => cache.note_absent(&commit, file)?,
            }
        }
        let mut present = Vec::new();
        for file in others {
            match self.transfer.look(repository, &commit, file).await? {
                Remote::There(_) => present.push(*file),
                Remote::Absent => cache.note_absent(&commit, file)?,
            }
        }
        cache.point(REVISION, &commit)?;
        Ok(Snapshot { directory: cache.snapshot(&commit), others: present, complete: true })
    }

    async fn keep(
        &self,
        repository: &str,
        cache: &RepositoryCache,
        file: &str,
        head: &transfer::FileHead,
    ) -> Result<(), HubError> {
        if cache.has(&head.commit, file) {
            return Ok(());
        }
        if !cache.has_blob(&head.etag) {
            let part = cache.part(&head.etag)?;
            self.transfer.fetch(repository, file, head, part.path()).await?;
            cache.adopt(part, &head.etag)?;
        }
        Ok(cache.link(&head.commit, file, &head.etag)?)
    }
}

/// What the cache holds of a repository; `None` when that is not enough for a tokenizer.
fn cached(cache: &RepositoryCache, others: &[&'static str]) -> Option<Snapshot> {
    let commit = cache.commit(REVISION)?;
    if !cache.has(&commit, TOKENIZER) {
        return None;
    }
    let present: Vec<&'static str> = others.iter().copied().filter(|file| cache.has(&commit, file)).collect();
    let complete = others.iter().all(|file| cache.has(&commit, file) || cache.is_absent(&commit, file));
    Some(Snapshot { directory: cache.snapshot(&commit), others: present, complete })
}

/// `name` or `owner/name`, of the characters that the hub allows.
pub fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.contains("..")
            && !part.contains("--")
            && part.chars().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.'))
            && !part.starts_with(['-', '.'])
    };
    let parts: Vec<&str> = text.split('/').collect();
    text.len() <= 96 && parts.len() <= 2 && parts.into_iter().all(part)
}

#[cfg(test)]
mod tests;
