//! A child with everything it starts: one process group, ended as one, never orphaned.
//!
//! A small shell, the guard, leads the group and listens on a pipe whose other end only this process holds. A word on
//! the pipe is a signal for the group; the pipe's end means that we are done with the group or that we are gone, for
//! whatever reason (SIGKILL, out of memory), and the guard kills all of it. `PR_SET_PDEATHSIG` would reach the child
//! alone, and would fire when the thread that started it ends.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::lines::Tail;

/// Signals that end the child leave the guard: it has to see the end.
const GUARD: &str = "trap '' TERM INT HUP QUIT; while read -r s; do kill -s \"$s\" 0; done; kill -s KILL 0";

/// How long the kernel may take to end what was killed.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait for what a child wrote before it ended. Others in its group may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A running child and its group.
#[derive(Debug)]
pub struct Group {
    child: Child,
    guard: Child,
    orders: Option<ChildStdin>,
    readers: JoinSet<()>,
}

impl Group {
    /// Starts a command line with more environment. What it writes goes to `tail`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(line: &[String], environment: &[(String, String)], tail: &Tail) -> io::Result<Self> {
        let (program, arguments) =
            line.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = guard.stdin.take();
        let group = guard.id().and_then(|id| i32::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // Python would otherwise hold its lines back until a buffer is full.
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(group)
            .spawn()?;
        // These end when the last process of the group closes its end.
        let mut readers = JoinSet::new();
        if let Some(stream) = child.stdout.take() {
            readers.spawn(tail.clone().follow(stream));
        }
        if let Some(stream) = child.stderr.take() {
            readers.spawn(tail.clone().follow(stream));
        }
        Ok(Self { child, guard, orders, readers })
    }

    /// Waits for the child's end. May be dropped and called again.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits a little for the last words of a child that has ended: they may still be in the pipe.
    pub async fn last_words(&mut self) {
        let all_read = async { while self.readers.join_next().await.is_some() {} };
        let _ = timeout(LAST_WORDS, all_read).await;
    }

    /// Ends the group: SIGTERM, and after `grace`, or once the child is gone, SIGKILL for what is left. False when
    /// something is still there after that.
    pub async fn end(mut self, grace: Duration) -> bool {
        if let Some(orders) = &mut self.orders
            && orders.write_all(b"TERM\n").await.is_ok()
        {
            let _ = timeout(grace, self.child.wait()).await;
        }
        drop(self.orders.take());
        // The guard has the order; this is for a child that left the group, or a guard that is gone.
        let _ = self.child.start_kill();
        let both = async { tokio::join!(self.child.wait(), self.guard.wait()) };
        let gone = timeout(KILL_PATIENCE, both).await.is_ok();
        self.last_words().await;
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn sh(script: &str) -> (Group, Tail) {
        let tail = Tail::new("m", None);
        let line = ["/bin/sh", "-c", script].map(str::to_owned);
        (Group::start(&line, &[], &tail).unwrap(), tail)
    }

    async fn until(what: &str, condition: impl Fn() -> bool) {
        let waited = timeout(PATIENCE, async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "waited in vain until {what}");
    }

    fn runs(pid: &str) -> bool {
        // A killed process may stay as a zombie until whoever inherited it looks.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    async fn pid(tail: &Tail) -> String {
        until("the child wrote its grandchild's id", || !tail.lines().is_empty()).await;
        tail.lines()[0].clone()
    }

    #[tokio::test]
    async fn sigterm_ends_a_child_that_listens() {
        let (group, tail) = sh("trap 'echo bye; exit 0' TERM; echo up; sleep 600 & wait");
        until("it is up", || !tail.lines().is_empty()).await;
        assert!(group.end(PATIENCE).await);
        assert_eq!(tail.lines(), ["up", "bye"]);
    }

    #[tokio::test]
    async fn a_deaf_child_and_its_own_children_are_killed() {
        let (group, tail) = sh("trap '' TERM; sleep 600 & echo $!; wait; sleep 600");
        let grandchild = pid(&tail).await;
        assert!(runs(&grandchild));
        assert!(group.end(Duration::from_millis(50)).await);
        until("the grandchild is gone", || !runs(&grandchild)).await;
    }

    #[tokio::test]
    async fn nothing_outlives_the_one_who_holds_the_group() {
        let (group, tail) = sh("trap '' TERM; sleep 600 & echo $!; wait");
        let grandchild = pid(&tail).await;
        // As when this process dies: only the pipe's end is left to tell the guard.
        drop(group);
        until("the grandchild is gone", || !runs(&grandchild)).await;
    }

    #[tokio::test]
    async fn a_command_that_is_not_there_is_said() {
        assert!(!Path::new("/nowhere/vllm").exists());
        let error = Group::start(&["/nowhere/vllm".to_owned()], &[], &Tail::new("m", None)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(Group::start(&[], &[], &Tail::new("m", None)).is_err());
    }
}
