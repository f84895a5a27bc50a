//! Every name that is used in Redis: Kvasir's own, and those that kthena gave.
//!
//! Kvasir's names begin with `kvasir:` and the schema's version. The part in braces is a Cluster's hash tag: all keys
//! with the same one are in one slot. kthena's names are matched to the letter.

use kvasir_core::EndpointId;

/// The version of what is written under Kvasir's own names. Anything that an older reader would misread raises it.
pub const SCHEMA: u32 = 1;

/// Streams that the owners are spread over, each in a slot of its own.
pub const STREAMS: u8 = 16;

/// How long kthena keeps the mapping from an engine's block hash, seconds.
pub const KTHENA_MAPPING_SECONDS: u64 = 86_400;

/// kthena's hash of requests in flight; its fields are [`kthena_pod_slash`].
pub const KTHENA_ON_FLIGHT: &str = "kthena:on-flight-requests";

/// What every block key of kthena begins with.
pub const KTHENA_BLOCKS: &str = "matrix:kv:block:";

/// Kvasir's lock for the garbage collection of kthena's keys: one router at a time.
pub const GARBAGE_LOCK: &str = "kvasir:1:{gc}:lock";

/// When the last full garbage collection ended, server's seconds.
pub const GARBAGE_DONE: &str = "kvasir:1:{gc}:done";

/// The replicas of the router, by when their lease ends (server's milliseconds).
pub const REPLICAS: &str = "kvasir:1:{load}:replicas";

/// One replica's load vector.
pub fn load_vector(replica: &str) -> String {
    format!("kvasir:1:{{load}}:{replica}")
}

/// The replicas whose use may count, by when their lease ends (server's milliseconds).
pub const USAGE_REPLICAS: &str = "kvasir:1:{usage}:replicas";

/// What one replica tells of its segments of use.
pub fn usage_head(replica: &str) -> String {
    format!("kvasir:1:{{usage}}:head:{replica}")
}

/// What requests that run at one replica are charged.
pub fn usage_running(replica: &str) -> String {
    format!("kvasir:1:{{usage}}:running:{replica}")
}

/// One segment of a replica's use.
pub fn usage_segment(replica: &str, number: u64) -> String {
    format!("kvasir:1:{{usage}}:segment:{replica}:{number}")
}

/// An owner's name in keys and fields: `NAMESPACE/POD:PORT#RANK`, with the rank also where it is 0.
pub fn owner(endpoint: &EndpointId) -> String {
    format!("{}/{}:{}#{}", endpoint.namespace, endpoint.pod, endpoint.port, endpoint.rank)
}

/// The owner that a name stands for; `None` for a text that is no such name.
pub fn parse_owner(text: &str) -> Option<EndpointId> {
    let (namespace, rest) = text.split_once('/')?;
    let (rest, rank) = rest.rsplit_once('#')?;
    // A standalone owner's name may be an IPv6 address, so the port is what follows the last colon.
    let (pod, port) = rest.rsplit_once(':')?;
    if namespace.is_empty() || pod.is_empty() {
        return None;
    }
    Some(EndpointId::new(namespace, pod, port.parse().ok()?, rank.parse().ok()?))
}

/// The stream of an owner, from its name.
pub fn stream_of(owner: &str) -> u8 {
    (xxhash_rust::xxh3::xxh3_64(owner.as_bytes()) % u64::from(STREAMS)) as u8
}

/// The id of the store, as seen by one stream.
pub fn store(stream: u8) -> String {
    format!("{}:store", tag(stream))
}

/// The owners of one stream, by when their lease ends (server's milliseconds).
pub fn owners(stream: u8) -> String {
    format!("{}:owners", tag(stream))
}

/// What is known of one owner.
pub fn meta(owner: &str) -> String {
    format!("{}:meta:{owner}", tag(stream_of(owner)))
}

/// One chunk of an owner's snapshot.
pub fn chunk(owner: &str, generation: u64, number: u32) -> String {
    format!("{}:snap:{owner}:{generation}:{number}", tag(stream_of(owner)))
}

/// One part of what an owner's writer keeps for its own next start.
pub fn resume(owner: &str, id: u64, number: u32) -> String {
    format!("{}:resume:{owner}:{id}:{number}", tag(stream_of(owner)))
}

/// The changes of all owners of one stream.
pub fn deltas(stream: u8) -> String {
    format!("{}:deltas", tag(stream))
}

fn tag(stream: u8) -> String {
    format!("kvasir:{SCHEMA}:{{kv{stream:02}}}")
}

/// kthena's key of one block of a model; its fields are owners ([`kthena_pod_dot`]), its values when they stored it,
/// seconds since 1970 in decimal.
pub fn kthena_block(model: &str, hash: u64) -> String {
    format!("{KTHENA_BLOCKS}{model}@{hash}")
}

/// The model and the hash of a block key; `None` for another key. A model's name may itself have an `@`.
pub fn parse_kthena_block(key: &str) -> Option<(&str, u64)> {
    let (model, hash) = key.strip_prefix(KTHENA_BLOCKS)?.rsplit_once('@')?;
    Some((model, hash.parse().ok()?))
}

/// kthena's key of what content an engine's block hash stands for. `engine` is `vllm` or `sglang`, `pod` as
/// [`kthena_pod_dot`] gives it.
pub fn kthena_mapping(engine: &str, pod: &str, engine_hash: impl std::fmt::Display) -> String {
    format!("{engine}:kv:block:{pod}@{engine_hash}")
}

/// Who wrote a pod's blocks in kthena's layout: Kvasir's mark, by which the writer notices that the store is another
/// one, or was written by somebody else.
pub fn kthena_writer(model: &str, pod: &str) -> String {
    format!("kvasir:{SCHEMA}:{{kthena}}:writer:{pod}@{model}")
}

/// Who writes a pod's blocks in kthena's layout now, for as long as it lives. In the mark's slot, so that a script can
/// change both.
pub fn kthena_writer_lease(model: &str, pod: &str) -> String {
    format!("kvasir:{SCHEMA}:{{kthena}}:lease:{pod}@{model}")
}

/// What one replica of this router has in kthena's counters. In the counters' slot, so that a script can change both.
pub fn kthena_shares(replica: &str) -> String {
    format!("kvasir:{SCHEMA}:{{{KTHENA_ON_FLIGHT}}}:shares:{replica}")
}

/// The replicas of this router that count in kthena's counters, by when their lease ends (server's milliseconds). In
/// the counters' slot.
pub fn kthena_replicas() -> String {
    format!("kvasir:{SCHEMA}:{{{KTHENA_ON_FLIGHT}}}:replicas")
}

/// A pod as kthena's block keys name it.
pub fn kthena_pod_dot(namespace: &str, pod: &str) -> String {
    format!("{pod}.{namespace}")
}

/// A pod as kthena's on-flight counters name it: the other way round.
pub fn kthena_pod_slash(namespace: &str, pod: &str) -> String {
    format!("{namespace}/{pod}")
}

/// A text as a pattern that matches only itself.
pub fn escape_pattern(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The pattern of all block keys of one model, or of every model.
pub fn kthena_block_pattern(model: Option<&str>) -> String {
    match model {
        Some(model) => format!("{KTHENA_BLOCKS}{}@*", escape_pattern(model)),
        None => format!("{KTHENA_BLOCKS}*"),
    }
}

/// The pattern of all mapping keys of one pod.
pub fn kthena_mapping_pattern(engine: &str, pod: &str) -> String {
    format!("{engine}:kv:block:{}@*", escape_pattern(pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_documented() {
        let endpoint = EndpointId::new("ns", "a", 8000, 0);
        let name = owner(&endpoint);
        assert_eq!(name, "ns/a:8000#0");
        assert_eq!(parse_owner(&name), Some(endpoint));
        let stream = stream_of(&name);
        assert_eq!(meta(&name), format!("kvasir:1:{{kv{stream:02}}}:meta:ns/a:8000#0"));
        assert_eq!(chunk(&name, 3, 7), format!("kvasir:1:{{kv{stream:02}}}:snap:ns/a:8000#0:3:7"));
        assert_eq!(deltas(7), "kvasir:1:{kv07}:deltas");
        assert_eq!(load_vector("r1"), "kvasir:1:{load}:r1");
        assert_eq!(usage_head("r1"), "kvasir:1:{usage}:head:r1");
        assert_eq!(usage_running("r1"), "kvasir:1:{usage}:running:r1");
        assert_eq!(usage_segment("r1", 7), "kvasir:1:{usage}:segment:r1:7");
        assert!(REPLICAS.starts_with("kvasir:1:{load}:") && GARBAGE_LOCK.starts_with("kvasir:1:"));
    }

    #[test]
    fn an_ipv6_owner_survives() {
        let endpoint = EndpointId::new("default", "fd00::1", 8000, 3);
        assert_eq!(parse_owner(&owner(&endpoint)), Some(endpoint));
        for text in ["", "a", "a/b", "a/b:1", "a/b:x#0", "a/b:1#", "/b:1#0", "a/:1#0", "a/b:70000#0"] {
            assert_eq!(parse_owner(text), None, "{text}");
        }
    }

    #[test]
    fn kthena_names_are_kthenas() {
        assert_eq!(kthena_block("m1", 6_473_494_984_593_326_032), "matrix:kv:block:m1@6473494984593326032");
        assert_eq!(kthena_mapping("vllm", &kthena_pod_dot("ns", "a"), 11_i64), "vllm:kv:block:a.ns@11");
        assert_eq!(kthena_pod_slash("ns", "a"), "ns/a");
        assert_eq!(parse_kthena_block("matrix:kv:block:org/m@v2@17"), Some(("org/m@v2", 17)));
        assert_eq!(parse_kthena_block("matrix:kv:block:m@x"), None);
        assert_eq!(parse_kthena_block("other:m@1"), None);
    }

    #[test]
    fn a_pattern_matches_only_its_text() {
        assert_eq!(kthena_block_pattern(Some("a[b]*?\\^-c")), "matrix:kv:block:a\\[b\\]\\*\\?\\\\\\^\\-c@*");
        assert_eq!(kthena_mapping_pattern("vllm", "p?.ns"), "vllm:kv:block:p\\?.ns@*");
    }
}
