//! Event sources as an engine tells them: vLLM's `GET /kv_event_sources`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::follow::KvEventsSource;

/// Most ranks taken from one answer.
const MOST_RANKS: usize = 1024;

/// Why an answer names no sources.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No JSON object of sources by rank.
    #[error("the answer is not the JSON of KV event sources: {0}")]
    Json(#[from] serde_json::Error),
    /// A rank that is no number.
    #[error("{0:?} is no rank")]
    Rank(String),
    /// An endpoint that is no TCP address.
    #[error("rank {rank}: {endpoint:?} is no tcp://HOST:PORT")]
    Endpoint {
        /// Whose.
        rank: u32,
        /// As told.
        endpoint: String,
    },
    /// More ranks than are taken.
    #[error("{0} ranks are more than the {MOST_RANKS} that are taken")]
    TooMany(usize),
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    enable_kv_cache_events: bool,
    #[serde(default)]
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: Option<String>,
}

/// Sources by rank from the answer's body, with `host` (the engine's) in place of the address that the engine
/// binds. Ranks without events are left out; `{}` is an engine without any.
///
/// # Errors
/// The body is not what engines send.
pub fn parse_kv_event_sources(body: &[u8], host: &str) -> Result<Vec<KvEventsSource>, DiscoverError> {
    let told: BTreeMap<String, Told> = serde_json::from_slice(body)?;
    if told.len() > MOST_RANKS {
        return Err(DiscoverError::TooMany(told.len()));
    }
    let mut sources = Vec::with_capacity(told.len());
    for (rank, told) in told {
        let rank: u32 = rank.parse().map_err(|_| DiscoverError::Rank(rank))?;
        let publishes = told.enable_kv_cache_events && told.publisher.as_deref().unwrap_or("zmq") == "zmq";
        let Some(endpoint) = told.endpoint.filter(|_| publishes) else { continue };
        let reachable =
            |endpoint: String| reach(&endpoint, host).ok_or(DiscoverError::Endpoint { rank, endpoint });
        sources.push(KvEventsSource {
            endpoint: reachable(endpoint)?,
            replay: told.replay_endpoint.filter(|replay| !replay.is_empty()).map(reachable).transpose()?,
            topic: told.topic.unwrap_or_default(),
            bind: false,
            rank: Some(rank),
        });
    }
    sources.sort_by_key(|source| source.rank);
    Ok(sources)
}

/// An engine binds an endpoint with `*` or an unspecified address; from here that is the engine's host. Any
/// other host is where it connects to or what it bound by name, and is taken as it is.
fn reach(endpoint: &str, host: &str) -> Option<String> {
    let (bound, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port != 0)?;
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    Some(match bound {
        "" => return None,
        "*" | "0.0.0.0" | "[::]" | "::" => format!("tcp://{host}:{port}"),
        other => format!("tcp://{other}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBSERVED: &str = r#"{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:15557",
        "replay_endpoint":"tcp://*:15558","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,
        "topic":"kv-events"}}"#;

    #[test]
    fn the_observed_answer_is_read() {
        let sources = parse_kv_event_sources(OBSERVED.as_bytes(), "10.0.0.7").unwrap();
        assert_eq!(
            sources,
            [KvEventsSource {
                endpoint: "tcp://10.0.0.7:15557".into(),
                replay: Some("tcp://10.0.0.7:15558".into()),
                topic: "kv-events".into(),
                bind: false,
                rank: Some(0),
            }]
        );
        assert_eq!(parse_kv_event_sources(b"{}", "a").unwrap(), []);
    }

    #[test]
    fn ranks_are_sorted_as_numbers_and_hosts_are_kept() {
        let body = r#"{"10":{"enable_kv_cache_events":true,"endpoint":"tcp://[::]:1"},
            "9":{"enable_kv_cache_events":true,"endpoint":"tcp://rank9:2","replay_endpoint":null,"topic":null},
            "1":{"enable_kv_cache_events":false,"endpoint":"tcp://*:3"},
            "2":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:3"}}"#;
        let sources = parse_kv_event_sources(body.as_bytes(), "fd00::1").unwrap();
        let seen: Vec<_> = sources.iter().map(|source| (source.rank, source.endpoint.as_str())).collect();
        assert_eq!(seen, [(Some(9), "tcp://rank9:2"), (Some(10), "tcp://[fd00::1]:1")]);
    }

    #[test]
    fn what_is_no_source_is_refused() {
        for (body, part) in [
            ("[]", "not the JSON"),
            (r#"{"a":{"enable_kv_cache_events":true}}"#, "no rank"),
            (r#"{"0":{"enable_kv_cache_events":true,"endpoint":"ipc:///x"}}"#, "tcp://HOST:PORT"),
            (r#"{"0":{"enable_kv_cache_events":true,"endpoint":"tcp://*:0"}}"#, "tcp://HOST:PORT"),
        ] {
            let error = parse_kv_event_sources(body.as_bytes(), "a").unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}
