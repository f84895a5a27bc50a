//! What a status should say against what it says: plain JSON in, plain JSON out.

use jiff::Timestamp;
use kvasir_api::conditions::{Time, types, values};
use kvasir_api::gateway::GATEWAY_GROUP;
use serde_json::{Map, Value, json};

use crate::status::{ListenerSaid, ParentSaid, Said, Status, StatusKind, Verdict};
use crate::translate::providers;

/// The longest message that the API server takes, bytes here, characters there.
const LONGEST_MESSAGE: usize = 32_768;

/// The fields of `status` to write so that the object says what it should. `found` is what it says. What others said in
/// lists that are shared stays: parents of other controllers, and conditions of Gateways, their classes and providers that
/// we do not speak of.
pub(super) fn wording(found: &Value, status: &Status, controller: &str, now: Timestamp) -> Value {
    let words = Words { generation: status.generation, now: json!(Time::from(now)) };
    match &status.said {
        Said::Conditions(verdicts) => {
            let shared = status.kind == StatusKind::ExternalModelProvider;
            let verdicts: Vec<Verdict> =
                verdicts.iter().filter(|ours| !shared || !is_anothers(found, ours)).cloned().collect();
            let conditions = words.conditions(&found["conditions"], &verdicts, shared);
            match status.generation {
                Some(generation) => json!({"conditions": conditions, "observedGeneration": generation}),
                None => json!({"conditions": conditions}),
            }
        }
        Said::GatewayClass { conditions, features } => json!({
            "conditions": words.conditions(&found["conditions"], conditions, true),
            "supportedFeatures": features.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        }),
        Said::Gateway { conditions, addresses, listeners } => json!({
            "conditions": words.conditions(&found["conditions"], conditions, true),
            "addresses": addresses,
            "listeners": listeners.iter().map(|said| words.listener(found, said)).collect::<Vec<_>>(),
        }),
        Said::Parents(parents) => json!({"parents": words.parents(found, parents, controller)}),
    }
}

/// Whether kthena's router, at work beside this one, says how ready a provider is: it serves what this one does not, and
/// two that correct each other help nobody. It says True, or gives reasons that this one has not.
fn is_anothers(found: &Value, ours: &Verdict) -> bool {
    let said = items(&found["conditions"]).find(|condition| condition["type"] == ours.kind);
    ours.kind == types::READY
        && said.is_some_and(|said| {
            let reason = said["reason"].as_str().unwrap_or_default();
            said["status"] == values::TRUE || !providers::READY_REASONS.contains(&reason)
        })
}

/// Whether `found` says everything that `wanted` says. Times, the order of lists and what the API server fills in do not
/// count.
pub(super) fn says(found: &Value, wanted: &Value) -> bool {
    let (Some(wanted), Value::Object(found)) = (wanted.as_object(), found) else {
        return wanted.as_object().is_none_or(|wanted| wanted.values().all(is_nothing));
    };
    wanted.iter().all(|(field, wanted)| {
        let nothing = Value::Null;
        let found = found.get(field).unwrap_or(&nothing);
        plain(field, found) == plain(field, wanted)
    })
}

/// Whether anything of `wanted` is in `found`.
pub(super) fn says_some(found: &Value, wanted: &Value) -> bool {
    let mut fields = wanted.as_object().into_iter().flatten();
    fields.any(|(field, wanted)| !is_nothing(wanted) && !is_nothing(&found[field]))
}

/// What all conditions of one status share.
struct Words {
    generation: Option<i64>,
    now: Value,
}

impl Words {
    fn conditions(&self, found: &Value, verdicts: &[Verdict], shared: bool) -> Vec<Value> {
        let found = found.as_array().map(Vec::as_slice).unwrap_or_default();
        let ours = |condition: &&Value| verdicts.iter().any(|verdict| condition["type"] == verdict.kind);
        let others = found.iter().filter(|condition| shared && !ours(condition)).cloned();
        let spoken = verdicts.iter().map(|verdict| {
            let before = found.iter().find(|condition| condition["type"] == verdict.kind);
            self.condition(before, verdict)
        });
        others.chain(spoken).collect()
    }

    fn condition(&self, before: Option<&Value>, verdict: &Verdict) -> Value {
        let since = before
            .filter(|before| before["status"] == verdict.value)
            .map(|before| &before["lastTransitionTime"])
            .filter(|since| since.is_string())
            .unwrap_or(&self.now);
        let mut condition = json!({
            "type": verdict.kind,
            "status": verdict.value,
            "reason": verdict.reason,
            "message": shortened(&verdict.message),
            "lastTransitionTime": since,
        });
        if let Some(generation) = self.generation {
            condition["observedGeneration"] = generation.into();
        }
        condition
    }

    fn listener(&self, found: &Value, said: &ListenerSaid) -> Value {
        let before = items(&found["listeners"]).find(|listener| listener["name"] == said.name.as_str());
        let before = before.map_or(&Value::Null, |listener| &listener["conditions"]);
        json!({
            "name": said.name,
            "supportedKinds": said.supported_kinds,
            "attachedRoutes": said.attached_routes,
            "conditions": self.conditions(before, &said.conditions, false),
        })
    }

    fn parents(&self, found: &Value, said: &[ParentSaid], controller: &str) -> Vec<Value> {
        let is_ours = |entry: &&Value| entry["controllerName"] == controller;
        let others = items(&found["parents"]).filter(|entry| !is_ours(entry)).cloned();
        let spoken = said.iter().map(|said| {
            let parent = json!(said.parent);
            let same =
                |entry: &&Value| plain("parentRef", &entry["parentRef"]) == plain("parentRef", &parent);
            let before = items(&found["parents"]).filter(is_ours).find(same);
            let before = before.map_or(&Value::Null, |entry| &entry["conditions"]);
            json!({
                "parentRef": parent,
                "controllerName": controller,
                "conditions": self.conditions(before, &said.conditions, false),
            })
        });
        others.chain(spoken).collect()
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// A message that fits.
fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST_MESSAGE)]
}

/// A value without what does not count: times of transitions, the order of lists, empty lists; and with what the API
/// server fills in, as the CRDs of Gateway API say.
fn plain(field: &str, value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| plain(field, item)).collect();
            items.sort_by_cached_key(Value::to_string);
            if items.is_empty() { Value::Null } else { Value::Array(items) }
        }
        Value::Object(fields) => {
            let mut fields: Map<String, Value> = fields
                .iter()
                .filter(|(name, value)| *name != "lastTransitionTime" && !is_nothing(value))
                .map(|(name, value)| (name.clone(), plain(name, value)))
                .collect();
            let filled_in: &[(&str, &str)] = match field {
                "parentRef" => &[("group", GATEWAY_GROUP), ("kind", "Gateway")],
                "supportedKinds" => &[("group", GATEWAY_GROUP)],
                "addresses" => &[("type", "IPAddress")],
                _ => &[],
            };
            for (name, value) in filled_in {
                fields.entry(*name).or_insert_with(|| (*value).into());
            }
            fields.sort_keys();
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
