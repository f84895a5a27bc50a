use kvasir_core::RequestKind;

use super::*;
use crate::scan;

fn rewritten(body: &str, model: Option<&str>, inject: bool) -> String {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let found = scan(RequestKind::Chat, &bytes).unwrap();
    String::from_utf8(rewrite(&bytes, &found, model, inject).to_vec()).unwrap()
}

#[test]
fn the_model_is_spliced_and_nothing_else() {
    // TPL-06: key order, number spelling and unknown fields stay.
    let body = "{ \"z\":1.50, \"tools\":[{\"z\":1,\"a\":2,\"m\":3}],\"model\" : \"old\" ,\"y\":1e5,\"z\":\"\\u0041\"}";
    assert_eq!(rewritten(body, Some("new"), false), body.replace("\"old\"", "\"new\""));
    assert_eq!(
        rewritten(body, Some("q\"\\\n\u{1}é"), false),
        body.replace("\"old\"", r#""q\"\\\u000a\u0001é""#)
    );
}

#[test]
fn every_occurrence_of_a_repeated_key_is_rewritten() {
    let body = r#"{"model":null,"stream_options":7,"model":"a","x":{"model":"a"},"stream_options":{"k":1}}"#;
    assert_eq!(
        rewritten(body, Some("b"), true),
        r#"{"model":"b","stream_options":{"include_usage":true,"k":1},"model":"b","x":{"model":"a"},"stream_options":{"include_usage":true,"k":1}}"#
    );
}

#[test]
fn usage_is_merged_into_what_is_there() {
    let cases = [
        ("", "\"stream_options\":{\"include_usage\":true},", ""),
        (",\"stream_options\":null", "", ",\"stream_options\":{\"include_usage\":true}"),
        (",\"stream_options\":{}", "", ",\"stream_options\":{\"include_usage\":true}"),
        (",\"stream_options\":{ }", "", ",\"stream_options\":{\"include_usage\":true }"),
        (
            ",\"stream_options\":{\"continuous_usage_stats\":true}",
            "",
            ",\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}",
        ),
        (
            ",\"stream_options\": {\"a\" : [1], \"include_usage\" : false}",
            "",
            ",\"stream_options\": {\"a\" : [1], \"include_usage\" : true}",
        ),
        (
            ",\"stream_options\":{\"include_usage\":false,\"include_usage\":null}",
            "",
            ",\"stream_options\":{\"include_usage\":true,\"include_usage\":true}",
        ),
    ];
    for (sent, front, back) in cases {
        let body = format!("{{\"model\":\"m\",\"stream\":true{sent}}}");
        let expected = format!("{{{front}\"model\":\"m\",\"stream\":true{back}}}");
        assert_eq!(rewritten(&body, None, true), expected);
    }
}

#[test]
fn nothing_to_do_copies_nothing() {
    for body in [
        r#"{"model":"m","stream_options":{"include_usage":true}}"#,
        r#"{"model":"m","stream_options":"odd"}"#,
        r#"{"model":"m","stream_options":[]}"#,
    ] {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let found = scan(RequestKind::Chat, &bytes).unwrap();
        let out = rewrite(&bytes, &found, Some("m"), true);
        assert_eq!(out.as_ptr(), bytes.as_ptr());
        assert_eq!(out, bytes);
    }
}
