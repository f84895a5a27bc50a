//! Tells whether the files of a tokenizer's directory are still those that were loaded, without reading them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Most entries that are looked at; a model's directory has some dozens.
const MOST_ENTRIES: usize = 4_096;

/// Levels below the directory: templates may lie in a folder of their own.
const LEVELS: usize = 1;

/// The state of all files of a directory, and of a template beside it. Two states are equal when no file has come,
/// gone, or got another size, time or inode. Symbolic links are followed: a mounted ConfigMap and a snapshot of the
/// hub's cache change by switching them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint(Vec<FileState>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FileState {
    name: OsString,
    size: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Fingerprint {
    /// The present state. Empty where there is nothing to see.
    pub fn of(directory: &Path, chat_template: Option<&Path>) -> Self {
        let mut files = Vec::new();
        collect(directory, LEVELS, &mut files);
        files.extend(chat_template.and_then(state));
        files.sort_unstable();
        Self(files)
    }

    /// Whether there is nothing: a volume that is not mounted, for example.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn collect(directory: &Path, levels: usize, files: &mut Vec<FileState>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if files.len() >= MOST_ENTRIES {
            return;
        }
        let path = entry.path();
        match state(&path) {
            Some(file) => files.push(file),
            None if levels > 0 && path.is_dir() => collect(&path, levels - 1, files),
            None => {}
        }
    }
}

/// A regular file's state.
fn state(path: &Path) -> Option<FileState> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(FileState {
        name: path.as_os_str().to_owned(),
        size: metadata.len(),
        modified: metadata.modified().ok(),
        inode: metadata.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_seen_and_none_is_made_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let template = tempfile::NamedTempFile::new().unwrap();
        let look = || Fingerprint::of(path, Some(template.path()));
        assert!(!look().is_empty(), "the template");
        assert!(Fingerprint::of(&path.join("missing"), None).is_empty());
        std::fs::write(path.join("tokenizer.json"), "one").unwrap();
        std::fs::create_dir(path.join("more")).unwrap();
        std::fs::write(path.join("more/a"), "a").unwrap();
        let mut seen = vec![look()];
        assert_eq!(look(), seen[0]);
        // Another inode of the same size and, within the clock's precision, perhaps the same time.
        std::fs::write(path.join("next"), "two").unwrap();
        std::fs::rename(path.join("next"), path.join("tokenizer.json")).unwrap();
        seen.push(look());
        std::fs::write(path.join("more/a"), "longer").unwrap();
        seen.push(look());
        std::fs::write(path.join("other"), "").unwrap();
        seen.push(look());
        std::fs::write(template.path(), "{{ x }}").unwrap();
        seen.push(look());
        std::os::unix::fs::symlink(path.join("other"), path.join("link")).unwrap();
        seen.push(look());
        std::fs::remove_file(path.join("other")).unwrap();
        seen.push(look());
        for pair in seen.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }
}
