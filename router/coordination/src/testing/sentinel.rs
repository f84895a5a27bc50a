//! A master, a replica, and a sentinel that watches them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kvasir_settings::redis::{RedisNode, RedisSettings, RedisTopology};
use tempfile::TempDir;

use super::{PATIENCE, TestServer, ask_at, free_port, settings_of};

/// The master's name.
const MASTER: &str = "blocks";

/// Two servers and one sentinel, whose word alone is enough for a failover after 500 ms of silence.
#[derive(Debug)]
pub struct TestSentinel {
    /// The servers; at start the first one is the master.
    pub servers: [TestServer; 2],
    holder: Child,
    port: u16,
    _folder: TempDir,
}

impl TestSentinel {
    /// Starts all three and waits until the sentinel knows the replica.
    pub async fn start() -> Self {
        let master = TestServer::start().await;
        let port = master.port().to_string();
        let of = format!("127.0.0.1 {port}");
        let replica = TestServer::start_with(&["--replicaof", &of, "--repl-diskless-sync-delay", "0"]).await;
        replica
            .wait_for(&["INFO", "replication"], |parts| parts.concat().contains("master_link_status:up"))
            .await;
        let folder = TempDir::new().expect("a temporary folder");
        let (holder, port) = Self::spawn(&folder, master.port());
        let sentinel = Self { servers: [master, replica], holder, port, _folder: folder };
        sentinel.wait_for("num-slaves", "1").await;
        // Until it has heard from the replica, the sentinel would not promote it.
        sentinel.wait_for_replica().await;
        sentinel
    }

    /// Settings that name the sentinel.
    pub fn settings(&self) -> RedisSettings {
        let topology = RedisTopology::Sentinel {
            sentinels: vec![self.node()],
            master: MASTER.to_owned(),
            username: None,
            password: None,
        };
        RedisSettings { topology, ..settings_of(self.node()) }
    }

    /// Waits until the sentinel names the server with this port as the master.
    pub async fn wait_for_master(&self, port: u16) {
        self.wait_for("port", &port.to_string()).await;
    }

    /// Has the sentinel change master and replica now.
    pub async fn fail_over(&self) {
        let done = ask_at(&settings_of(self.node()), &["SENTINEL", "FAILOVER", MASTER]).await;
        assert_eq!(done, Ok(vec!["OK".to_owned()]));
    }

    fn node(&self) -> RedisNode {
        RedisNode { host: "127.0.0.1".to_owned(), port: self.port }
    }

    async fn wait_for(&self, field: &str, wanted: &str) {
        self.wait(&["SENTINEL", "MASTER", MASTER], |parts| pair(parts, field) == Some(wanted)).await;
    }

    async fn wait_for_replica(&self) {
        self.wait(&["SENTINEL", "REPLICAS", MASTER], |parts| {
            pair(parts, "flags") == Some("slave") && pair(parts, "master-link-status") == Some("ok")
        })
        .await;
    }

    async fn wait(&self, words: &[&str], test: impl Fn(&[String]) -> bool) {
        let mut last = Ok(Vec::new());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            last = ask_at(&settings_of(self.node()), words).await;
            if last.as_ref().is_ok_and(|parts| test(parts)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the sentinel never saw what was wanted: {words:?} gives {last:?}");
    }

    fn spawn(folder: &TempDir, master: u16) -> (Child, u16) {
        let port = free_port();
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            "logfile log".to_owned(),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor {MASTER} 127.0.0.1 {master} 1"),
            format!("sentinel down-after-milliseconds {MASTER} 500"),
            format!("sentinel failover-timeout {MASTER} 2000"),
        ];
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, lines.join("\n")).expect("the folder can be written");
        let mut holder = Command::new("sh")
            .args([
                "-c",
                r#"redis-server "$1" --sentinel & echo $!; cat >/dev/null; kill -9 $!; wait"#,
                "sentinel",
            ])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh and redis-server are there");
        let output = holder.stdout.take().expect("standard output is piped");
        BufReader::new(output).read_line(&mut String::new()).expect("the holder says the sentinel's number");
        (holder, port)
    }
}

impl Drop for TestSentinel {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// The part after the one with this name.
fn pair<'a>(parts: &'a [String], name: &str) -> Option<&'a str> {
    let place = parts.iter().position(|part| part == name)?;
    parts.get(place + 1).map(String::as_str)
}
