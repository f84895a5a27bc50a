//! One program of a cluster: it writes a log, and is killed when this process is gone, however it ended.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rand::RngExt as _;

/// Below the ports that systems lend to outgoing connections: one that a killed program leaves is not lent away
/// before the program comes back.
const PORTS: std::ops::Range<u16> = 18_000..32_000;
const PORT_ATTEMPTS: usize = 100;
const LOG_LINES: usize = 25;

/// Where a program of the cluster tests is.
///
/// # Errors
/// It was not built yet.
pub fn binary(name: &str) -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("KVASIR_CACHE")
        .or_else(|| Some(variable("HOME")?.join(".cache/kvasir")))
        .context("neither KVASIR_CACHE nor HOME is set")?;
    let path = cache.join("kube/bin").join(name);
    ensure!(path.is_file(), "{} is missing: run e2e/kube/setup.sh first", path.display());
    Ok(path)
}

/// A port of 127.0.0.1 that nobody listens on now.
pub(super) fn free_port() -> Result<u16> {
    for _ in 0..PORT_ATTEMPTS {
        let port = rand::rng().random_range(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free");
}

#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    binary: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    holder: Option<Child>,
    pid: u32,
}

impl Program {
    /// Starts a program. Its log is a file of `folder`.
    pub(super) fn start(name: &'static str, folder: &Path, arguments: Vec<String>) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let mut program = Self { name, binary: binary(name)?, arguments, log, holder: None, pid: 0 };
        program.spawn()?;
        Ok(program)
    }

    /// Starts it again, with the same arguments.
    ///
    /// The shell that starts it waits for the end of its own input, which comes with the end of this process too, and
    /// then kills it. A group of their own keeps a terminal's Ctrl-C from reaching them in another order.
    pub(super) fn spawn(&mut self) -> Result<()> {
        let mut holder = Command::new("sh")
            .args(["-c", r#"log=$1; shift; "$@" >>"$log" 2>&1 & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null; wait"#])
            .arg("holder")
            .arg(&self.log)
            .arg(&self.binary)
            .args(&self.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("sh cannot be started")?;
        let mut line = String::new();
        let output = holder.stdout.take().context("the holder's output is not piped")?;
        BufReader::new(output).read_line(&mut line)?;
        self.holder = Some(holder);
        self.pid = line.trim().parse().with_context(|| format!("{} does not start: {line:?}", self.name))?;
        Ok(())
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// A program that has ended and was not waited for has no such file any more.
    pub(super) fn is_running(&self) -> bool {
        Path::new(&format!("/proc/{}/exe", self.pid)).exists()
    }

    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        let done = Command::new("kill").args([signal, &self.pid.to_string()]).status()?;
        ensure!(done.success(), "kill {signal} {} ({}) failed", self.pid, self.name);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }

    /// The last lines that it wrote.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
        format!("the end of {}:\n{}", self.log.display(), last.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
