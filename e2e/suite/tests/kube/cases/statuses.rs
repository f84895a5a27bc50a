//! What objects say in their status, held against what a case expects.

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::format::StatusExpected;
use super::objects;

/// Who writes about routes and pools at their parents.
const CONTROLLER: &str = "volcano.sh/kthena-router";

/// What is not as it should be; an error is one of the test itself.
pub async fn check(client: &Client, space: &str, expected: &StatusExpected) -> Result<Result<(), String>> {
    let (kind, name) = expected.of.split_once('/').context("an object is written Kind/name")?;
    let version = objects::version(kind).with_context(|| format!("{kind} has no status here"))?;
    let (group, version) = version.rsplit_once('/').context("a version has a group")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match kind {
        "GatewayClass" => Api::all_with(client.clone(), &resource),
        _ => {
            let space = expected.namespace.as_deref().unwrap_or(space);
            Api::namespaced_with(client.clone(), space, &resource)
        }
    };
    // Some objects are made by the router.
    let Some(object) = api.get_opt(name).await? else {
        return Ok(Err(format!("{} is not there", expected.of)));
    };
    let status = object.data.get("status").cloned().unwrap_or_default();
    let found = judge(expected, &status, object.metadata.generation);
    Ok(found.map_err(|wrong| format!("{}: {wrong}; its status is {status}", expected.of)))
}

fn judge(expected: &StatusExpected, status: &Value, generation: Option<i64>) -> Result<(), String> {
    let list = |field: &str| status.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let parents: Vec<Value> = list("parents").into_iter().filter(is_ours).collect();
    if expected.silent {
        let said = !list("conditions").is_empty() || !parents.is_empty() || !list("listeners").is_empty();
        return if said { Err("it says something".to_owned()) } else { Ok(()) };
    }
    if let Some(count) = expected.parents
        && parents.len() != count
    {
        return Err(format!("expected {count} parents, found {}", parents.len()));
    }
    let place = match (&expected.parent, &expected.listener) {
        (Some(parent), listener) => parents
            .iter()
            .find(|said| {
                said["parentRef"]["name"] == json!(parent)
                    && listener.as_ref().is_none_or(|name| said["parentRef"]["sectionName"] == json!(name))
            })
            .cloned()
            .ok_or_else(|| format!("it says nothing at the parent {parent}"))?,
        (None, Some(listener)) => list("listeners")
            .into_iter()
            .find(|said| said["name"] == json!(listener))
            .ok_or_else(|| format!("it says nothing of the listener {listener}"))?,
        (None, None) => status.clone(),
    };
    if let Some(attached) = expected.attached
        && place["attachedRoutes"] != json!(attached)
    {
        return Err(format!("expected {attached} attached routes, found {}", place["attachedRoutes"]));
    }
    if let Some(kinds) = &expected.kinds {
        let found: Value = place["supportedKinds"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|kind| kind["kind"].clone())
            .collect();
        if found != json!(kinds) {
            return Err(format!("expected the kinds {kinds:?}, found {found}"));
        }
    }
    conditions(expected, &place, generation)
}

fn is_ours(parent: &Value) -> bool {
    parent.get("controllerName").is_none_or(|name| name == CONTROLLER)
}

fn conditions(expected: &StatusExpected, place: &Value, generation: Option<i64>) -> Result<(), String> {
    let said: Vec<&Value> = place["conditions"].as_array().into_iter().flatten().collect();
    let mut messages = Vec::new();
    for (kind, wanted) in &expected.conditions {
        let found = said.iter().find(|condition| condition["type"] == json!(kind));
        let (condition, wanted) = match (found, wanted) {
            (None, None) => continue,
            (Some(_), None) => return Err(format!("there is a condition {kind}")),
            (None, Some(_)) => return Err(format!("there is no condition {kind}")),
            (Some(condition), Some(wanted)) => (condition, wanted),
        };
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let (status, reason) = wanted.split_once(' ').unwrap_or((wanted, text("reason")));
        if (text("status"), text("reason")) != (status, reason) {
            let found = format!("{} {}: {}", text("status"), text("reason"), text("message"));
            return Err(format!("expected {kind} to be {wanted}, found {found}"));
        }
        if condition["observedGeneration"] != json!(generation) {
            let found = &condition["observedGeneration"];
            return Err(format!("expected {kind} to be about generation {generation:?}, found {found}"));
        }
        if text("lastTransitionTime").is_empty() || text("message").is_empty() {
            return Err(format!("{kind} lacks a time or a message"));
        }
        messages.push(text("message"));
    }
    match &expected.message {
        Some(part) if !messages.iter().any(|message| message.contains(part)) => {
            Err(format!("expected a message with {part:?}, found {messages:?}"))
        }
        _ => Ok(()),
    }
}
