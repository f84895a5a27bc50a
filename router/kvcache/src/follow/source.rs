//! Where one rank publishes its events.

use std::fmt;

/// One publisher of KV events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvEventsSource {
    /// `tcp://HOST:PORT`. With `bind`, the address to listen at; its host may be `*`.
    pub endpoint: String,
    /// `tcp://HOST:PORT` of the replay socket, if there is one. Without it a gap costs what was known.
    pub replay: Option<String>,
    /// Prefix of the topics taken, as ZMQ subscriptions work: `kv-events` takes `kv-events-extra` too, and the
    /// empty prefix takes everything. kthena's sidecar compares for equality on top; we do not.
    pub topic: String,
    /// Whether we listen and the engine connects: for engines whose own endpoint is `tcp://ROUTER:PORT`.
    pub bind: bool,
    /// The rank whose events these are. A batch that names another one is counted.
    pub rank: Option<u32>,
}

impl KvEventsSource {
    /// A source as it is written in settings. A host of `*` is an address to listen at: the engine connects.
    pub fn configured(endpoint: &str, replay: Option<&str>, topic: &str, rank: u32) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            replay: replay.map(str::to_owned),
            topic: topic.to_owned(),
            bind: endpoint.contains("://*"),
            rank: Some(rank),
        }
    }

    /// The address to listen at, in the form the socket takes.
    pub(super) fn bind_address(&self) -> String {
        self.endpoint.replacen("://*:", "://0.0.0.0:", 1)
    }
}

impl fmt::Display for KvEventsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.bind { "listening at" } else { "from" };
        write!(f, "events {verb} {}", self.endpoint)?;
        match &self.replay {
            Some(replay) => write!(f, ", replay from {replay}"),
            None => f.write_str(", no replay"),
        }
    }
}
