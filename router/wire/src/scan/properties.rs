//! The scan against `serde_json` on random bodies, and what a rewrite may change.

use proptest::prelude::*;
use serde_json::{Map, Value as Json};

use super::*;
use crate::rewrite;

/// Characters that are awkward in JSON, beside usual ones.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            8 => any::<char>(),
            4 => proptest::sample::select(vec!['"', '\\', '/', '\n', '\u{0}', '{', ',', ' ', 'é', '漢', '🦀']),
            8 => proptest::char::range('a', 'z'),
        ],
        0..40,
    )
    .prop_map(String::from_iter)
}

/// A string in JSON, spelled with or without needless escapes.
fn spelled(text: &str, escape_all: bool) -> String {
    if escape_all {
        format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>())
    } else {
        serde_json::to_string(text).unwrap()
    }
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (text(), any::<bool>()).prop_map(|(text, escape)| spelled(&text, escape)),
        any::<i64>().prop_map(|number| number.to_string()),
        proptest::sample::select(vec![
            "null",
            "true",
            "false",
            "-0.5e+3",
            "0",
            "7",
            "4294967295",
            "[1,2]",
            "[ ]",
            "{}"
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4)
            .prop_map(|items| format!("[{}]", items.join(" ,")));
        let object = proptest::collection::vec((text(), inner), 0..4).prop_map(|members| {
            let members: Vec<_> =
                members.iter().map(|(key, value)| format!("{}: {value}", spelled(key, false))).collect();
            format!("{{{}}}", members.join(",\n"))
        });
        prop_oneof![list, object]
    })
}

fn options() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "null",
        "{}",
        "{ }",
        "{\"include_usage\":true}",
        "{\"include_usage\" : false, \"x\":\"{\\\"include_usage\\\":1}\"}",
        "{\"continuous_usage_stats\":true}",
        "{\"include_usage\":null,\"a\":1,\"include_us\\u0061ge\":false}",
        "7",
        "[{}]",
    ])
    .prop_map(str::to_owned)
}

fn member() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        (Just("model".to_owned()), text().prop_map(|text| spelled(&text, false))),
        (Just("stream_options".to_owned()), options()),
        (Just("stream".to_owned()), Just("true".to_owned())),
        (
            proptest::sample::select(vec![
                "stream",
                "cache_salt",
                "prompt",
                "messages",
                "input",
                "max_tokens",
                "echo"
            ])
            .prop_map(str::to_owned),
            value()
        ),
        (text(), value()),
    ]
}

fn space() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["", "", " ", "\n\t", "\r\n "])
}

/// An object with `model` somewhere; keys repeat now and then and are spelled both ways.
fn body() -> impl Strategy<Value = String> {
    let model = (text(), any::<bool>()).prop_map(|(name, escape)| spelled(&format!("m{name}"), escape));
    (
        proptest::collection::vec((member(), any::<bool>(), space(), space()), 0..10),
        model,
        any::<usize>(),
        space(),
    )
        .prop_map(|(members, model, place, edge)| {
            let mut parts: Vec<_> = members
                .into_iter()
                .map(|((key, value), escape, before, after)| {
                    format!("{before}{}{after}:{before}{value}{after}", spelled(&key, escape))
                })
                .collect();
            parts.insert(place % (parts.len() + 1), format!("\"model\":{model}"));
            format!("{edge}{{{}{edge}}}{edge}", parts.join(","))
        })
}

fn kinds() -> impl Strategy<Value = RequestKind> {
    proptest::sample::select(vec![
        RequestKind::Chat,
        RequestKind::Completions,
        RequestKind::Responses,
        RequestKind::Messages,
        RequestKind::Embeddings,
        RequestKind::Other,
    ])
}

/// What the scan's prompt is, as a value of the reference.
fn prompt_value(body: &str, prompt: &Prompt) -> Json {
    match prompt {
        Prompt::None => Json::Null,
        Prompt::Messages(span) | Prompt::Text(span) | Prompt::Input(span) => {
            serde_json::from_str(&body[span.clone()]).unwrap()
        }
        Prompt::TokenIds(ids) => serde_json::to_value(ids.to_vec()).unwrap(),
    }
}

fn expected_prompt(kind: RequestKind, reference: &Map<String, Json>) -> Json {
    let key = prompt::prompt_key(kind).unwrap_or("no such key");
    let takes_text = matches!(kind, RequestKind::Completions | RequestKind::Responses);
    match reference.get(key) {
        Some(value) if value.is_array() || (takes_text && value.is_string()) => value.clone(),
        _ => Json::Null,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_scan_reads_what_serde_json_reads(body in body(), kind in kinds()) {
        let reference: Map<String, Json> = serde_json::from_str(&body).unwrap();
        let model = reference["model"].as_str().unwrap();
        let found = match scan(kind, &Bytes::from(body.clone())) {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(model.trim().is_empty() && error == ScanError::ModelBlank, "{}: {}", error, body);
                return Ok(());
            }
        };
        prop_assert_eq!(&found.model, model);
        prop_assert_eq!(serde_json::from_str::<String>(&body[found.model_span.clone()]).unwrap(), model);
        prop_assert_eq!(found.stream, reference.get("stream") == Some(&Json::Bool(true)));
        let options = reference.get("stream_options");
        let include = options.and_then(|options| options.get("include_usage")).cloned().unwrap_or(Json::Null);
        prop_assert_eq!(found.include_usage_asked, include != Json::Null && include != Json::Bool(false));
        let span = found.stream_options_span.clone();
        prop_assert_eq!(span.map(|span| serde_json::from_str::<Json>(&body[span]).unwrap()), options.cloned());
        prop_assert_eq!(&body[found.object_start..=found.object_start], "{");
        prop_assert_eq!(prompt_value(&body, &found.prompt), expected_prompt(kind, &reference));
        let salt = reference.get("cache_salt").and_then(Json::as_str).filter(|salt| !salt.is_empty());
        prop_assert_eq!(found.cache_salt.as_deref(), salt);
        if kind == RequestKind::Completions {
            let limit = reference.get("max_tokens").and_then(Json::as_u64).and_then(|limit| u32::try_from(limit).ok());
            prop_assert_eq!(found.max_tokens, limit);
        }
    }

    #[test]
    fn a_cut_or_lengthened_body_is_refused(body in body(), cut in any::<proptest::sample::Index>()) {
        let object = body.trim();
        let mut end = cut.index(object.len());
        while !object.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(scan(RequestKind::Chat, &Bytes::from(object[..end].to_owned())).is_err());
        let longer = Bytes::from(format!("{object} ,"));
        prop_assert!(scan(RequestKind::Chat, &longer).is_err());
    }

    #[test]
    fn a_rewrite_changes_only_the_touched_members(
        body in body(), name in text(), rename in any::<bool>(), inject in any::<bool>(),
    ) {
        let bytes = Bytes::from(body.clone());
        let Ok(found) = scan(RequestKind::Chat, &bytes) else { return Ok(()) };
        let out = rewrite(&bytes, &found, rename.then_some(name.as_str()), inject);
        let before: Map<String, Json> = serde_json::from_str(&body).unwrap();
        let after: Map<String, Json> = serde_json::from_slice(&out).unwrap();
        let mut expected = before.clone();
        if rename {
            expected.insert("model".into(), Json::String(name.clone()));
        }
        let mergeable = matches!(before.get("stream_options"), None | Some(Json::Null | Json::Object(_)));
        if inject && mergeable && !found.include_usage_asked {
            let slot = expected.entry("stream_options").or_insert(Json::Null);
            if slot.is_null() {
                *slot = Json::Object(Map::new());
            }
            slot["include_usage"] = Json::Bool(true);
        }
        prop_assert_eq!(&after, &expected);
        let again = scan(RequestKind::Chat, &out);
        if !rename || !name.trim().is_empty() {
            let again = again.unwrap();
            prop_assert_eq!(&again.model, if rename { &name } else { &found.model });
            prop_assert_eq!(again.include_usage_asked, found.include_usage_asked || (inject && mergeable));
        }
        if out == bytes {
            prop_assert_eq!(out.as_ptr(), bytes.as_ptr(), "an unchanged body is not copied");
        }
    }
}
