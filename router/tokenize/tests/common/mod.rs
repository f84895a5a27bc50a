//! Where the tests' real tokenizers lie.

use std::path::PathBuf;

/// A tokenizer's directory in the cache that `e2e/tokenizers/fetch.sh` fills.
#[expect(clippy::disallowed_methods, reason = "the place of a test's cache is no setting of the router")]
pub fn directory(name: &str) -> PathBuf {
    let cache = std::env::var("KVASIR_CACHE").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache").join("kvasir")
    });
    let directory = cache.join("tokenizers").join(name);
    assert!(directory.is_dir(), "{} is missing: run e2e/tokenizers/fetch.sh first", directory.display());
    directory
}
