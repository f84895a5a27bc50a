//! The reference page of the models file, from the schema of its types.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{GENERATED, cell};
use crate::raw::models::ModelsFile;

const INTRODUCTION: &str = "\
# The models file

`kvasir router --models FILE` reads the models and their engines from a YAML file. Models may also be given with
`--model`; both lists count. Unknown keys, wrong types and names that clash are refused, all at once, each with its
line.

";

/// The example that the page shows; a test loads it.
const EXAMPLE: &str = include_str!("../../../examples/two-vllm.yaml");

/// The reference page.
pub fn models_file_page() -> String {
    let schema = schemars::schema_for!(ModelsFile);
    let mut page = format!("{GENERATED}{INTRODUCTION}```yaml\n{EXAMPLE}```\n");
    let empty = Map::new();
    let top = schema.as_object().unwrap_or(&empty);
    object_section(&mut page, "The file", top);
    let definitions = top.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    for name in in_order_of_use(top, definitions) {
        if let Some(definition) = definitions.get(&name).and_then(Value::as_object) {
            object_section(&mut page, &name, definition);
        }
    }
    page
}

/// Names of definitions, outermost first.
fn in_order_of_use(top: &Map<String, Value>, definitions: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut next = 0;
    collect_references(top.get("properties"), &mut names);
    while let Some(name) = names.get(next).cloned() {
        collect_references(definitions.get(&name), &mut names);
        next += 1;
    }
    names
}

fn collect_references(value: Option<&Value>, names: &mut Vec<String>) {
    match value {
        Some(Value::Object(object)) => {
            if let Some(name) =
                object.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
                && !names.iter().any(|known| known == name)
            {
                names.push(name.to_owned());
            }
            object.values().for_each(|value| collect_references(Some(value), names));
        }
        Some(Value::Array(items)) => items.iter().for_each(|value| collect_references(Some(value), names)),
        _ => {}
    }
}

fn object_section(page: &mut String, name: &str, object: &Map<String, Value>) {
    let _ = write!(page, "\n## {name}\n\n");
    if let Some(description) = object.get("description").and_then(Value::as_str) {
        let _ = write!(page, "{description}\n\n");
    }
    page.push_str("| key | type | required | means |\n|---|---|---|---|\n");
    let required: Vec<&str> = object
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (key, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let means = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let needed = if required.contains(&key.as_str()) { "yes" } else { "no" };
        let _ = writeln!(page, "| `{key}` | {} | {needed} | {} |", type_name(property), cell(means));
    }
}

/// A property's type in words.
fn type_name(property: &Value) -> String {
    if let Some(name) = property.get("$ref").and_then(Value::as_str) {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    if let Some(options) = property.get("anyOf").and_then(Value::as_array) {
        return options.iter().map(type_name).find(|name| name != "null").unwrap_or_default();
    }
    let names: Vec<&str> = match property.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    match names.iter().find(|name| **name != "null").copied() {
        Some("array") => {
            format!("list of {}", property.get("items").map(type_name).unwrap_or_default())
        }
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some(other) => other.to_owned(),
        None => "null".to_owned(),
    }
}
