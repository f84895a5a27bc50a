//! The hub's cache on disk, in the layout of the hub's own tools.
//!
//! `models--OWNER--NAME/` holds `blobs/ETAG`, `snapshots/COMMIT/FILE` (links to blobs), `refs/BRANCH` (a commit), and
//! `.no_exist/COMMIT/FILE` for files that are known not to be there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One repository's part of the cache. Names that come from the network were checked before they get here.
#[derive(Clone, Debug)]
pub struct RepositoryCache {
    root: PathBuf,
}

/// Content that is under way. What was not adopted is removed, also when a fetch is given up in the middle.
#[derive(Debug)]
pub struct Part(PathBuf);

impl Part {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Not there when it was adopted, or never written.
        drop(fs::remove_file(&self.0));
    }
}

impl RepositoryCache {
    /// The part of `repository` in the cache at `cache`.
    pub fn new(cache: &Path, repository: &str) -> Self {
        Self { root: cache.join(format!("models--{}", repository.replace('/', "--"))) }
    }

    /// The directory of a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// The commit that a branch pointed to last.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join("refs").join(revision)).ok()?;
        let commit = text.trim();
        super::transfer::is_plain(commit).then(|| commit.to_owned())
    }

    /// Remembers where a branch points to.
    pub fn point(&self, revision: &str, commit: &str) -> io::Result<()> {
        let path = self.root.join("refs").join(revision);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        let part = path.with_extension(format!("{}.part", uuid::Uuid::new_v4()));
        fs::write(&part, commit)?;
        fs::rename(part, path)
    }

    /// Whether a commit's file is there.
    pub fn has(&self, commit: &str, file: &str) -> bool {
        self.snapshot(commit).join(file).is_file()
    }

    /// Whether a commit is known not to have a file.
    pub fn is_absent(&self, commit: &str, file: &str) -> bool {
        self.root.join(".no_exist").join(commit).join(file).is_file()
    }

    /// Remembers that a commit does not have a file.
    pub fn note_absent(&self, commit: &str, file: &str) -> io::Result<()> {
        let path = self.root.join(".no_exist").join(commit).join(file);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        fs::write(path, "")
    }

    /// Whether content is there.
    pub fn has_blob(&self, etag: &str) -> bool {
        self.blob(etag).is_file()
    }

    /// Where content that is under way is kept: a name of its own for each, so that two that fetch the same file do
    /// not write into one another.
    pub fn part(&self, etag: &str) -> io::Result<Part> {
        let blobs = self.root.join("blobs");
        fs::create_dir_all(&blobs)?;
        Ok(Part(blobs.join(format!("{etag}.{}.incomplete", uuid::Uuid::new_v4().simple()))))
    }

    /// Makes content that has arrived whole a blob.
    pub fn adopt(&self, part: Part, etag: &str) -> io::Result<()> {
        fs::rename(part.path(), self.blob(etag))
    }

    /// Gives a commit's file its content.
    pub fn link(&self, commit: &str, file: &str, etag: &str) -> io::Result<()> {
        let path = self.snapshot(commit).join(file);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        let up = "../".repeat(file.split('/').count() + 1);
        match std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => Ok(()),
            // A link to content that is not there any more, or a volume without links.
            Err(_) => {
                drop(fs::remove_file(&path));
                fs::copy(self.blob(etag), &path).map(drop)
            }
            Ok(()) => Ok(()),
        }
    }

    fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_commit_are_links_to_content() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RepositoryCache::new(folder.path(), "owner/name");
        assert_eq!(cache.commit("main"), None);
        let part = cache.part("e1").unwrap();
        fs::write(part.path(), "text").unwrap();
        cache.adopt(part, "e1").unwrap();
        let given_up = cache.part("e2").unwrap();
        fs::write(given_up.path(), "half").unwrap();
        drop(given_up);
        assert_eq!(fs::read_dir(folder.path().join("models--owner--name/blobs")).unwrap().count(), 1);
        for file in ["tokenizer.json", "additional_chat_templates/tool_use.jinja"] {
            cache.link("c0ffee", file, "e1").unwrap();
            cache.link("c0ffee", file, "e1").unwrap();
            let path = cache.snapshot("c0ffee").join(file);
            assert!(path.symlink_metadata().unwrap().is_symlink());
            assert_eq!(fs::read_to_string(path).unwrap(), "text");
        }
        cache.note_absent("c0ffee", "tekken.json").unwrap();
        assert!(cache.is_absent("c0ffee", "tekken.json") && !cache.has("c0ffee", "tekken.json"));
        cache.point("main", "c0ffee").unwrap();
        assert_eq!(cache.commit("main").as_deref(), Some("c0ffee"));
        assert!(folder.path().join("models--owner--name/refs/main").is_file());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RepositoryCache::new(folder.path(), "name");
        cache.link("c", "f", "gone").unwrap_or_default();
        let part = cache.part("e").unwrap();
        fs::write(part.path(), "new").unwrap();
        cache.adopt(part, "e").unwrap();
        assert!(!cache.has("c", "f"));
        cache.link("c", "f", "e").unwrap();
        assert!(cache.has("c", "f"));
    }
}
