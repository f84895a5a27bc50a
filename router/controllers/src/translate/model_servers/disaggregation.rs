//! ModelServers whose pods have parts: who prefills, who decodes, who is paired, and how the KV cache moves.

use std::collections::{BTreeMap, HashSet};

use kvasir_api::ModelServerSpec;
use kvasir_api::model_server::{InferenceEngine, KvConnectorKind, PdGroup};
use kvasir_core::{ConnectorKind, Role};
use kvasir_state::plan::{Disaggregation, ObjectName};

use crate::objects::PodFacts;

/// How the parts are told apart; `None` for a ModelServer whose pods do all.
pub(super) fn groups(spec: &ModelServerSpec) -> Option<&PdGroup> {
    spec.workload_selector.as_ref()?.pd_group.as_ref()
}

/// What the router is to do.
pub(super) fn plan(spec: &ModelServerSpec) -> Option<Disaggregation> {
    let group_key = Some(groups(spec)?.group_key.as_str().into());
    Some(Disaggregation { group_key, connector: connector(spec) })
}

/// The ModelServer's word, else what its engine can do by itself.
fn connector(spec: &ModelServerSpec) -> ConnectorKind {
    match (&spec.kv_connector, spec.inference_engine) {
        (Some(connector), _) => match connector.kind {
            KvConnectorKind::Http => ConnectorKind::Http,
            KvConnectorKind::Lmcache => ConnectorKind::Lmcache,
            KvConnectorKind::Nixl => ConnectorKind::Nixl,
            KvConnectorKind::Mooncake => ConnectorKind::Mooncake,
        },
        (None, InferenceEngine::SgLang) => ConnectorKind::Sglang,
        (None, InferenceEngine::Vllm) => ConnectorKind::Http,
    }
}

/// A pod has one part: decode is looked at first, and a pod with neither kind of labels has none. Without labels there is
/// nothing to be told by.
pub(super) fn role(groups: Option<&PdGroup>, labels: &BTreeMap<String, String>) -> Role {
    let Some(groups) = groups else { return Role::Both };
    let has = |wanted: &BTreeMap<String, String>| {
        !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    if has(&groups.decode_labels) {
        Role::Decode
    } else if has(&groups.prefill_labels) {
        Role::Prefill
    } else {
        Role::Both
    }
}

/// What the author of an accepted ModelServer should know of it: whole sentences.
pub(super) fn note(spec: &ModelServerSpec) -> Option<&'static str> {
    match (groups(spec), &spec.kv_connector, spec.inference_engine) {
        (None, Some(_), _) => Some(
            "spec.kvConnector has no effect without spec.workloadSelector.pdGroup: every pod serves whole requests.",
        ),
        (Some(_), None, InferenceEngine::Vllm) => Some(
            "spec.kvConnector is absent, so prefill and decode pods are called one after the other (http) and no KV \
             transfer is asked for: unless the engines share a cache by themselves, the decode pod computes the \
             prompt again. Set spec.kvConnector.type to what the engines have.",
        ),
        (Some(_), Some(_), InferenceEngine::SgLang) => Some(
            "spec.kvConnector replaces SGLang's own way, in which both pods are called at once and meet in a \
             bootstrap room. Remove it, whatever transfer backend the engines have.",
        ),
        _ => None,
    }
}

/// Whether any group of the pods has both parts.
pub(super) fn can_pair(groups: &PdGroup, selected: &[(&ObjectName, &PodFacts)]) -> bool {
    let of = |part: Role| {
        let pods = selected.iter().filter(move |(_, facts)| role(Some(groups), &facts.labels) == part);
        pods.filter_map(|(_, facts)| facts.labels.get(&groups.group_key)).filter(|value| !value.is_empty())
    };
    let prefill: HashSet<&String> = of(Role::Prefill).collect();
    of(Role::Decode).any(|group| prefill.contains(group))
}

/// Whether both give the pod a part, and not the same one.
pub(super) fn disagree(
    one: Option<&PdGroup>,
    other: Option<&PdGroup>,
    labels: &BTreeMap<String, String>,
) -> bool {
    matches!(
        (role(one, labels), role(other, labels)),
        (Role::Prefill, Role::Decode) | (Role::Decode, Role::Prefill)
    )
}
