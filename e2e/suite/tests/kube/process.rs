//! The router as a process of its own: called as an image calls it, with an environment of its own.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use kvasir_suite::client;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin};
use tokio::time::Instant;

use crate::routers::free_port;

/// What the router is called with, in JSON.
const ARGUMENTS: &str = "ROUTER_OF_A_TEST";
/// The test below, by its name.
const ENTRY: &str = "process::router_of_another_test";

/// Watches that failed come back within ten seconds, the keeper of a certificate looks every minute.
const GUARD: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(25);

/// The ports of a router, in the place of those that manifests name.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub router: u16,
    pub metrics: u16,
    pub debug: u16,
    pub webhook: u16,
}

impl Ports {
    pub fn free() -> Self {
        Self { router: free_port(), metrics: free_port(), debug: free_port(), webhook: free_port() }
    }
}

/// A router that runs until it is told to stop, or until this is dropped.
#[derive(Debug)]
pub struct Process {
    pub ports: Ports,
    child: Child,
    // Its end ends the router.
    _input: ChildStdin,
    folder: TempDir,
}

impl Process {
    /// Starts it, with these variables and no others. The first argument is what it is called.
    pub fn start(ports: Ports, arguments: &[String], environment: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", ENTRY, "--nocapture", "--test-threads=1"])
            .env_clear()
            .env(ARGUMENTS, serde_json::to_string(arguments).unwrap())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(file("stdout"))
            .stderr(file("stderr"));
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let _input = child.stdin.take().unwrap();
        Self { ports, child, _input, folder }
    }

    /// What it wrote to its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// How many lines of the log have these words.
    pub fn said(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    /// What it wrote for others so far: the access log.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stdout")).unwrap()
    }

    /// Asks for a clean end, as a kubelet does, and gives the exit code.
    pub async fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        tokio::time::timeout(GUARD, self.child.wait()).await.unwrap().unwrap().code()
    }

    /// The exit code of one that ends by itself.
    pub async fn ended(&mut self) -> Option<i32> {
        tokio::time::timeout(GUARD, self.child.wait()).await.unwrap().unwrap().code()
    }

    /// What a page of the metrics listener says a series is.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let page = get(self.ports.metrics, "/metrics").await?;
        let page = String::from_utf8_lossy(page.body()).into_owned();
        let line = page.lines().find(|line| line.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(io::stderr(), "the router's log:\n{}", self.log());
        }
    }
}

/// What is answered at a port of this machine; nothing where nobody listens.
pub async fn get(port: u16, path: &str) -> Option<Response<Bytes>> {
    client::send(([127, 0, 0, 1], port).into(), client::get(path).unwrap()).await.ok()
}

/// The same, as JSON; null where it is none.
pub async fn json_at(port: u16, path: &str) -> Value {
    let answer = get(port, path).await;
    answer.and_then(|answer| serde_json::from_slice(answer.body()).ok()).unwrap_or_default()
}

/// The answer to a chat with this model; nothing where nobody listens.
pub async fn chat(port: u16, model: &str) -> Option<Response<Bytes>> {
    let body = serde_json::json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let request = client::post("/v1/chat/completions", body.to_string()).unwrap();
    client::send(([127, 0, 0, 1], port).into(), request).await.ok()
}

/// The status of the same; 0 where nobody listens.
pub async fn chat_status(port: u16, model: &str) -> u16 {
    chat(port, model).await.map_or(0, |answer| answer.status().as_u16())
}

/// Waits for a condition, or fails loudly.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + GUARD;
    while !holds().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Does nothing unless another test runs it as a process of its own.
#[test]
#[expect(clippy::disallowed_methods, reason = "this process is the router's, and it must end with its code")]
fn router_of_another_test() {
    let Some(arguments) = std::env::var_os(ARGUMENTS) else { return };
    // Its input ends when the test that started it is gone, however that ended.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(9);
    });
    let arguments: Vec<String> = serde_json::from_str(arguments.to_str().unwrap()).unwrap();
    let code = kvasir::cli::run(arguments.into_iter().map(OsString::from).collect());
    let code = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    std::process::exit(code.map_or(-1, i32::from));
}
