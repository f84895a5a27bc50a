//! Our CRDs mean what kthena's mean: what it accepts we accept, what it fills in we fill in.
//!
//! `data/kthena_schemas.txt` holds what kthena's CRDs say (volcano-sh/kthena, commit 3cc0572), one field a line,
//! without their prose. Ours is compared with that always; that is compared with the files themselves where they are.

#![expect(clippy::expect_used, clippy::panic, reason = "what cannot be compared must fail loudly")]

use std::collections::BTreeMap;

use kvasir_api::crds;
use serde_json::{Map, Value, json};

mod shared_data;

const TAKEN_DOWN: &str = include_str!("data/kthena_schemas.txt");

/// What we add: a status for the two kinds whose status is empty in kthena. No object that a user writes changes.
fn is_our_addition(difference: &str) -> bool {
    ["modelroutes", "modelservers"].iter().any(|kind| {
        ["status.conditions", "status.observedGeneration"]
            .iter()
            .any(|field| difference.starts_with(&format!("only ours: {kind} {field}")))
    })
}

#[test]
fn our_crds_differ_from_kthenas_in_the_status_alone() {
    let mut ours = BTreeMap::new();
    for definition in crds::definitions() {
        ours.extend(facts(&serde_json::to_value(definition).expect("is JSON")));
    }
    let theirs: BTreeMap<String, String> = TAKEN_DOWN
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(field, fact)| (field.to_owned(), fact.to_owned()))
        .collect();
    assert!(theirs.len() > 80, "only {} fields were taken down", theirs.len());
    let found = differences(&theirs, &ours);
    for difference in &found {
        println!("{difference}");
    }
    let wrong: Vec<&String> = found.iter().filter(|difference| !is_our_addition(difference)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        found.len(),
        18,
        "each addition is known: conditions, their seven lines, observedGeneration, twice"
    );
}

#[test]
fn what_was_taken_down_is_what_kthenas_crds_say() {
    let Some(folder) = shared_data::folder("crds") else {
        println!("NOT COMPARED: kthena's CRDs are not here; tests/data/kthena_schemas.txt stands for them");
        return;
    };
    let mut text = String::new();
    for path in shared_data::yaml_files(&folder) {
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("networking.serving.volcano.sh_"))
        {
            for document in shared_data::read_documents(&path) {
                for (field, fact) in facts(&document) {
                    text.push_str(&format!("{field} = {fact}\n"));
                }
            }
        }
    }
    let written = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kthena_schemas.txt");
    std::fs::write(&written, &text).expect("can be written");
    assert!(
        text == TAKEN_DOWN,
        "kthena's CRDs say something else; what they say is in {}",
        written.display()
    );
}

/// Everything a definition says but its prose: one entry per field of its schema, one for the rest.
fn facts(definition: &Value) -> BTreeMap<String, String> {
    let kind = definition["spec"]["names"]["plural"].as_str().expect("a plural");
    let mut found = BTreeMap::new();
    let mut rest = definition["spec"].clone();
    for (index, version) in definition["spec"]["versions"].as_array().expect("versions").iter().enumerate() {
        gather(kind, &version["schema"]["openAPIV3Schema"], "", &mut found);
        rest["versions"][index].as_object_mut().expect("a version").remove("schema");
    }
    found.insert(format!("{kind} (definition)"), sorted(&rest).to_string());
    found
}

fn gather(kind: &str, schema: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    let mut said = schema.as_object().expect("a schema").clone();
    for prose in ["description", "title"] {
        said.remove(prose);
    }
    merge_equal_choices(&mut said);
    if let Some(Value::Object(properties)) = said.remove("properties") {
        for (name, field) in &properties {
            // What every object has; an API server knows it without being told.
            if !(path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str())) {
                let dot = if path.is_empty() { "" } else { "." };
                gather(kind, field, &format!("{path}{dot}{name}"), found);
            }
        }
    }
    if let Some(items) = said.remove("items") {
        gather(kind, &items, &format!("{path}[]"), found);
    }
    if let Some(values) = said.remove("additionalProperties") {
        gather(kind, &values, &format!("{path}{{}}"), found);
    }
    let path = if path.is_empty() { "(root)" } else { path };
    found.insert(format!("{kind} {path}"), sorted(&Value::Object(said)).to_string());
}

/// `allOf` of one enumeration, said twice, is that enumeration.
fn merge_equal_choices(said: &mut Map<String, Value>) {
    if let Some(Value::Array(all)) = said.get("allOf") {
        let first = all.first().cloned().unwrap_or_default();
        assert!(all.iter().all(|other| *other == first), "{all:?}");
        said.remove("allOf");
        said.extend(first.as_object().cloned().unwrap_or_default());
    }
}

/// The same with keys in order, `required` in order, and numbers by their value.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut ordered: BTreeMap<&String, Value> =
                fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            if let Some(Value::Array(names)) = ordered.get_mut(&"required".to_owned()) {
                names.sort_by_key(ToString::to_string);
            }
            json!(ordered)
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_else(|| panic!("{number}"));
            assert!(number.fract() == 0.0, "{number}");
            json!(number as i64)
        }
        other => other.clone(),
    }
}

fn differences(theirs: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (field, fact) in theirs {
        match ours.get(field) {
            None => found.push(format!("only kthena's: {field} = {fact}")),
            Some(our) if our != fact => found.push(format!("{field}: kthena says {fact}, we say {our}")),
            Some(_) => {}
        }
    }
    found.extend(
        ours.iter()
            .filter(|(field, _)| !theirs.contains_key(*field))
            .map(|(field, fact)| format!("only ours: {field} = {fact}")),
    );
    found
}
