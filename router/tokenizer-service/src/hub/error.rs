//! Why a repository could not be fetched.

use std::io;

/// The reason, in words for the one who set the source.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Neither a directory nor a repository's name.
    #[error("{0:?} is neither a directory that exists nor the name of a repository")]
    NotARepository(String),
    /// Offline, and not in the cache.
    #[error("{0} is not in the cache, and the hub is not asked (HF_HUB_OFFLINE)")]
    NotCached(String),
    /// There is no such repository, or it is not ours to see.
    #[error("the hub refuses {repository}: {reason}")]
    Refused {
        /// Which.
        repository: String,
        /// Status and the hub's own word for it.
        reason: String,
    },
    /// The repository lacks a file.
    #[error("{repository} has no {file}")]
    MissingFile {
        /// Which repository.
        repository: String,
        /// Which file.
        file: &'static str,
    },
    /// No answer, or a server error.
    #[error("the hub cannot be reached: {0}")]
    Unreachable(String),
    /// An answer that a hub does not give.
    #[error("this is no hub: {0}")]
    Odd(String),
    /// What came is not what was announced.
    #[error("{file} arrived damaged: {reason}")]
    Damaged {
        /// Which file.
        file: String,
        /// In what way.
        reason: String,
    },
    /// The cache cannot be written.
    #[error("the cache cannot be used: {0}")]
    Cache(#[from] io::Error),
}

impl HubError {
    /// Whether a renderer, which brings its own way to the hub, may still succeed: it may know a proxy that we do
    /// not, and can read tokenizers of other kinds. A refusal and a name that is none are the same for both.
    pub fn a_renderer_may_do_better(&self) -> bool {
        !matches!(self, Self::NotARepository(_) | Self::NotCached(_) | Self::Refused { .. })
    }
}
