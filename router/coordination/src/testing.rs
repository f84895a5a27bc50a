//! Real Redis servers for tests: started on loopback in a folder of their own, hurt as a test wants, gone with it.
//!
//! Needs `redis-server` in the path; certificates need `openssl`.

#![expect(clippy::expect_used, clippy::panic, reason = "a test without its server must fail loudly")]

mod certificates;
mod cluster;
mod proxy;
mod sentinel;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kvasir_settings::redis::{RedisNode, RedisSettings, RedisTopology};
use redis::Value;
use tempfile::TempDir;

use crate::connection::Redis;

pub use certificates::Certificates;
pub use cluster::TestCluster;
pub use proxy::{Proxy, Weather};
pub use sentinel::TestSentinel;

/// How long a server may take to do what a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `redis-server` of a test. Killed when dropped, and when the test's process dies.
#[derive(Debug)]
pub struct TestServer {
    /// A shell that holds the server; it kills it when its standard input ends.
    holder: Option<Child>,
    pid: u32,
    port: u16,
    tls: Option<Certificates>,
    arguments: Vec<String>,
    folder: TempDir,
}

impl TestServer {
    /// An empty server that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// An empty server with more arguments for `redis-server`.
    pub async fn start_with(arguments: &[&str]) -> Self {
        Self::start_as(arguments, None).await
    }

    /// A server that speaks only TLS and wants a client certificate.
    pub async fn start_tls(certificates: Certificates) -> Self {
        let paths = [
            ("--tls-cert-file", certificates.server.0.display().to_string()),
            ("--tls-key-file", certificates.server.1.display().to_string()),
            ("--tls-ca-cert-file", certificates.authority.display().to_string()),
        ];
        let arguments: Vec<&str> = paths.iter().flat_map(|(name, path)| [*name, path.as_str()]).collect();
        Self::start_as(&arguments, Some(certificates)).await
    }

    async fn start_as(arguments: &[&str], tls: Option<Certificates>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut server = Self {
            holder: None,
            pid: 0,
            port: 0,
            tls,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            folder,
        };
        // Somebody else may take the free port before the server does.
        for _ in 0..10 {
            server.port = free_port();
            server.spawn();
            if server.answers().await {
                return server;
            }
            server.kill();
        }
        panic!("redis-server does not start: {}", server.log());
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn node(&self) -> RedisNode {
        RedisNode { host: "127.0.0.1".to_owned(), port: self.port }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Settings that lead to it.
    pub fn settings(&self) -> RedisSettings {
        RedisSettings { tls: self.tls.as_ref().map(Certificates::client_tls), ..settings_of(self.node()) }
    }

    /// A handle that leads to it, connected.
    pub async fn redis(&self) -> Redis {
        connected(self.settings()).await
    }

    /// Sends one command on a connection of its own. The answer's parts as texts, nested ones after one another; nil
    /// as `(nil)`, an error as it was sent.
    pub async fn ask(&self, words: &[&str]) -> Vec<String> {
        self.try_ask(words).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// As [`ask`](Self::ask), of a server that may not be there.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn try_ask(&self, words: &[&str]) -> Result<Vec<String>, String> {
        ask_at(&self.settings(), words).await
    }

    /// Waits until the parts of the answer to a command satisfy a test.
    pub async fn wait_for(&self, words: &[&str], test: impl Fn(&[String]) -> bool) {
        let mut last = Ok(Vec::new());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            last = self.try_ask(words).await;
            if last.as_ref().is_ok_and(|parts| test(parts)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{words:?} never became as wanted, last {last:?}");
    }

    /// Calls of a command since the server's start, 0 if it was never called.
    pub async fn calls(&self, command: &str) -> u64 {
        let wanted = format!("cmdstat_{}:calls=", command.to_ascii_lowercase());
        let text = self.ask(&["INFO", "commandstats"]).await.join("\n");
        text.lines()
            .find_map(|line| line.strip_prefix(&wanted)?.split(',').next()?.parse().ok())
            .unwrap_or_default()
    }

    /// Stops the server without ending it: connections stay open and nothing is answered (SIGSTOP).
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Kills the server (SIGKILL). What it held is lost, unless `SAVE` was sent to it.
    pub fn kill(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }

    /// Starts a killed server again, on the same port and with more arguments, and waits until it answers.
    pub async fn restart_with(&mut self, arguments: &[&str]) {
        self.kill();
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.spawn();
        assert!(self.answers().await, "redis-server does not start again: {}", self.log());
    }

    /// Kills the server and starts it again, empty, on the same port.
    pub async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    fn spawn(&mut self) {
        let port = self.port.to_string();
        let ports = if self.tls.is_some() {
            ["--port", "0", "--tls-port", port.as_str()]
        } else {
            ["--port", port.as_str(), "--tls-port", "0"]
        };
        let mut holder = Command::new("sh")
            .args([
                "-c",
                r#"redis-server "$@" & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null; wait"#,
                "redis",
            ])
            .args(&self.arguments)
            .args(ports)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--logfile", "log"])
            .arg("--dir")
            .arg(self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh and redis-server are there");
        let mut line = String::new();
        let output = holder.stdout.take().expect("standard output is piped");
        BufReader::new(output).read_line(&mut line).expect("the holder says the server's number");
        self.pid = line.trim().parse().expect("a process number");
        self.holder = Some(holder);
    }

    /// Whether the server comes up; `false` as soon as it has ended.
    async fn answers(&self) -> bool {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            // A server that is loading or wants a password is up.
            match self.try_ask(&["PING"]).await {
                Ok(_) => return true,
                Err(error) if error.contains("refused") => {}
                Err(_) => return true,
            }
            if !Path::new(&format!("/proc/{}/exe", self.pid)).exists() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.pid.to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "kill {signal} {}", self.pid);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Settings for one plain server without a password.
pub fn settings_of(node: RedisNode) -> RedisSettings {
    RedisSettings {
        topology: RedisTopology::Single(node),
        username: None,
        password: None,
        database: 0,
        tls: None,
        implied: false,
    }
}

/// A handle with these settings, once it is connected.
pub async fn connected(settings: RedisSettings) -> Redis {
    let redis = Redis::new(settings).expect("the settings are right");
    let status = || format!("{redis:?}");
    tokio::time::timeout(PATIENCE, redis.connected())
        .await
        .unwrap_or_else(|_| panic!("never connected: {}", status()));
    redis
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback has a free port")
        .port()
}

async fn ask_at(settings: &RedisSettings, words: &[&str]) -> Result<Vec<String>, String> {
    let plan = crate::connection::Plan::new(settings).map_err(|error| error.to_string())?;
    let RedisTopology::Single(node) = &settings.topology else { return Err("not one server".to_owned()) };
    let work = async {
        let client = plan.client(node)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut cmd = redis::cmd(words.first().copied().unwrap_or("PING"));
        cmd.arg(words.get(1..).unwrap_or_default());
        connection.set_response_timeout(PATIENCE);
        redis::aio::ConnectionLike::req_packed_command(&mut connection, &cmd).await
    };
    match work.await {
        Ok(value) => {
            let mut parts = Vec::new();
            flatten(value, &mut parts);
            Ok(parts)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn flatten(value: Value, into: &mut Vec<String>) {
    match value {
        Value::Array(values) | Value::Set(values) => {
            values.into_iter().for_each(|value| flatten(value, into))
        }
        Value::Map(pairs) => pairs.into_iter().for_each(|(name, value)| {
            flatten(name, into);
            flatten(value, into);
        }),
        Value::BulkString(bytes) => into.push(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => into.push(text),
        Value::Okay => into.push("OK".to_owned()),
        Value::Int(number) => into.push(number.to_string()),
        Value::ServerError(error) => into.push(error.to_string()),
        _ => into.push("(nil)".to_owned()),
    }
}
