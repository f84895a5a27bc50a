//! A folder that is removed when the process that made it is gone, however it ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// A temporary folder. A static of this process is never dropped, so a shell outside waits for the process's end.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    remover: Child,
}

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("kvasir-cluster-").tempdir()?.keep();
        // Programs in it are killed by the same end of file; they may still write for a moment.
        let remover = Command::new("sh")
            .args(["-c", r#"cat >/dev/null; until rm -rf "$1" 2>/dev/null; do sleep 0.1; done"#, "remover"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("sh cannot be started")?;
        Ok(Self { path, remover })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}
