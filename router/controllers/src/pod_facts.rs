//! What of a pod decides about routing, taken from the pod as the API server tells it.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;

use crate::objects::{ContainerFacts, PodFacts};

/// The annotation that tells how many data-parallel ranks an engine serves behind its one port.
pub const RANKS_ANNOTATION: &str = "kvasir.io/data-parallel-ranks";

/// The annotation that tells whether the header `X-data-parallel-rank` chooses the rank there: `true` or `false`.
pub const PINNED_ANNOTATION: &str = "kvasir.io/data-parallel-pinned";

/// The most ranks of one pod; each is an endpoint of its own.
const MOST_RANKS: u32 = 64;

impl PodFacts {
    /// The facts of `pod`. What does not fit counts as absent; an annotation that does not is logged.
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        // A pod that is being deleted may pass its readiness probe to the end. It must get no new request.
        let leaves = pod.metadata.deletion_timestamp.is_some();
        Self {
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            ranks: ranks(pod),
            pin_ranks: pin_ranks(pod),
            ip: status.and_then(|status| status.pod_ip.as_deref()).and_then(|ip| ip.parse().ok()),
            ready: !leaves && phase == Some("Running") && status.is_some_and(says_ready),
            gone: matches!(phase, Some("Succeeded" | "Failed")),
            containers: containers(pod),
        }
    }

    /// When what serves a port started, seconds since 1970: an engine that starts again begins with an empty cache. The
    /// container that names the port counts, so that another one's restart makes no other engine of this one. Where none
    /// names it, the newest counts: to forget a cache that is still there costs less than to trust one that is not.
    pub fn started_at(&self, port: u16) -> Option<u64> {
        let mut naming =
            self.containers.iter().filter(|container| container.ports.contains(&port)).peekable();
        if naming.peek().is_none() {
            return self.newest_start();
        }
        naming.filter_map(|container| container.started_at).max()
    }

    /// When the newest of its containers started, seconds since 1970.
    pub fn newest_start(&self) -> Option<u64> {
        self.containers.iter().filter_map(|container| container.started_at).max()
    }
}

/// A number of ranks that cannot be used.
#[derive(Debug)]
struct BadRanks<'a>(&'a str);

impl fmt::Display for BadRanks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{RANKS_ANNOTATION}: {:?} is no number from 1 to {MOST_RANKS}; the pod counts as one rank",
            self.0
        )
    }
}

fn ranks(pod: &Pod) -> u32 {
    let Some(text) = pod.metadata.annotations.as_ref().and_then(|all| all.get(RANKS_ANNOTATION)) else {
        return 1;
    };
    read_ranks(text).unwrap_or_else(|bad| {
        tracing::warn!(pod = %pod.name_any(), namespace = pod.namespace(), "{bad}");
        1
    })
}

fn pin_ranks(pod: &Pod) -> Option<bool> {
    let text = pod.metadata.annotations.as_ref()?.get(PINNED_ANNOTATION)?;
    let choice = text.trim().parse().ok();
    if choice.is_none() {
        let (pod, namespace) = (pod.name_any(), pod.namespace());
        tracing::warn!(
            pod,
            namespace,
            "{PINNED_ANNOTATION}: {text:?} is neither true nor false; it is not used"
        );
    }
    choice
}

fn read_ranks(text: &str) -> Result<u32, BadRanks<'_>> {
    text.trim().parse().ok().filter(|ranks| (1..=MOST_RANKS).contains(ranks)).ok_or(BadRanks(text))
}

fn says_ready(status: &PodStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The containers that have a state, each with the ports that the spec has for it.
fn containers(pod: &Pod) -> Box<[ContainerFacts]> {
    let specs = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let facts = statuses.unwrap_or_default().iter().map(|status| {
        let spec = specs.iter().find(|spec| spec.name == status.name);
        let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        ContainerFacts {
            ports: ports.iter().filter_map(|port| u16::try_from(port.container_port).ok()).collect(),
            started_at: started_at(status),
        }
    });
    facts.collect()
}

fn started_at(container: &ContainerStatus) -> Option<u64> {
    let running = container.state.as_ref()?.running.as_ref()?;
    u64::try_from(running.started_at.as_ref()?.0.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(metadata: Value, status: Value) -> PodFacts {
        let pod = json!({"metadata": metadata, "status": status});
        PodFacts::of(&serde_json::from_value(pod).expect("a pod"))
    }

    fn ready() -> Value {
        json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]})
    }

    fn started(at: &str) -> Value {
        json!({"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
            "state": {"running": {"startedAt": at}}})
    }

    #[test]
    fn a_pod_is_ready_while_it_runs_says_so_and_stays() {
        assert!(facts(json!({"name": "p"}), ready()).ready);
        let leaving = facts(json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}), ready());
        assert!(!leaving.ready && !leaving.gone, "it is told from its ready neighbours at once, and kept");
        for (field, value) in [
            ("phase", json!("Pending")),
            ("phase", json!("Unknown")),
            ("phase", Value::Null),
            ("conditions", json!([{"type": "Ready", "status": "False"}])),
            ("conditions", json!([{"type": "Ready", "status": "Unknown"}])),
            ("conditions", json!([{"type": "ContainersReady", "status": "True"}])),
            ("conditions", Value::Null),
        ] {
            let mut status = ready();
            status[field] = value.clone();
            let facts = facts(json!({"name": "p"}), status);
            assert!(!facts.ready && !facts.gone, "{field}: {value}");
        }
        for phase in ["Succeeded", "Failed"] {
            let mut status = ready();
            status["phase"] = phase.into();
            let facts = facts(json!({"name": "p"}), status);
            assert!(facts.gone && !facts.ready, "{phase}");
        }
    }

    #[test]
    fn an_empty_pod_has_no_facts_and_is_no_panic() {
        let empty = PodFacts::of(&Pod::default());
        assert_eq!(
            (empty.ready, empty.gone, empty.ip, empty.started_at(80), empty.ranks),
            (false, false, None, None, 1)
        );
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        for (text, read) in [
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::5", "fd00::5"),
            ("", ""),
            ("pod.local", ""),
            ("10.0.0.1:80", ""),
        ] {
            let facts = facts(json!({"name": "p"}), json!({"podIP": text}));
            assert_eq!(facts.ip.map(|ip| ip.to_string()).unwrap_or_default(), read);
        }
    }

    #[test]
    fn pinning_is_a_choice() {
        for (text, choice) in
            [("true", Some(true)), (" false ", Some(false)), ("yes", None), ("", None), ("1", None)]
        {
            let facts = facts(json!({"name": "p", "annotations": {PINNED_ANNOTATION: text}}), json!({}));
            assert_eq!(facts.pin_ranks, choice, "{text:?}");
        }
        assert_eq!(facts(json!({"name": "p"}), json!({})).pin_ranks, None);
    }

    #[test]
    fn ranks_are_a_number_from_1_to_64() {
        for (text, ranks) in [
            ("1", 1),
            ("8", 8),
            (" 64 ", 64),
            ("0", 1),
            ("65", 1),
            ("-1", 1),
            ("two", 1),
            ("", 1),
            ("4.0", 1),
        ] {
            let facts = facts(json!({"name": "p", "annotations": {RANKS_ANNOTATION: text}}), json!({}));
            assert_eq!(facts.ranks, ranks, "{text:?}");
        }
        let note = read_ranks("two").expect_err("no number").to_string();
        assert!(note.contains(RANKS_ANNOTATION) && note.contains("1 to 64"), "{note}");
    }

    #[test]
    fn the_newest_container_tells_when_a_pod_started() {
        let waiting = json!({"name": "c", "ready": false, "restartCount": 1, "image": "i", "imageID": "i",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        let (old, new) = (started("1970-01-01T00:01:40Z"), started("1970-01-01T00:03:20Z"));
        let newest = |containers: &[&Value]| {
            facts(json!({"name": "p"}), json!({"containerStatuses": containers})).started_at(80)
        };
        assert_eq!(newest(&[&new, &old, &waiting]), Some(200));
        assert_eq!(newest(&[&old, &waiting]), Some(100));
        assert_eq!(newest(&[&waiting]), None);
        let sidecar = json!({"containerStatuses": [old], "initContainerStatuses": [new]});
        assert_eq!(facts(json!({"name": "p"}), sidecar).started_at(80), Some(100));
    }

    #[test]
    fn the_container_that_names_the_port_tells_when_its_engine_started() {
        let state = |name: &str, at: &str| {
            let mut state = started(at);
            state["name"] = name.into();
            if at.is_empty() {
                state["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            }
            state
        };
        let pod = |proxy: &str| {
            let pod = json!({
                "metadata": {"name": "p"},
                "spec": {"containers": [
                    {"name": "proxy", "ports": [{"containerPort": 9000}, {"containerPort": 70_000}]},
                    {"name": "engine", "ports": [{"containerPort": 8000}, {"containerPort": 8001}]},
                ]},
                "status": {"containerStatuses": [
                    state("engine", "1970-01-01T00:01:40Z"), state("proxy", proxy),
                ]},
            });
            PodFacts::of(&serde_json::from_value(pod).expect("a pod"))
        };
        let (before, after) = (pod("1970-01-01T00:01:40Z"), pod("1970-01-01T00:03:20Z"));
        assert_eq!(before.started_at(8000), after.started_at(8000), "the proxy alone started again");
        assert_eq!([8000, 8001, 9000].map(|port| after.started_at(port)), [Some(100), Some(100), Some(200)]);
        assert_eq!(after.started_at(5000), Some(200), "nobody names it");
        let crashed = pod("");
        assert_eq!((crashed.started_at(9000), crashed.started_at(8000)), (None, Some(100)));
    }
}
