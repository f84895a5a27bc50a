//! Directories put together from a configuration in `data/directories` and a real tokenizer's file.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::directory;

/// A directory with the configuration in `data/directories` and the file of a tokenizer, under another name.
pub fn configured(name: &str, tokenizer: &str, file: &str, as_file: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let link = |from: PathBuf, to: &str| {
        symlink(&from, folder.path().join(to)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let configured = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/directories").join(name);
    for entry in configured.read_dir().unwrap_or_else(|error| panic!("{name}: {error}")).flatten() {
        link(entry.path(), &entry.file_name().to_string_lossy());
    }
    link(directory(tokenizer).join(file), as_file);
    folder
}
