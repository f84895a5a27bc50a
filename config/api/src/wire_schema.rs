//! Turns a derived JSON schema into what an API server expects: no nulls, signed formats, plain enumerations.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde_json::{Map, Value, json};

/// Rewrites a schema and all below it.
///
/// - `Option` means that a field may be absent. The derive says "or null" instead; an API server drops nulls that a
///   schema does not allow, so that the default applies, and that is what kthena's CRDs rely on.
/// - Kubernetes knows the formats int32 and int64 only; the bounds say what is unsigned.
/// - An enumeration whose variants carry docs is derived as one schema per variant, and one that keeps unknown values
///   as a choice of one.
pub(crate) fn as_on_the_wire(schema: &mut Schema) {
    transform_subschemas(&mut as_on_the_wire, schema);
    if let Some(object) = schema.as_object_mut() {
        forbid_null(object);
        sign_formats(object);
        gather_variants(object);
    }
}

fn forbid_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get("type") {
        let kept: Vec<Value> = types.iter().filter(|name| *name != "null").cloned().collect();
        if let [only] = kept.as_slice() {
            object.insert("type".to_owned(), only.clone());
        }
    }
    if let Some(Value::Array(choices)) = object.get("anyOf") {
        let kept: Vec<Value> =
            choices.iter().filter(|choice| **choice != json!({"type": "null"})).cloned().collect();
        if let [Value::Object(only)] = kept.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                // What is said at the field (its description, its default) wins over what its type says.
                object.entry(key).or_insert(value);
            }
        }
    }
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
}

fn sign_formats(object: &mut Map<String, Value>) {
    let signed = match object.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "uint32" | "int8" | "int16") => "int32",
        Some("uint64") => "int64",
        _ => return,
    };
    object.insert("format".to_owned(), signed.into());
}

fn gather_variants(object: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = object.get("oneOf") else {
        return;
    };
    let mut names = Vec::new();
    for variant in variants {
        match (variant.get("const"), variant.get("enum")) {
            (Some(name), _) => names.push(name.clone()),
            (None, Some(Value::Array(several))) => names.extend(several.iter().cloned()),
            _ => return,
        }
    }
    object.remove("oneOf");
    object.insert("type".to_owned(), "string".into());
    object.insert("enum".to_owned(), Value::Array(names));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(schema: Value) -> Value {
        let mut schema = Schema::try_from(schema).expect("a schema");
        as_on_the_wire(&mut schema);
        schema.to_value()
    }

    #[test]
    fn an_option_may_be_absent_but_not_null() {
        assert_eq!(
            rewritten(json!({"properties": {"a": {"type": ["string", "null"], "default": null}}})),
            json!({"properties": {"a": {"type": "string"}}})
        );
        assert_eq!(
            rewritten(json!({"description": "outer",
                "anyOf": [{"type": "object", "description": "inner"}, {"type": "null"}]})),
            json!({"description": "outer", "type": "object"})
        );
    }

    #[test]
    fn unsigned_formats_are_unknown_to_kubernetes() {
        assert_eq!(
            rewritten(json!({"items": {"type": "integer", "format": "uint16", "minimum": 1}})),
            json!({"items": {"type": "integer", "format": "int32", "minimum": 1}})
        );
    }

    #[test]
    fn documented_variants_are_one_enumeration() {
        assert_eq!(
            rewritten(json!({"default": "a", "oneOf": [
                {"type": "string", "const": "a", "description": "first"},
                {"type": "string", "enum": ["b", "c"]}]})),
            json!({"default": "a", "type": "string", "enum": ["a", "b", "c"]})
        );
        let real_choice = json!({"oneOf": [{"type": "object"}, {"type": "string"}]});
        assert_eq!(rewritten(real_choice.clone()), real_choice);
    }
}
