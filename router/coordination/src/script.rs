//! The scripts that change what is published: each checks who writes and what is there, and changes it, in one step.
//!
//! All of them have the same four keys, which are in one slot. Each answers a list whose first word is `ok`, `fenced`
//! (another writer has the owner), `lost` (what is there is not what the writer left), `held` or `schema`. All time is
//! the server's.

use std::sync::LazyLock;

use redis::Cmd;

/// Which script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Script {
    /// Become the owner's writer.
    Acquire,
    /// Publish the chunks of a new epoch.
    Commit,
    /// Add a delta.
    Delta,
    /// Say that the chunks hold more deltas.
    Fold,
    /// Renew the lease.
    Heartbeat,
    /// Give the lease up.
    Release,
    /// Say where the writer's own state is.
    Resume,
}

/// The keys of every script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScriptKeys {
    pub(crate) store: String,
    pub(crate) owners: String,
    pub(crate) meta: String,
    pub(crate) deltas: String,
}

/// The scripts that a server is known to have. Sending one by its name saves a kilobyte for each delta.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KnownScripts(u8);

struct Source {
    text: String,
    digest: String,
}

macro_rules! source {
    ($file:literal) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("script/clock.lua"),
                include_str!("script/prelude.lua"),
                include_str!($file)
            );
            Source { text: text.to_owned(), digest: redis::Script::new(text).get_hash().to_owned() }
        })
    };
}

static ACQUIRE: LazyLock<Source> = source!("script/acquire.lua");
static COMMIT: LazyLock<Source> = source!("script/commit.lua");
static DELTA: LazyLock<Source> = source!("script/delta.lua");
static FOLD: LazyLock<Source> = source!("script/fold.lua");
static HEARTBEAT: LazyLock<Source> = source!("script/heartbeat.lua");
static RELEASE: LazyLock<Source> = source!("script/release.lua");
static RESUME: LazyLock<Source> = source!("script/resume.lua");

impl Script {
    /// The command without its arguments; those follow as the script's file lists them, after the owner and the writer.
    pub(crate) fn command(self, keys: &ScriptKeys, known: KnownScripts) -> Cmd {
        let source = self.source();
        let mut cmd = if known.has(self) {
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(&source.digest);
            cmd
        } else {
            let mut cmd = redis::cmd("EVAL");
            cmd.arg(&source.text);
            cmd
        };
        cmd.arg(4).arg(&keys.store).arg(&keys.owners).arg(&keys.meta).arg(&keys.deltas);
        cmd
    }

    fn source(self) -> &'static Source {
        match self {
            Self::Acquire => &ACQUIRE,
            Self::Commit => &COMMIT,
            Self::Delta => &DELTA,
            Self::Fold => &FOLD,
            Self::Heartbeat => &HEARTBEAT,
            Self::Release => &RELEASE,
            Self::Resume => &RESUME,
        }
    }
}

impl KnownScripts {
    /// The server ran it in full.
    pub(crate) fn add(&mut self, script: Script) {
        self.0 |= 1 << script as u8;
    }

    fn has(self, script: Script) -> bool {
        self.0 & (1 << script as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_script_is_sent_by_its_name() {
        let keys = ScriptKeys { store: "s".into(), owners: "o".into(), meta: "m".into(), deltas: "d".into() };
        let mut known = KnownScripts::default();
        let long = Script::Delta.command(&keys, known).get_packed_command();
        known.add(Script::Delta);
        let short = Script::Delta.command(&keys, known).get_packed_command();
        let text = String::from_utf8(short.clone()).unwrap();
        assert!(text.contains("EVALSHA") && text.contains("$1\r\n4\r\n$1\r\ns\r\n$1\r\no\r\n"), "{text}");
        assert!(short.len() < 150 && long.len() > 1000);
        assert_eq!(Script::Fold.command(&keys, known).get_packed_command()[..14], *b"*7\r\n$4\r\nEVAL\r\n");
    }
}
