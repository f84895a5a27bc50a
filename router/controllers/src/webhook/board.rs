//! How the webhook is, for whoever asks, and each problem said once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use parking_lot::Mutex;

/// How the webhook is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebhookStatus {
    /// Where it listens; `None` while the address cannot be bound.
    pub address: Option<SocketAddr>,
    /// What it serves; `None` while no certificate is there, when no connection succeeds.
    pub certificate: Option<CertificateStatus>,
    /// Whether the webhook configuration trusts that certificate.
    pub trusted: Trusted,
    /// Connections that are open.
    pub connections: usize,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// Which certificate is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateStatus {
    /// Where it is from.
    pub source: Source,
    /// Until when it holds.
    pub until: SystemTime,
}

/// Where a certificate is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The files of the options.
    Files,
    /// The Secret of the options.
    Secret,
}

/// What is known of the webhook configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trusted {
    /// Nothing yet, or it could not be read or written; the problems say which.
    #[default]
    Unknown,
    /// Its authorities are not ours to write: manual, or cert-manager's.
    ByOthers,
    /// It does not exist.
    Absent,
    /// Every hook of it carries our authorities.
    Yes,
}

/// What can be wrong, each on its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Topic {
    /// The address.
    Listen,
    /// The files.
    Files,
    /// The Secret.
    Secret,
    /// The webhook configuration.
    Configuration,
}

/// The status as it is now. Shared by everyone who changes a part of it.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    status: WebhookStatus,
    problems: BTreeMap<Topic, String>,
}

impl Board {
    /// The status now, but for the connections, which the server counts.
    pub fn status(&self) -> WebhookStatus {
        let inner = self.inner.lock();
        WebhookStatus { problems: inner.problems.values().cloned().collect(), ..inner.status.clone() }
    }

    /// Changes the status.
    pub fn change(&self, change: impl FnOnce(&mut WebhookStatus)) {
        change(&mut self.inner.lock().status);
    }

    /// Takes note of what is wrong with one thing, or that nothing is. What was said before is not said again. Gives
    /// whether it was news.
    pub fn report(&self, topic: Topic, problem: Option<String>) -> bool {
        let mut inner = self.inner.lock();
        if inner.problems.get(&topic) == problem.as_ref() {
            return false;
        }
        match problem {
            Some(problem) => {
                tracing::warn!(about = ?topic, %problem, "admission webhook");
                inner.problems.insert(topic, problem);
            }
            None => {
                tracing::info!(about = ?topic, "admission webhook: well again");
                inner.problems.remove(&topic);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_news_once_until_it_changes_or_ends() {
        let board = Board::default();
        let report = |problem: Option<&str>| board.report(Topic::Secret, problem.map(str::to_owned));
        assert!(!report(None));
        assert!(report(Some("a")));
        assert!(!report(Some("a")));
        assert!(report(Some("b")));
        assert!(board.report(Topic::Listen, Some("c".to_owned())));
        assert_eq!(board.status().problems, ["c", "b"]);
        assert!(report(None));
        assert!(!report(None));
        assert_eq!(board.status().problems, ["c"]);
    }
}
