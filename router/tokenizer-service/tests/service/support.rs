//! A running service for tests, its models in directories, and calls to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args as _, Command, FromArgMatches as _};
use http::Method;
use kvasir_core::{SideClient as _, SideRequest};
use kvasir_tokenizer_service::cluster::Names;
use kvasir_tokenizer_service::timings::Timings;
use kvasir_tokenizer_service::{Service, ServiceConfig, TokenizerArgs};
use kvasir_upstream::HyperSideClient;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[path = "../../src/testing.rs"]
mod models;

pub use models::{CHATML, write_model};

/// Waits end here: something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service on a free port.
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
    pub folder: TempDir,
}

impl Running {
    /// Starts one with these flags; `DIR` in them stands for its folder.
    pub async fn start(folder: TempDir, flags: &[&str], change: impl FnOnce(&mut ServiceConfig)) -> Self {
        Self::start_named(folder, flags, None, change).await
    }

    /// The same with models that a cluster names.
    pub async fn start_named(
        folder: TempDir,
        flags: &[&str],
        names: Option<Names>,
        change: impl FnOnce(&mut ServiceConfig),
    ) -> Self {
        let command = TokenizerArgs::augment_args(Command::new("tokenizer").args_override_self(true));
        let directory = folder.path().to_str().unwrap();
        let own = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--hf-hub-offline",
            "--kubernetes",
            "off",
            "--hf-home",
            directory,
            "--render-command",
            env!("CARGO_BIN_EXE_fake-renderer"),
        ];
        let line = std::iter::once("tokenizer").chain(own).chain(flags.iter().copied());
        let line = line.map(|word| word.replace("DIR", directory));
        let matches = command.try_get_matches_from(line).unwrap();
        let mut config = ServiceConfig::of(&TokenizerArgs::from_arg_matches(&matches).unwrap()).unwrap();
        config.timings = quick();
        config.base_port = own_ports();
        change(&mut config);
        let mut service = Service::bind(config).await.unwrap();
        if let Some(names) = names {
            service = service.named_by(names);
        }
        let (address, stop) = (service.address(), CancellationToken::new());
        let task = tokio::spawn(service.serve(stop.clone()));
        Self { address, stop, task, folder }
    }

    /// One call.
    pub async fn call(&self, method: Method, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
        let (status, _, body) = self.raw(method, path, body).await;
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The same with headers, and the body as it came.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (u16, http::HeaderMap, Bytes) {
        let request = SideRequest {
            method,
            url: format!("http://{}{path}", self.address),
            tls: None,
            body: body.into(),
            timeout: PATIENCE,
            max_bytes: 256 << 20,
        };
        let answer = HyperSideClient::default().call(request).await.unwrap();
        (answer.status.as_u16(), answer.headers, answer.body)
    }

    /// `POST /tokenize` of a prompt.
    pub async fn tokenize(&self, model: &str, prompt: &str) -> (u16, Value) {
        self.call(Method::POST, "/tokenize", json!({"model": model, "prompt": prompt}).to_string()).await
    }

    /// A model's line of `GET /models`; null for none.
    pub async fn line(&self, model: &str) -> Value {
        let (_, answer) = self.call(Method::GET, "/models", "").await;
        let lines = answer["models"].as_array().cloned().unwrap_or_default();
        lines.into_iter().find(|line| line["model"] == model).unwrap_or_default()
    }

    /// Waits for a model's line to be as wanted.
    pub async fn line_when(&self, model: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.line(model).await;
                if wanted(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "waited in vain for {model}; last: {last}");
        last
    }

    /// Waits for a model's status.
    pub async fn until(&self, model: &str, status: &str) -> Value {
        self.line_when(model, |line| line["status"] == status).await
    }

    /// A model's directory.
    pub fn model(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stops, and gives the folder back once the service has ended.
    pub async fn stop(self) -> TempDir {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
        self.folder
    }
}

/// A folder with models.
pub fn folder(models: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, model) in models.iter().enumerate() {
        let directory = folder.path().join(model);
        std::fs::create_dir(&directory).unwrap();
        write_model(&directory, number * 100, CHATML);
    }
    folder
}

/// Times for renderers that need a moment only.
fn quick() -> Timings {
    Timings {
        startup: Duration::from_secs(20),
        poll_starting: Duration::from_millis(10),
        poll_ready: Duration::from_millis(20),
        health: Duration::from_secs(1),
        strikes: 2,
        grace: Duration::from_secs(5),
        restart: Duration::from_millis(10),
        refill: Duration::from_secs(3600),
        retry: Duration::from_secs(1),
        file: Duration::from_millis(20),
        departure: Duration::from_millis(500),
        first_names: Duration::from_millis(500),
    }
}

/// The first port for a service's renderers: a range for each, below those that the system gives out by itself.
fn own_ports() -> u16 {
    static SERVICES: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 60).unwrap();
    20_000 + process * 200 + SERVICES.fetch_add(1, Ordering::Relaxed) % 20 * 10
}

/// The process id that a renderer wrote.
pub fn pid(source: &Path) -> String {
    std::fs::read_to_string(source.join("pid")).unwrap()
}

/// Whether a process runs; a killed one that nobody waited for does not.
pub fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Kills a process that the service started.
pub fn kill(pid: &str) {
    let killed = std::process::Command::new("kill").args(["-KILL", pid]).status().unwrap();
    assert!(killed.success());
}
