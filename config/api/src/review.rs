//! The webhook's judgement of one object: allowed, or refused with kthena's message.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::field_error::FieldError;
use crate::read::{ReadError, read_object};
use crate::validate::{
    rule_is_null, target_is_null, validate_external_model_provider, validate_model_route,
    validate_model_server,
};
use crate::{ExternalModelProvider, ModelRoute, ModelServer};

/// The kinds that the webhook is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewedKind {
    ModelRoute,
    ModelServer,
    ExternalModelProvider,
}

impl ReviewedKind {
    /// The kind's name, as it stands in an object.
    pub fn name(self) -> &'static str {
        match self {
            Self::ModelRoute => "ModelRoute",
            Self::ModelServer => "ModelServer",
            Self::ExternalModelProvider => "ExternalModelProvider",
        }
    }
}

/// Judges an object. `None` allows it; a text refuses it and says why.
///
/// # Errors
/// The object is none of its kind at all. kthena answers such a call with status 400.
pub fn review(kind: ReviewedKind, object: &Value) -> Result<Option<String>, ReadError> {
    let errors = match kind {
        ReviewedKind::ModelRoute => review_model_route(object)?,
        ReviewedKind::ModelServer => {
            // The schema lets an object without a spec in, and so does kthena's own reading.
            let blank = json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 1}});
            validate_model_server(&read_with_spec::<ModelServer>(object, blank)?)
        }
        ReviewedKind::ExternalModelProvider => {
            validate_external_model_provider(&read_with_spec::<ExternalModelProvider>(object, json!({}))?)
        }
    };
    Ok(refusal(kind, &errors))
}

/// kthena's message for a list of errors, if there are any.
pub fn refusal(kind: ReviewedKind, errors: &[FieldError]) -> Option<String> {
    if errors.is_empty() {
        return None;
    }
    let items: Vec<String> = errors.iter().map(|error| format!("  - {error}")).collect();
    Some(match kind {
        // Without line breaks, as kthena has it for this kind alone.
        ReviewedKind::ModelServer => format!("validation failed: {}", items.concat()),
        ReviewedKind::ModelRoute | ReviewedKind::ExternalModelProvider => {
            format!("validation failed:\n{}", items.join("\n"))
        }
    })
}

/// Reads an object whose `metadata` and `spec` may be missing.
fn read_with_spec<K: DeserializeOwned + Resource>(object: &Value, blank: Value) -> Result<K, ReadError> {
    let mut filled = object.clone();
    if let Some(fields) = filled.as_object_mut() {
        for (name, content) in [("metadata", json!({})), ("spec", blank)] {
            if fields.get(name).is_none_or(Value::is_null) {
                fields.insert(name.to_owned(), content);
            }
        }
    }
    read_object(&filled)
}

/// A typed route holds no `null` where a rule or a target belongs. Each is told, then replaced by something that
/// breaks no rule, so that the places of the others stay what they are.
fn review_model_route(object: &Value) -> Result<Vec<FieldError>, ReadError> {
    let mut object = object.clone();
    let mut nulls = Vec::new();
    let rules = object.pointer_mut("/spec/rules").and_then(Value::as_array_mut);
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        if rule.is_null() {
            nulls.push(rule_is_null(index));
            *rule = json!({"targetModels": [{"modelServerName": "-"}]});
            continue;
        }
        let targets = rule.get_mut("targetModels").and_then(Value::as_array_mut);
        for (place, target) in targets.into_iter().flatten().enumerate() {
            if target.is_null() {
                nulls.push(target_is_null(index, place));
                *target = json!({"modelServerName": "-", "weight": 0});
            }
        }
    }
    let mut errors = validate_model_route(&read_with_spec::<ModelRoute>(&object, json!({}))?);
    errors.extend(nulls);
    Ok(errors)
}
