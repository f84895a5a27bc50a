//! An endpoint: one data-parallel rank of one engine, with what rarely changes about it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{AdapterName, EndpointId, ModelName, OwnerSlot};

/// Which engine answers behind an endpoint; decides metric names, tokenize shapes and event sources.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
}

impl EngineKind {
    /// Lower-case name, as in settings and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }
}

/// The part an endpoint plays when prefill and decode run on different pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves whole requests.
    #[default]
    Both,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

/// How far the content of an owner is known (decision D4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    /// Replay reached the first batch of the engine's life, or a snapshot was loaded: every block is known.
    Exact,
    /// Events are followed, but some earlier ones are out of reach.
    Partial,
    /// No events; ownership is what we placed there, bounded by the engine's KV capacity.
    Approximate,
}

impl Completeness {
    /// Lower-case name, as in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partial => "partial",
            Self::Approximate => "approximate",
        }
    }
}

/// TLS towards a server of ours, an engine mostly.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum UpstreamTls {
    /// Encrypted, but any certificate is taken: pods are called by address and make their own.
    Unverified,
    /// The certificate must be of this name (or IP address) and of an authority that the system trusts.
    Verified(Arc<str>),
}

/// Where an endpoint listens, and whether it is spoken to over TLS.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// `http` authority as written in a URL: host (IPv6 in brackets) and port. Goes into `Host`.
    pub authority: Arc<str>,
    /// Host as written, without brackets; a name is resolved on connect.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
    /// The resolved address where the host is a literal; `None` for a DNS name.
    pub socket: Option<SocketAddr>,
    /// Path prefix of the URL without a trailing slash; usually empty.
    pub path_prefix: Arc<str>,
    /// How it is spoken to over TLS; `None` is plain HTTP.
    pub tls: Option<UpstreamTls>,
}

impl Address {
    /// Parses `http://host:port[/prefix]`, or the same with `https`, whose certificate must then be of that host.
    ///
    /// # Errors
    /// A sentence that names what is wrong and the fix.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (secure, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "{url}: unknown scheme {scheme:?}; use http://HOST:PORT or https://HOST:PORT"
                ));
            }
            None => return Err(format!("{url}: no scheme; write http://HOST:PORT")),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if path.contains(['?', '#']) || authority.contains('@') {
            return Err(format!(
                "{url}: only http(s)://HOST:PORT[/PREFIX] is allowed, without user, query or fragment"
            ));
        }
        let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
            let (host, tail) = inner
                .split_once(']')
                .ok_or_else(|| format!("{url}: the IPv6 address lacks its closing bracket"))?;
            (host, tail.strip_prefix(':'))
        } else {
            match authority.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => {
                    return Err(format!("{url}: write an IPv6 address in brackets, http://[ADDR]:PORT"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        if host.is_empty() {
            return Err(format!("{url}: the host is empty"));
        }
        let port = match port {
            None if secure => 443,
            None => 80,
            Some(text) => text
                .parse::<u16>()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("{url}: {text:?} is no port (1 to 65535)"))?,
        };
        let socket = host.parse().ok().map(|ip| SocketAddr::new(ip, port));
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self {
            authority: authority.into(),
            host: host.into(),
            port,
            socket,
            path_prefix: path.trim_end_matches('/').into(),
            tls: secure.then(|| UpstreamTls::Verified(host.into())),
        })
    }

    /// The URL, without a trailing slash.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path_prefix)
    }

    /// Whether both are one place, however it is spoken to.
    pub fn is_where(&self, other: &Self) -> bool {
        self.authority == other.authority && self.path_prefix == other.path_prefix
    }
}

/// One data-parallel rank of one engine pod. Immutable: a change is a new value in a new snapshot; live numbers
/// (in flight, scraped, health) are kept beside it by the registry.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Identity.
    pub id: EndpointId,
    /// Its number in the block index.
    pub slot: OwnerSlot,
    /// Where it listens.
    pub address: Address,
    /// Which engine it is.
    pub engine: EngineKind,
    /// Its part in prefill/decode serving.
    pub role: Role,
    /// The engine's served name.
    pub model: ModelName,
    /// Whether the rank is pinned with `X-data-parallel-rank`.
    pub pin_rank: bool,
    /// Adapters known from settings.
    pub adapters: Vec<AdapterName>,
    /// Labels, for subset matching.
    pub labels: BTreeMap<String, String>,
    /// When its newest container started, seconds since 1970; `None` where nobody tells.
    pub started_at: Option<u64>,
}

/// Who serves a model now. Implemented by the endpoint registry; used by sources that ask a pod.
pub trait EndpointDirectory: Send + Sync {
    /// The endpoints of `model` (served name) that may be asked now, in no particular order.
    fn endpoints_of(&self, model: &ModelName) -> Vec<Arc<Endpoint>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_a_url() {
        let cases = [
            ("http://a:8000", "a:8000", "a", 8000, ""),
            ("http://10.0.0.1:8000/", "10.0.0.1:8000", "10.0.0.1", 8000, ""),
            ("http://[fd00::5]:9/x/y/", "[fd00::5]:9", "fd00::5", 9, "/x/y"),
            ("http://name", "name:80", "name", 80, ""),
            ("https://name", "name:443", "name", 443, ""),
            ("https://[fd00::5]/x/", "[fd00::5]:443", "fd00::5", 443, "/x"),
        ];
        for (url, authority, host, port, prefix) in cases {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                (&*address.authority, &*address.host, address.port, &*address.path_prefix),
                (authority, host, port, prefix)
            );
        }
        assert!(Address::parse("http://[fd00::5]:9").is_ok_and(|a| a.socket.is_some()));
    }

    #[test]
    fn an_https_url_means_a_certificate_of_its_host() {
        let plain = Address::parse("http://a:8443").unwrap_or_else(|error| panic!("{error}"));
        let secure = Address::parse("https://a:8443/").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((plain.tls.clone(), plain.url().as_str()), (None, "http://a:8443"));
        assert_eq!(secure.tls, Some(UpstreamTls::Verified("a".into())));
        assert_eq!(secure.url(), "https://a:8443");
        assert!(plain != secure && plain.is_where(&secure));
    }

    #[test]
    fn a_bad_url_says_what_is_wrong() {
        for (url, part) in [
            ("a:8000", "no scheme"),
            ("https://", "host is empty"),
            ("ftp://a", "unknown scheme"),
            ("http://", "host is empty"),
            ("http://a:0", "no port"),
            ("http://a:70000", "no port"),
            ("http://fd00::5:9", "brackets"),
            ("http://[fd00::5", "closing bracket"),
            ("http://u@a:1", "without user"),
        ] {
            let error = Address::parse(url).err().unwrap_or_default();
            assert!(error.contains(part), "{url}: {error:?} should contain {part:?}");
        }
    }
}
