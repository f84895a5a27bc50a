//! Objects as they were last seen, in the form of kthena's `/debug/config_dump`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kvasir_state::plan::ObjectName;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::objects::{Kind, Objects, PodFacts};

/// The answer for a path below `config_dump/`: a kind, or `namespaces/NAMESPACE/KIND/NAME`.
///
/// # Errors
/// A sentence about what is not there.
pub fn dump(objects: &Objects, path: &str) -> Result<Value, String> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [plural] => list(objects, plural),
        ["namespaces", namespace, plural, name] => one(objects, &ObjectName::new(*namespace, *name), plural),
        _ => Err("write config_dump/KIND or config_dump/namespaces/NAMESPACE/KIND/NAME".to_owned()),
    }
}

fn list(objects: &Objects, plural: &str) -> Result<Value, String> {
    let items = match plural {
        "modelroutes" => specs(&objects.model_routes, false),
        "modelservers" => {
            objects.model_servers.iter().map(|(name, server)| model_server(objects, name, server)).collect()
        }
        "gateways" => specs(&objects.gateways, true),
        "httproutes" => specs(&objects.http_routes, true),
        "inferencepools" => specs(&objects.inference_pools, true),
        "pods" => objects.pods.iter().filter_map(|(name, facts)| listed_pod(objects, name, facts)).collect(),
        _ => return Err(unknown(plural)),
    };
    // Empty lists are null, as there.
    let items = if items.is_empty() { Value::Null } else { Value::Array(items) };
    Ok(json!({plural: items}))
}

fn one(objects: &Objects, name: &ObjectName, plural: &str) -> Result<Value, String> {
    let (kind, found) = match plural {
        "modelroutes" => ("ModelRoute", whole(&objects.model_routes, name)),
        "modelservers" => ("ModelServer", whole(&objects.model_servers, name)),
        "gateways" => ("Gateway", whole(&objects.gateways, name)),
        "httproutes" => ("HTTPRoute", whole(&objects.http_routes, name)),
        "inferencepools" => ("InferencePool", whole(&objects.inference_pools, name)),
        "pods" => ("Pod", objects.pods.get(name).map(|facts| pod(objects, name, facts))),
        _ => return Err(unknown(plural)),
    };
    found.ok_or_else(|| format!("{kind} not found"))
}

fn unknown(plural: &str) -> String {
    format!(
        "{plural:?} is not watched; there are modelroutes, modelservers, pods, gateways, httproutes, inferencepools"
    )
}

fn specs<K: Serialize>(kind: &Kind<K>, with_status: bool) -> Vec<Value> {
    kind.iter().map(|(name, object)| spec(name, object, with_status)).collect()
}

fn spec<K: Serialize>(name: &ObjectName, object: &Arc<kvasir_api::Read<K>>, with_status: bool) -> Value {
    let mut item = Map::new();
    item.insert("name".to_owned(), json!(name.name));
    item.insert("namespace".to_owned(), json!(name.namespace));
    match &object.0 {
        Ok(object) => {
            let mut object = serde_json::to_value(object).unwrap_or_default();
            item.insert("spec".to_owned(), object["spec"].take());
            if with_status {
                item.insert("status".to_owned(), object["status"].take());
            }
        }
        Err(unreadable) => {
            item.insert("error".to_owned(), json!(unreadable.error.to_string()));
        }
    }
    Value::Object(item)
}

fn whole<K: Serialize>(kind: &Kind<K>, name: &ObjectName) -> Option<Value> {
    let object = kind.get(name)?;
    Some(match &object.0 {
        Ok(object) => serde_json::to_value(object).unwrap_or_default(),
        Err(unreadable) => json!({"metadata": unreadable.metadata, "error": unreadable.error.to_string()}),
    })
}

fn model_server(
    objects: &Objects,
    name: &ObjectName,
    server: &Arc<kvasir_api::Read<kvasir_api::ModelServer>>,
) -> Value {
    let mut item = spec(name, server, false);
    let selector = server.0.as_ref().ok().and_then(|server| server.spec.workload_selector.as_ref());
    if let (Some(selector), Value::Object(item)) = (selector, &mut item) {
        let labels = &selector.match_labels;
        let pods: Vec<String> = objects
            .pods
            .iter()
            .filter(|(pod, facts)| {
                pod.namespace == name.namespace && !labels.is_empty() && has_all(&facts.labels, labels)
            })
            .map(|(pod, _)| pod.to_string())
            .collect();
        if !pods.is_empty() {
            item.insert("associatedPods".to_owned(), json!(pods));
        }
    }
    item
}

/// A pod that a server or a pool selects. A cluster has many others.
fn listed_pod(objects: &Objects, name: &ObjectName, facts: &PodFacts) -> Option<Value> {
    let servers = servers_of(objects, name, facts);
    let is_pooled = || {
        let pools = objects.inference_pools.iter().filter(|(pool, _)| pool.namespace == name.namespace);
        pools.filter_map(|(_, object)| object.0.as_ref().ok()).any(|pool| {
            let labels = &pool.spec.selector.match_labels;
            !labels.is_empty() && has_all(&facts.labels, labels)
        })
    };
    (!servers.is_empty() || is_pooled())
        .then(|| json!({"name": name.name, "namespace": name.namespace, "modelServers": servers}))
}

fn pod(objects: &Objects, name: &ObjectName, facts: &PodFacts) -> Value {
    json!({
        "name": name.name,
        "namespace": name.namespace,
        "modelServers": servers_of(objects, name, facts),
        "podInfo": {
            "podIP": facts.ip,
            "ready": facts.ready,
            "startTime": facts.newest_start().and_then(|at| Timestamp::from_second(i64::try_from(at).ok()?).ok()),
            "labels": facts.labels,
        },
    })
}

/// The servers that select a pod.
fn servers_of(objects: &Objects, name: &ObjectName, facts: &PodFacts) -> BTreeSet<String> {
    objects
        .model_servers
        .iter()
        .filter(|(server, _)| server.namespace == name.namespace)
        .filter_map(|(server, object)| {
            Some((server, object.0.as_ref().ok()?.spec.workload_selector.as_ref()?))
        })
        .filter(|(_, selector)| {
            !selector.match_labels.is_empty() && has_all(&facts.labels, &selector.match_labels)
        })
        .map(|(server, _)| server.to_string())
        .collect()
}

fn has_all(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use kvasir_api::{ModelServer, Read};

    use super::*;
    use crate::objects::ContainerFacts;

    fn objects() -> Objects {
        let server: Read<ModelServer> = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "n"},
            "spec": {"inferenceEngine": "vLLM", "workloadPort": {"port": 8000},
                "workloadSelector": {"matchLabels": {"app": "a"}}},
        }))
        .unwrap();
        let broken: Read<ModelServer> = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "n"}, "spec": {"inferenceEngine": 1},
        }))
        .unwrap();
        let facts = PodFacts {
            labels: [("app".to_owned(), "a".to_owned())].into(),
            ranks: 1,
            pin_ranks: None,
            ip: None,
            ready: false,
            gone: false,
            containers: Box::new([ContainerFacts { ports: Box::new([]), started_at: Some(1_700_000_000) }]),
        };
        let other = PodFacts { labels: BTreeMap::new(), ..facts.clone() };
        Objects {
            model_servers: [
                (ObjectName::new("n", "s"), server.into()),
                (ObjectName::new("n", "b"), broken.into()),
            ]
            .into(),
            pods: [(ObjectName::new("n", "p"), facts.into()), (ObjectName::new("n", "other"), other.into())]
                .into(),
            ..Objects::default()
        }
    }

    #[test]
    fn kinds_are_listed_and_objects_shown() {
        let objects = objects();
        let servers = dump(&objects, "modelservers").unwrap();
        assert_eq!(servers["modelservers"][1]["associatedPods"], json!(["n/p"]));
        assert!(servers["modelservers"][0]["error"].as_str().unwrap().contains("spec.inferenceEngine"));
        assert_eq!(dump(&objects, "modelroutes").unwrap(), json!({"modelroutes": null}));
        let server = dump(&objects, "namespaces/n/modelservers/s").unwrap();
        assert_eq!(server["spec"]["workloadPort"]["port"], 8000);
        let listed = json!({"pods": [{"name": "p", "namespace": "n", "modelServers": ["n/s"]}]});
        assert_eq!(dump(&objects, "pods").unwrap(), listed);
        let pod = dump(&objects, "namespaces/n/pods/p").unwrap();
        assert_eq!(pod["modelServers"], json!(["n/s"]));
        assert_eq!(pod["podInfo"]["startTime"], "2023-11-14T22:13:20Z");
        assert_eq!(dump(&objects, "namespaces/n/pods/other").unwrap()["modelServers"], json!([]));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let objects = objects();
        assert_eq!(dump(&objects, "namespaces/n/modelroutes/x"), Err("ModelRoute not found".to_owned()));
        assert!(dump(&objects, "secrets").unwrap_err().contains("secrets"));
        assert!(dump(&objects, "namespaces/n").is_err());
    }
}
