//! What the two bodies may change, on random objects.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

const TOUCHED: &[&str] = &[
    "stream",
    "stream_options",
    "background",
    "min_tokens",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "store",
    "kv_transfer_params",
];

fn key() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(TOUCHED);
    prop_oneof![
        3 => known.clone().prop_map(|name| format!("\"{name}\"")),
        // The same keys, spelled with an escape.
        1 => known.prop_map(|name| format!("\"\\u{:04x}{}\"", u32::from(name.as_bytes()[0]), &name[1..])),
        3 => any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        1 => Just("\"\\ud800\"".to_owned()),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        proptest::sample::select(vec![
            "null", "true", "false", "0", "1", "2", "1.0", "2.5e1", "-3", "[ ]", "{}", "\",\""
        ])
        .prop_map(str::to_owned),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4)
            .prop_map(|items| format!("[{}]", items.join(" ,")));
        let object = proptest::collection::vec((key(), inner), 0..4).prop_map(|members| {
            let members: Vec<_> = members.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            format!("{{{}}}", members.join(",\n"))
        });
        prop_oneof![list, object]
    })
}

fn space() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["", "", " ", "\n\t", "\r\n "])
}

fn object() -> impl Strategy<Value = String> {
    let member = (key(), value(), space(), space())
        .prop_map(|(key, value, before, after)| format!("{before}{key}{after}:{before}{value}{after}"));
    (proptest::collection::vec(member, 0..10), space())
        .prop_map(|(members, around)| format!("{around}{{{}{around}}}{around}", members.join(",")))
}

/// The members as they are written, those apart that may be touched.
fn untouched(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = Cursor::new(text);
    let mut members = cursor.enter_object().unwrap();
    let mut found = Vec::new();
    while let Some(member) = members.next().unwrap() {
        if member.key.decode(text).is_some_and(|key| TOUCHED.contains(&key.as_ref())) {
            continue;
        }
        found.push((text[member.key.span.clone()].to_vec(), text[member.value.span].to_vec()));
    }
    found
}

/// Python's reading: the last value of a repeated key counts. `serde_json` refuses half of a surrogate pair.
fn read(text: &[u8]) -> Option<Json> {
    serde_json::from_slice(text).ok()
}

proptest! {
    #[test]
    fn a_prefill_body_differs_in_what_it_must_only(body in object(), one_sample: bool, kind in proptest::sample::select(
        vec![RequestKind::Chat, RequestKind::Completions, RequestKind::Responses, RequestKind::Messages]
    )) {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let params = Bytes::from_static(br#"{"do_remote_decode":true}"#);
        let shape = PrefillShape { kind, one_sample };
        let made = body_for_prefill(shape, &bytes, &[("kv_transfer_params", params)]).unwrap();
        prop_assert_eq!(untouched(&made), untouched(&bytes));
        let (Some(sent), Some(made)) = (read(&bytes), read(&made)) else { return Ok(()) };
        let limit = if kind == RequestKind::Responses { "max_output_tokens" } else { "max_tokens" };
        prop_assert_eq!(&made[limit], &json!(1));
        prop_assert_eq!(&made["kv_transfer_params"], &json!({"do_remote_decode": true}));
        prop_assert!(made.get("stream").is_none() && made.get("stream_options").is_none());
        prop_assert!(!made["min_tokens"].as_f64().is_some_and(|count| count > 1.0));
        if one_sample {
            prop_assert!(!made["n"].as_f64().is_some_and(|count| count > 1.0));
            prop_assert!(!made["best_of"].as_f64().is_some_and(|count| count > 1.0));
        } else {
            prop_assert_eq!(made.get("n"), sent.get("n"));
        }
        if kind == RequestKind::Responses {
            prop_assert_eq!(&made["store"], &json!(false));
        } else {
            prop_assert_eq!(made.get("store"), sent.get("store"));
            let completion = &made["max_completion_tokens"];
            prop_assert!(completion.is_null() || *completion == json!(1));
        }
    }

    #[test]
    fn a_decode_body_differs_in_the_additions_only(body in object()) {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let params = Bytes::from_static(b"{\"remote_block_ids\": [1,2]}");
        let made = body_for_decode(&bytes, &[("kv_transfer_params", params)]).unwrap();
        prop_assert_eq!(untouched(&made), untouched(&bytes));
        let (Some(mut sent), Some(made)) = (read(&bytes), read(&made)) else { return Ok(()) };
        sent["kv_transfer_params"] = json!({"remote_block_ids": [1, 2]});
        prop_assert_eq!(sent, made);
    }
}
