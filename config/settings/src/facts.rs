//! What the machine and kthena's environment variables say: the inputs of the settings that nobody types as a flag.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use crate::flags::admission::FLAGS;
use crate::redis::Secret;
use crate::yaml::MOST_BYTES;

/// Facts that defaults depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemFacts {
    /// Usable cores; 0 when unknown.
    pub cores: usize,
    /// Memory this process may use, bytes.
    pub memory_limit: Option<u64>,
    /// kthena's variables.
    pub environment: KthenaEnvironment,
}

/// Environment variables that kthena reads; ours (`KVASIR_*`) are read with the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KthenaEnvironment {
    /// `ACCESS_LOG_ENABLED`
    pub access_log_enabled: Option<String>,
    /// `ACCESS_LOG_FORMAT`
    pub access_log_format: Option<String>,
    /// `ACCESS_LOG_OUTPUT`
    pub access_log_output: Option<String>,
    /// `DRAIN_TIMEOUT`
    pub drain_timeout: Option<String>,
    /// `METRICS_SCRAPE_INTERVAL`
    pub metrics_scrape_interval: Option<String>,
    /// `ENABLE_FAIRNESS_SCHEDULING`, `FAIRNESS_*`, `ENABLE_SESSION_BOOST`, `SESSION_BOOST_*`, by name.
    pub admission: BTreeMap<String, String>,
    /// `REDIS_*`
    pub redis: RedisEnvironment,
    /// What Kubernetes and `kubectl` set.
    pub kubernetes: KubernetesEnvironment,
}

/// The variables of kthena's Redis clients. kthena knows no user; the variable is the usual one for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisEnvironment {
    /// `REDIS_HOST`
    pub host: Option<String>,
    /// `REDIS_PORT`
    pub port: Option<String>,
    /// `REDIS_USERNAME`
    pub username: Option<String>,
    /// `REDIS_PASSWORD`
    pub password: Option<Secret>,
    /// `REDIS_DB`
    pub database: Option<String>,
}

impl RedisEnvironment {
    fn read() -> Self {
        Self {
            host: variable("REDIS_HOST"),
            port: variable("REDIS_PORT"),
            username: variable("REDIS_USERNAME"),
            password: variable("REDIS_PASSWORD").map(Secret::new),
            database: variable("REDIS_DB"),
        }
    }

    /// Every variable but the host's, and whether it is set.
    pub(crate) fn beside_the_host(&self) -> [(&'static str, bool); 4] {
        [
            ("REDIS_PORT", self.port.is_some()),
            ("REDIS_USERNAME", self.username.is_some()),
            ("REDIS_PASSWORD", self.password.is_some()),
            ("REDIS_DB", self.database.is_some()),
        ]
    }
}

/// The variables that say where the cluster is, and which pod this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesEnvironment {
    /// `KUBERNETES_SERVICE_HOST`, which every pod has.
    pub service_host: Option<String>,
    /// `KUBECONFIG`: files, separated as in `PATH`.
    pub kubeconfig: Option<String>,
    /// `HOME`
    pub home: Option<String>,
    /// `POD_NAMESPACE`
    pub pod_namespace: Option<String>,
}

impl KubernetesEnvironment {
    fn read() -> Self {
        Self {
            service_host: variable("KUBERNETES_SERVICE_HOST"),
            kubeconfig: variable("KUBECONFIG"),
            home: variable("HOME"),
            pod_namespace: variable("POD_NAMESPACE"),
        }
    }

    /// Whether the process runs in a pod.
    pub(crate) fn in_cluster(&self) -> bool {
        self.service_host.is_some()
    }
}

/// kthena's variables of the queues, and beside them those of our own flags for the same queues.
pub(crate) const ADMISSION: [&str; FLAGS] = [
    "ENABLE_FAIRNESS_SCHEDULING",
    "FAIRNESS_USER_HEADER",
    "FAIRNESS_USER_WEIGHTS",
    "FAIRNESS_WINDOW_SIZE",
    "FAIRNESS_INPUT_TOKEN_WEIGHT",
    "FAIRNESS_OUTPUT_TOKEN_WEIGHT",
    "FAIRNESS_PRIORITY_TOKEN_WEIGHT",
    "FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT",
    "FAIRNESS_MAX_CONCURRENT",
    "FAIRNESS_MAX_QPS",
    "FAIRNESS_QUEUE_TIMEOUT",
    "FAIRNESS_AGEING",
    "FAIRNESS_MAX_WAITING",
    "FAIRNESS_PRIORITY_REFRESH_RETRIES",
    "FAIRNESS_REBUILD_THRESHOLD",
    "ENABLE_SESSION_BOOST",
    "SESSION_BOOST_HEADER",
    "SESSION_BOOST_MAX_SESSIONS",
    "SESSION_BOOST_INFLIGHT_PER_POD",
    "SESSION_BOOST_GRACE_PERIOD",
    "SESSION_BOOST_TIMEOUT",
    "SESSION_BOOST_AGEING",
    "SESSION_BOOST_MAX_WAITING",
];

impl SystemFacts {
    /// Asks the system: cores, the control group's memory limit or else the machine's memory, and the environment.
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        let group =
            text("/sys/fs/cgroup/memory.max").or_else(|| text("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_limit: memory_limit(group.as_deref(), text("/proc/meminfo").as_deref()),
            environment: KthenaEnvironment::read(),
        }
    }
}

impl KthenaEnvironment {
    fn read() -> Self {
        Self {
            access_log_enabled: variable("ACCESS_LOG_ENABLED"),
            access_log_format: variable("ACCESS_LOG_FORMAT"),
            access_log_output: variable("ACCESS_LOG_OUTPUT"),
            drain_timeout: variable("DRAIN_TIMEOUT"),
            metrics_scrape_interval: variable("METRICS_SCRAPE_INTERVAL"),
            admission: ADMISSION
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), variable(name)?)))
                .collect(),
            redis: RedisEnvironment::read(),
            kubernetes: KubernetesEnvironment::read(),
        }
    }
}

/// An empty variable counts as absent, as in kthena.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
}

/// The smaller of the group's limit and the machine's memory. `max`, and the huge number that older control groups
/// show, mean no limit.
fn memory_limit(group: Option<&str>, meminfo: Option<&str>) -> Option<u64> {
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    let machine = meminfo.and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    match (group, machine) {
        (Some(group), Some(machine)) => Some(group.min(machine)),
        (group, machine) => group.or(machine),
    }
}

/// The files that settings name.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// Whatever kept it from being read; a file that is too large or no UTF-8 is [`io::ErrorKind::InvalidData`].
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Whether there is a directory.
    fn is_directory(&self, path: &Path) -> bool;

    /// Whether there is a file.
    fn is_file(&self, path: &Path) -> bool;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let most = MOST_BYTES as u64;
        let mut text = String::new();
        let read = std::fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
        if read as u64 > most {
            let message = format!("the file is larger than {most} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(text)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_limit_is_the_smaller_of_group_and_machine() {
        let machine = "MemFree: 1 kB\nMemTotal:       2048 kB\n";
        for (group, meminfo, expected) in [
            (Some("1048576\n"), Some(machine), Some(1 << 20)),
            (Some("max\n"), Some(machine), Some(2 << 20)),
            (Some("9223372036854771712\n"), Some(machine), Some(2 << 20)),
            (None, Some(machine), Some(2 << 20)),
            (Some("1048576"), None, Some(1 << 20)),
            (Some("max"), Some("nothing"), None),
            (None, None, None),
        ] {
            assert_eq!(memory_limit(group, meminfo), expected, "{group:?} {meminfo:?}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large.yaml");
        std::fs::write(&path, " ".repeat(MOST_BYTES + 1)).unwrap();
        let error = DiskFiles.read(&path).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::InvalidData));
        std::fs::write(&path, "a: 1").unwrap();
        assert_eq!(DiskFiles.read(&path).ok().as_deref(), Some("a: 1"));
        assert!(DiskFiles.is_file(&path) && DiskFiles.is_directory(directory.path()));
    }
}
