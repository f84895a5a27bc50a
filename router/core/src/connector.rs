//! How a prompt's KV cache gets from the endpoint that computed it to the one that generates.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The label of a prefill endpoint with the port of its bootstrap server, where SGLang's engines meet. Other routers read
/// an annotation of this name. Without it nothing is sent, and the decode engine takes the port that it was started with
/// itself (8998 by default).
pub const BOOTSTRAP_PORT: &str = "sglang.ai/bootstrap-port";

/// The way of the hand-over; decides the shape of both requests and whether they overlap in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectorKind {
    /// One after the other; the engines find the cache by themselves.
    #[default]
    Http,
    /// As `Http`, over LMCache.
    Lmcache,
    /// One after the other; the prefill answer's `kv_transfer_params` go into the decode request.
    Nixl,
    /// As `Nixl`, over Mooncake.
    Mooncake,
    /// Both at once; they meet in a bootstrap room.
    Sglang,
}

impl ConnectorKind {
    /// Every way.
    pub const ALL: [Self; 5] = [Self::Http, Self::Lmcache, Self::Nixl, Self::Mooncake, Self::Sglang];

    /// Whether the prefill answer says where the prompt's cache is.
    pub const fn hands_over_params(self) -> bool {
        matches!(self, Self::Nixl | Self::Mooncake)
    }

    /// Lower-case name, as in a ModelServer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Lmcache => "lmcache",
            Self::Nixl => "nixl",
            Self::Mooncake => "mooncake",
            Self::Sglang => "sglang",
        }
    }
}

impl fmt::Display for ConnectorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
