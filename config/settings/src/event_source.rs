//! Where engines publish their KV-cache events: addresses checked, and one source for each rank.

use crate::flags::KvEventsFlag;
use crate::problems::{Findings, Place};
use crate::raw::models::KvEvents;
use crate::resolved::KvEventsSettings;

/// A `tcp://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    /// As written; `*` to listen.
    host: String,
    port: u16,
}

impl Socket {
    fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no event address; write tcp://HOST:PORT");
        let rest = text.strip_prefix("tcp://").ok_or_else(wanted)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(wanted)?;
        let is_host = !host.is_empty()
            && !host.contains(['/', '@', '?', '#', ' '])
            && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
        if !is_host {
            return Err(wanted());
        }
        let port = port.parse::<u16>().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| format!("{text:?}: the port must be 1 to 65535"))?;
        Ok(Self { host: host.to_owned(), port })
    }

    fn is_everywhere(&self) -> bool {
        matches!(self.host.as_str(), "*" | "0.0.0.0" | "[::]")
    }

    /// The address `rank` ports further.
    fn of_rank(&self, rank: u32) -> Option<String> {
        let port = u32::from(self.port).checked_add(rank).and_then(|port| u16::try_from(port).ok())?;
        Some(format!("tcp://{}:{port}", self.host))
    }
}

/// The publisher: with `bind`, or a `*` host, the router listens.
fn publisher(text: &str, bind: bool) -> Result<Socket, String> {
    let mut socket = Socket::parse(text)?;
    if bind {
        if !socket.is_everywhere() {
            return Err(format!(
                "{text:?}: the router listens on all interfaces; write tcp://*:{}",
                socket.port
            ));
        }
        "*".clone_into(&mut socket.host);
    } else if socket.is_everywhere() && socket.host != "*" {
        return Err(format!(
            "{text:?} is no address to connect to; name the engine's host, or write tcp://*:{} to listen",
            socket.port
        ));
    }
    Ok(socket)
}

/// The replay socket is always connected to.
fn replayer(text: &str) -> Result<Socket, String> {
    let socket = Socket::parse(text)?;
    if socket.is_everywhere() {
        return Err(format!("{text:?}: the replay socket is connected to; name the engine's host"));
    }
    Ok(socket)
}

/// The source a flag names.
///
/// # Errors
/// What is wrong with its addresses.
pub(crate) fn of_flag(said: &KvEventsFlag) -> Result<KvEventsSettings, String> {
    let endpoint = publisher(&said.endpoint, said.bind)?;
    let replay = said.replay.as_deref().map(replayer).transpose()?;
    Ok(KvEventsSettings {
        endpoint: format!("tcp://{}:{}", endpoint.host, endpoint.port),
        replay: replay.map(|replay| format!("tcp://{}:{}", replay.host, replay.port)),
        topic: said.topic.clone(),
        rank: said.rank,
    })
}

/// Reads one source as the flag of an agent names it:
/// `tcp://HOST:PORT[,replay=tcp://HOST:PORT|PORT][,topic=PREFIX][,rank=N][,bind]`. A bare port of the replay socket is
/// one at the publisher's host.
///
/// # Errors
/// What is wrong, in a sentence that quotes the text.
pub fn parse_event_source(text: &str) -> Result<KvEventsSettings, String> {
    let text = text.trim();
    let mut said = KvEventsFlag::parse_source(text, "", text)?;
    if let Some(replay) = &mut said.replay
        && replay.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(publisher) = Socket::parse(&said.endpoint)
    {
        *replay = format!("tcp://{}:{replay}", publisher.host);
    }
    of_flag(&said)
}

/// One source for each rank: vLLM adds the rank to both ports, so ports that lie too close run into each other.
pub(crate) fn of_ranks(said: &KvEvents, ranks: u32, findings: &mut Findings) -> Vec<KvEventsSettings> {
    let mut noted = |result: Result<Socket, String>, place: &Place| {
        result.map_err(|error| findings.error(place, error, "")).ok()
    };
    let endpoint = noted(publisher(&said.endpoint.value, false), &said.endpoint.place);
    let replay = said.replay.as_ref().map(|replay| noted(replayer(&replay.value), &replay.place));
    let (Some(endpoint), false) = (endpoint, replay == Some(None)) else { return Vec::new() };
    let replay = replay.flatten();
    if let Some(replay) = &replay {
        let gap = replay.port.abs_diff(endpoint.port);
        let same_host = replay.host == endpoint.host;
        if same_host && u32::from(gap) < ranks {
            let message = format!(
                "events and replay are {gap} ports apart, but {ranks} ranks use one port each from there on"
            );
            findings.error(&said.place, message, format!("leave at least {ranks} ports between them"));
            return Vec::new();
        }
    }
    let mut sources = Vec::new();
    for rank in 0..ranks {
        let own = endpoint.of_rank(rank);
        let replay_port = replay.as_ref().map(|replay| replay.of_rank(rank));
        let (Some(own), false) = (own, replay_port == Some(None)) else {
            let message = format!("rank {rank} would need a port above 65535");
            findings.error(&said.place, message, "use lower ports, or fewer ranks");
            return Vec::new();
        };
        sources.push(KvEventsSettings {
            endpoint: own,
            replay: replay_port.flatten(),
            topic: said.topic.as_ref().map_or_else(String::new, |topic| topic.value.clone()),
            rank,
        });
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::Located;

    fn flag(text: &str) -> Result<(String, Option<String>), String> {
        KvEventsFlag::parse(text)
            .and_then(|said| of_flag(&said))
            .map(|source| (source.endpoint, source.replay))
    }

    #[test]
    fn a_flag_connects_or_listens() {
        for (text, expected) in [
            ("http://a=tcp://a:5557", "tcp://a:5557"),
            ("http://a=tcp://[::1]:5557", "tcp://[::1]:5557"),
            ("http://a=tcp://*:5557", "tcp://*:5557"),
            ("http://a=tcp://0.0.0.0:5557,bind", "tcp://*:5557"),
            ("http://a=tcp://[::]:5557,bind", "tcp://*:5557"),
        ] {
            assert_eq!(flag(text), Ok((expected.to_owned(), None)), "{text}");
        }
        for (text, part) in [
            ("http://a=tcp://a", "no event address"),
            ("http://a=tcp://:5", "no event address"),
            ("http://a=tcp://::1:5", "no event address"),
            ("http://a=tcp://a:0", "the port"),
            ("http://a=tcp://a:5557,bind", "write tcp://*:5557"),
            ("http://a=tcp://0.0.0.0:5557", "to listen"),
            ("http://a=tcp://a:5557,replay=tcp://*:1", "replay socket"),
            ("http://a=tcp://a:5557,replay=a:1", "no event address"),
        ] {
            let error = flag(text).err().unwrap_or_default();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn an_agents_flag_is_the_same_without_the_url() {
        let source = parse_event_source("tcp://a:5557,replay=5657,rank=2,topic=kv");
        let expected = KvEventsSettings {
            endpoint: "tcp://a:5557".into(),
            replay: Some("tcp://a:5657".into()),
            topic: "kv".into(),
            rank: 2,
        };
        assert_eq!(source, Ok(expected));
        let far = parse_event_source("tcp://[::1]:5557,replay=tcp://b:1").map(|source| source.replay);
        assert_eq!(far, Ok(Some("tcp://b:1".to_owned())));
        for (text, part) in [
            ("a:5557", "no event address"),
            ("http://a=tcp://a:5557", "no event address"),
            ("tcp://a:5557,replay=0", "the port"),
            ("tcp://*:5557,replay=5657", "replay socket"),
            ("tcp://a:5557,hwm=1", "unknown"),
        ] {
            let error = parse_event_source(text).err().unwrap_or_default();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn ranks(endpoint: &str, replay: &str, ranks: u32) -> (Vec<KvEventsSettings>, String) {
        let located = |text: &str| Located::new(text.to_owned(), Place::default());
        let said = KvEvents {
            endpoint: located(endpoint),
            replay: Some(located(replay)),
            topic: Some(located("kv")),
            place: Place::default(),
        };
        let mut findings = Findings::default();
        let sources = of_ranks(&said, ranks, &mut findings);
        (sources, findings.problems().join("\n"))
    }

    #[test]
    fn each_rank_has_its_own_ports() {
        let (sources, problems) = ranks("tcp://a:5557", "tcp://a:5657", 3);
        assert_eq!(problems, "");
        let last =
            sources.last().map(|source| (source.endpoint.as_str(), source.replay.as_deref(), source.rank));
        assert_eq!(last, Some(("tcp://a:5559", Some("tcp://a:5659"), 2)));
        assert_eq!(sources[0].topic, "kv");
    }

    #[test]
    fn ranks_that_run_into_each_other_or_out_of_ports_are_refused() {
        for (endpoint, replay, count, part) in [
            ("tcp://a:5557", "tcp://a:5558", 2, "1 ports apart"),
            ("tcp://a:65535", "tcp://a:100", 2, "above 65535"),
            ("tcp://a:1", "nonsense", 1, "no event address"),
        ] {
            let (sources, problems) = ranks(endpoint, replay, count);
            assert!(sources.is_empty() && problems.contains(part), "{problems}");
        }
        assert_eq!(ranks("tcp://a:5557", "tcp://b:5557", 2).0.len(), 2, "other hosts have their own ports");
    }
}
