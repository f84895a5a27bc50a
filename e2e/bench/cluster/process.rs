//! The router as a process, and what processes use.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kvasir_suite::scale::{Line, Size};
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// How often `/readyz` is asked.
const POLL: Duration = Duration::from_millis(5);

/// A start that takes longer has failed.
const START_GUARD: Duration = Duration::from_secs(180);

/// So long after the last status that was written none waits any more: the leader is found within seconds.
const STATUSES_REST: Duration = Duration::from_secs(8);

/// Kernels count a process's time in these everywhere.
const TICKS_PER_SECOND: u64 = 100;

/// A running router.
#[derive(Debug)]
pub struct Router {
    /// From its start until `/readyz` was 200.
    pub ready_after: Duration,
    /// Where requests go.
    pub inference: SocketAddr,
    metrics: SocketAddr,
    child: Child,
    pid: u32,
    log: PathBuf,
}

/// What a process used so far, and has now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory.
    pub resident_mib: u64,
    /// The most of it so far.
    pub peak_mib: u64,
}

impl Router {
    /// Starts it and waits until it is ready.
    pub async fn start(program: &Path, kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let [inference, metrics, admin] = free_addresses()?;
        let log = folder.join("router.log");
        let output = File::options().append(true).create(true).open(&log)?;
        let began = Instant::now();
        let child = Command::new(program)
            .arg("router")
            .arg("--kubernetes=on")
            .arg(format!("--listen={inference}"))
            .arg(format!("--metrics-listen={metrics}"))
            .arg(format!("--admin-listen={admin}"))
            .arg(format!("--access-log-output={}", folder.join("access.log").display()))
            .arg("--drain-settle=0s")
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let pid = child.id().context("it has ended already")?;
        let mut router = Self { ready_after: Duration::ZERO, inference, metrics, child, pid, log };
        let mut line = Line::new(inference);
        loop {
            if matches!(line.get("/readyz").await, Ok((200, _))) {
                router.ready_after = began.elapsed();
                return Ok(router);
            }
            if let Some(status) = router.child.try_wait()? {
                bail!("the router ended with {status}: {}", router.log_tail());
            }
            if began.elapsed() > START_GUARD {
                bail!("the router is not ready: {}", router.log_tail());
            }
            sleep(POLL).await;
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it used until it was ready.
    pub fn first_figures(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Waits until every object has a status. Gives the time since the router was ready; the lease that a replica before
    /// has held is part of it.
    pub async fn until_statuses_are_written(&mut self, size: Size) -> Result<Duration> {
        let began = Instant::now();
        let mut last = (0.0, began);
        let all = (size.servers + size.routes) as f64;
        while last.0 < all || last.1.elapsed() < STATUSES_REST {
            let written = self.metric("kvasir_kubernetes_statuses_written_total").await?;
            if written > last.0 {
                last = (written, Instant::now());
            }
            if last.1.elapsed() > START_GUARD {
                bail!("only {} of {all} statuses are written: {}", last.0, self.log_tail());
            }
            sleep(Duration::from_millis(250)).await;
        }
        Ok(last.1.duration_since(began))
    }

    /// The number of a series without labels on its metrics page.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let (_, page) = Line::new(self.metrics).get("/metrics").await?;
        let page = std::str::from_utf8(&page)?;
        let number = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        number.with_context(|| format!("there is no {name}"))
    }

    /// How long its metrics page takes, and how long it is.
    pub async fn metrics_page(&self) -> Result<(Duration, usize)> {
        let mut line = Line::new(self.metrics);
        line.get("/metrics").await?;
        let began = Instant::now();
        let (_, page) = line.get("/metrics").await?;
        Ok((began.elapsed(), page.len()))
    }

    /// Ends it as a kubelet does.
    pub async fn end(mut self) -> Result<()> {
        let status = Command::new("kill").arg(self.pid.to_string()).status().await?;
        anyhow::ensure!(status.success(), "the router cannot be told to end");
        let ended =
            tokio::time::timeout(START_GUARD, self.child.wait()).await.context("it does not end")??;
        anyhow::ensure!(ended.success(), "the router ended with {ended}: {}", self.log_tail());
        Ok(())
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Usage {
    /// Of a process.
    pub fn of(pid: u32) -> Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let stat = std::fs::read_to_string(folder.join("stat"))?;
        // The name of the program comes before, in brackets, and may hold anything.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks =
            |place: usize| -> Result<u64> { Ok(fields.get(place).context("stat is short")?.parse()?) };
        let ticks = ticks(11)? + ticks(12)?;
        let status = std::fs::read_to_string(folder.join("status"))?;
        let mib = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
            Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
        };
        Ok(Self {
            cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
            resident_mib: mib("VmRSS:")?,
            peak_mib: mib("VmHWM:")?,
        })
    }
}

fn free_addresses<const COUNT: usize>() -> Result<[SocketAddr; COUNT]> {
    let mut listeners = Vec::new();
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address)?;
        *address = listener.local_addr()?;
        // All stay taken until the last is found.
        listeners.push(listener);
    }
    Ok(addresses)
}
