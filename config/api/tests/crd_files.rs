//! The CRD files of the chart are those that the types make.

use std::collections::BTreeMap;
use std::path::Path;

use kvasir_api::crds;
use serde_json::Value;

#[test]
fn the_files_in_the_chart_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/kvasir/crds");
    let there: BTreeMap<String, String> = std::fs::read_dir(&folder)
        .expect("charts/kvasir/crds is there")
        .flatten()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).expect("the file can be read");
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    let made: BTreeMap<String, String> = crds::definitions()
        .iter()
        .map(|definition| crds::as_file(definition).expect("can be written"))
        .collect();
    assert!(
        there == made,
        "charts/kvasir/crds is out of date; run `cargo run -p kvasir-api --example crdgen`"
    );
}

#[test]
fn making_them_again_gives_the_same_bytes() {
    let texts =
        || crds::definitions().iter().map(crds::as_file).collect::<Result<Vec<_>, _>>().expect("texts");
    assert_eq!(texts(), texts());
}

#[test]
fn a_file_says_what_its_definition_says() {
    for definition in crds::definitions() {
        let (name, text) = crds::as_file(&definition).expect("can be written");
        let read: Value = serde_saphyr::from_str(&text).expect("can be read");
        let made = serde_json::to_value(&definition).expect("is JSON");
        assert_eq!(whole(read), whole(made), "{name}");
    }
}

/// Numbers by their value: a bound is 1.0 in the types and 1 in the file.
fn whole(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        other => other,
    }
}
