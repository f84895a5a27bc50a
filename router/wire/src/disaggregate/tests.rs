use super::*;

fn prefill(kind: RequestKind, body: &str) -> String {
    let shape = PrefillShape { kind, one_sample: true };
    let body = Bytes::copy_from_slice(body.as_bytes());
    String::from_utf8(body_for_prefill(shape, &body, &[]).unwrap().to_vec()).unwrap()
}

/// PD-01: what a client may send with a stream must not break the prefill.
#[test]
fn a_prefill_is_no_stream_of_one_token() {
    use RequestKind::{Chat, Responses};
    let cases = [
        (Chat, r#"{"model":"m"}"#, r#"{"model":"m","max_tokens":1}"#),
        (Chat, "{ \"model\" : \"m\"\n}\n", "{ \"model\" : \"m\",\"max_tokens\":1\n}\n"),
        (
            Chat,
            r#"{"stream":true, "model":"m","stream_options":{"include_usage":true},"z":1.50}"#,
            r#"{ "model":"m","z":1.50,"max_tokens":1}"#,
        ),
        (Chat, r#"{"max_tokens":100,"model":"m"}"#, r#"{"model":"m","max_tokens":1}"#),
        (
            Chat,
            r#"{"model":"m","max_completion_tokens":9,"min_tokens":5,"n":4}"#,
            r#"{"model":"m","max_tokens":1,"max_completion_tokens":1,"n":1}"#,
        ),
        (
            Chat,
            r#"{"model":"m","max_completion_tokens":null,"min_tokens":1,"n":1,"best_of":null,"logprobs":true}"#,
            r#"{"model":"m","max_completion_tokens":null,"min_tokens":1,"n":1,"best_of":null,"logprobs":true,"max_tokens":1}"#,
        ),
        (
            RequestKind::Completions,
            r#"{"model":"m","best_of":2.0,"stre\u0061m":true}"#,
            r#"{"model":"m","max_tokens":1,"best_of":1}"#,
        ),
        (
            Responses,
            r#"{"model":"m","max_output_tokens":100,"background":true,"max_tokens":7}"#,
            r#"{"model":"m","max_tokens":7,"max_output_tokens":1,"store":false}"#,
        ),
        (Responses, r#"{"store":true}"#, r#"{"max_output_tokens":1,"store":false}"#),
        (Chat, r#"{"store":true,"min_tokens":"5","n":"4"}"#, r#"{"store":true,"max_tokens":1,"n":1}"#),
        (RequestKind::Messages, r#"{"max_tokens":5,"max_tokens":6}"#, r#"{"max_tokens":1}"#),
        (Chat, "{ }", "{\"max_tokens\":1 }"),
    ];
    for (kind, sent, expected) in cases {
        assert_eq!(prefill(kind, sent), expected, "{sent}");
    }
}

#[test]
fn sglangs_engines_are_asked_for_as_many_answers() {
    let shape = PrefillShape { kind: RequestKind::Chat, one_sample: false };
    let room = [("bootstrap_room", Bytes::from_static(b"7"))];
    let body = Bytes::from_static(br#"{"model":"m","n":4,"bootstrap_room":1}"#);
    let made = body_for_prefill(shape, &body, &room).unwrap();
    assert_eq!(&made[..], br#"{"model":"m","n":4,"max_tokens":1,"bootstrap_room":7}"#);
}

#[test]
fn a_decode_body_has_the_connectors_members_once() {
    let params = [("kv_transfer_params", Bytes::from_static(br#"{"a": [1, 2]}"#))];
    for (sent, expected) in [
        (r#"{"model":"m"}"#, r#"{"model":"m","kv_transfer_params":{"a": [1, 2]}}"#),
        (
            r#"{"kv_transfer_params":{"evil":1},"model":"m", "kv_transfer_params":null }"#,
            r#"{"model":"m","kv_transfer_params":{"a": [1, 2]} }"#,
        ),
        (r#"{"kv_transfer_params":{"evil":1}}"#, r#"{"kv_transfer_params":{"a": [1, 2]}}"#),
    ] {
        let made = body_for_decode(&Bytes::copy_from_slice(sent.as_bytes()), &params).unwrap();
        assert_eq!(made, expected.as_bytes(), "{sent}");
    }
}

#[test]
fn nothing_to_add_copies_nothing_and_no_object_is_refused() {
    let body = Bytes::from_static(br#"{"model":"m"}"#);
    assert_eq!(body_for_decode(&body, &[]).unwrap().as_ptr(), body.as_ptr());
    for bad in ["", "[]", "7", "{\"a\":1", "{\"a\":1,}"] {
        let bad = Bytes::copy_from_slice(bad.as_bytes());
        let shape = PrefillShape { kind: RequestKind::Chat, one_sample: true };
        assert_eq!(body_for_prefill(shape, &bad, &[]), None);
        assert_eq!(body_for_decode(&bad, &[("x", Bytes::from_static(b"1"))]), None);
    }
}

#[test]
fn a_clients_word_on_the_hand_over_is_cut_out_and_nothing_else() {
    for (sent, expected) in [
        (
            r#"{"bootstrap_host":"evil", "model":"m","kv_transfer_params":{"remote_host":"evil"},"bootstrap_room":1,"bootstrap_\u0070ort":22,"a":{"bootstrap_host":1}}"#,
            r#"{ "model":"m","a":{"bootstrap_host":1}}"#,
        ),
        (
            r#"{"model":"m","data_parallel_rank":1,"bootstrap_pair_key":"k","routed_dp_rank":1,"disagg_prefill_dp_rank":2,"kv_transfer_params":null}"#,
            r#"{"model":"m"}"#,
        ),
    ] {
        let sent = Bytes::copy_from_slice(sent.as_bytes());
        assert!(crate::scan(RequestKind::Chat, &sent).unwrap().hands_over);
        let made = without_hand_over(&sent).unwrap();
        assert_eq!(made, expected.as_bytes());
        assert!(!crate::scan(RequestKind::Chat, &made).unwrap().hands_over);
    }
    assert_eq!(without_hand_over(&Bytes::from_static(b"[]")), None);
}

#[test]
fn several_prompts_are_told_from_one() {
    for one in [r#""a""#, "[]", "[1, 2]", r#"["a,b"]"#, "[ [1,2] ]", r#"[{"a":1},{}]"#, "7", "", "["] {
        assert!(!are_several_prompts(one.as_bytes()), "{one}");
    }
    for several in [r#"["a","b"]"#, r#"[ "a\"" , "b"]"#, "[[1],[2, 3]]", "[ [1] ,[]]"] {
        assert!(are_several_prompts(several.as_bytes()), "{several}");
    }
}
