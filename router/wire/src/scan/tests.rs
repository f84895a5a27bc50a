use super::*;

fn of(kind: RequestKind, body: &str) -> Result<Scan, ScanError> {
    scan(kind, &Bytes::copy_from_slice(body.as_bytes()))
}

fn chat(body: &str) -> Scan {
    of(RequestKind::Chat, body).unwrap()
}

#[test]
fn a_usual_chat_body_is_read() {
    let body = r#" {"model": "a/b", "messages": [{"role":"user","content":"hi"}], "stream": true,
        "stream_options": {"include_usage": true}, "cache_salt": "s", "max_tokens": 7, "x": {"model": "no"}} "#;
    let found = chat(body);
    assert_eq!(found.model, "a/b");
    assert_eq!(&body[found.model_span.clone()], "\"a/b\"");
    assert!(found.stream && found.include_usage_asked && !found.skips_cache);
    assert_eq!(&body[found.stream_options_span.clone().unwrap()], "{\"include_usage\": true}");
    assert_eq!(found.object_start, 1);
    let Prompt::Messages(span) = found.prompt.clone() else { panic!("{found:?}") };
    assert_eq!(&body[span], r#"[{"role":"user","content":"hi"}]"#);
    assert_eq!(found.cache_salt.as_deref(), Some("s"));
    assert_eq!(found.max_tokens, Some(7));
    assert_eq!(found.previous_response_id, None);
    assert!(!format!("{found:?}").contains("\"s\""), "a salt is never printed");
}

/// BODY-02: each of these is a 400 with a reason, never a 500 or a stack overflow.
#[test]
fn malformed_bodies_are_refused_with_a_reason() {
    let deep = format!("{{\"model\":\"m\",\"x\":{}", "[".repeat(100_000));
    let deep_objects = format!("{{\"model\":\"m\",\"x\":{}", "{\"a\":".repeat(100_000));
    let syntax = |at, expected| ScanError::Syntax { at, expected };
    let cases: Vec<(&[u8], ScanError)> = vec![
        (b"", ScanError::Empty),
        (b" \r\n\t", ScanError::Empty),
        (b"{", ScanError::Truncated),
        (b"{\"model\":\"m\"", ScanError::Truncated),
        (b"{\"model\":\"m", ScanError::Truncated),
        (b"[]", ScanError::NotObject { found: "array" }),
        (b"\"x\"", ScanError::NotObject { found: "string" }),
        (b"1", ScanError::NotObject { found: "number" }),
        (b"null", ScanError::NotObject { found: "null" }),
        (b"true", ScanError::NotObject { found: "boolean" }),
        (b"model=m", syntax(0, "a value")),
        (b"{bad", syntax(1, "a key in double quotes")),
        (b"{\"model\":\"m\",}", syntax(13, "a key in double quotes")),
        (b"{\"model\" \"m\"}", syntax(9, "`:`")),
        (b"{\"model\":\"m\" \"x\":1}", syntax(13, "`,` or `}`")),
        (b"{\"model\":\"m\nx\"}", syntax(11, "an escape for the control character")),
        (b"{\"model\":\"m\",\"t\":NaN}", syntax(17, "a value")),
        (b"{\"model\":\"m\"}x", ScanError::Trailing { at: 13 }),
        (b"{\"model\":\"m\"} {}", ScanError::Trailing { at: 14 }),
        (b"{\"model\":\"m\"}\0", ScanError::Trailing { at: 13 }),
        (b"\xef\xbb\xbf{\"model\":\"m\"}", ScanError::ByteOrderMark),
        (b"{\"model\":\"m\",\"x\":\"\xff\"}", ScanError::NotUtf8 { at: 18 }),
        (b"{\"model\":\"m\",\"x\":\"ab\xe2\x82\"}", ScanError::NotUtf8 { at: 20 }),
        (b"{\"mod\xc0\xafel\":\"m\"}", ScanError::NotUtf8 { at: 5 }),
        (b"{\"model\":\"m\",\xff}", syntax(13, "a key in double quotes")),
        (b"{}", ScanError::ModelMissing),
        (b"{\"Model\":\"m\"}", ScanError::ModelMissing),
        (b"{\"model\":null}", ScanError::ModelNotString { found: "null" }),
        (b"{\"model\":5}", ScanError::ModelNotString { found: "number" }),
        (b"{\"model\":[\"m\"]}", ScanError::ModelNotString { found: "array" }),
        (b"{\"model\":\"m\",\"model\":false}", ScanError::ModelNotString { found: "boolean" }),
        (b"{\"model\":\"\"}", ScanError::ModelBlank),
        (b"{\"model\":\" \\t\\u00a0\"}", ScanError::ModelBlank),
        (b"{\"model\":\"\\ud800\"}", ScanError::ModelNotText),
        (deep.as_bytes(), ScanError::TooDeep),
        (deep_objects.as_bytes(), ScanError::TooDeep),
    ];
    for (body, expected) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let error = scan(RequestKind::Chat, &Bytes::copy_from_slice(body)).unwrap_err();
        assert_eq!(error, expected, "{shown}");
        assert!(error.to_string().len() > 20, "{shown}: {error}");
    }
}

#[test]
fn messages_name_the_field_and_the_fix() {
    let error = of(RequestKind::Chat, "{\"model\":5}").unwrap_err();
    assert_eq!(error.to_string(), "`model` must be a string, not number; write \"model\": \"NAME\"");
    let error = of(RequestKind::Chat, "[").unwrap_err();
    assert_eq!(error.to_string(), "the JSON ends too early; send the whole object");
}

#[test]
fn the_last_of_a_repeated_key_counts() {
    let body = r#"{"model":5,"stream":true,"model":"a","stream":false,"mod\u0065l":"b","max_tokens":1,"max_tokens":2}"#;
    let found = chat(body);
    assert_eq!(found.model, "b");
    assert_eq!(&body[found.model_span], "\"b\"");
    assert_eq!(found.model_spans.len(), 3);
    assert!(!found.stream);
    assert_eq!(found.max_tokens, Some(2));
    let many = format!("{{{}\"x\":1}}", "\"model\":\"m\",".repeat(MAX_REPEATS + 1));
    assert_eq!(of(RequestKind::Chat, &many).unwrap_err(), ScanError::Repeated { field: "model" });
}

#[test]
fn names_are_decoded_and_bounded() {
    let found = chat(r#"{"model":"\u00e9\/\ud83e\udd80 \"q\" "}"#);
    assert_eq!(found.model, "é/🦀 \"q\" ");
    for (length, fits) in
        [(MAX_MODEL_BYTES, true), (MAX_MODEL_BYTES + 1, false), (MAX_MODEL_BYTES * 10, false)]
    {
        let plain = of(RequestKind::Chat, &format!("{{\"model\":\"{}\"}}", "m".repeat(length)));
        let escaped = of(RequestKind::Chat, &format!("{{\"model\":\"{}\"}}", "\\u006d".repeat(length)));
        assert_eq!(plain.is_ok(), fits);
        assert_eq!(escaped.is_ok(), fits);
    }
}

#[test]
fn lone_surrogates_outside_the_name_pass() {
    let found = chat(r#"{"model":"m","\ud800":1,"messages":["\udc00"],"cache_salt":"a\ud800"}"#);
    assert_eq!(found.cache_salt.as_deref(), Some("a\\ud800"));
}

#[test]
fn prompts_are_found_by_kind_and_never_judged() {
    use RequestKind as K;
    let cases: &[(K, &str, &str)] = &[
        (K::Completions, r#""prompt":"hi""#, "text \"hi\""),
        (K::Completions, r#""prompt":["a","b"]"#, "text [\"a\",\"b\"]"),
        (K::Completions, r#""prompt":[[1,2],[3]]"#, "text [[1,2],[3]]"),
        (K::Completions, r#""prompt":[]"#, "text []"),
        (K::Completions, r#""prompt":[1, 2 ,4294967295]"#, "ids [1, 2, 4294967295]"),
        (K::Completions, r#""prompt":[ 0 ]"#, "ids [0]"),
        (K::Completions, r#""prompt":[1],"truncate_prompt_tokens":1"#, "text [1]"),
        (K::Completions, r#""prompt":[1],"truncate_prompt_tokens":null"#, "ids [1]"),
        (K::Completions, r#""prompt_embeds":"AA==","prompt":[1]"#, "text [1]"),
        (K::Completions, r#""input_ids":[2],"prompt":[1]"#, "text [1]"),
        (K::Completions, r#""prompt":[1],"kv_transfer_params":{"prompt_token\u005fids":[2]}"#, "text [1]"),
        (K::Completions, r#""prompt":[1],"kv_transfer_params":{"prompt_token_ids":null,"x":1}"#, "ids [1]"),
        (K::Completions, r#""prompt":[1],"kv_transfer_params":7"#, "ids [1]"),
        (K::Completions, r#""prompt":[1,4294967296]"#, "text [1,4294967296]"),
        (K::Completions, r#""prompt":[1,-2]"#, "text [1,-2]"),
        (K::Completions, r#""prompt":[1,2.0]"#, "text [1,2.0]"),
        (K::Completions, r#""prompt":[1e3]"#, "text [1e3]"),
        (K::Completions, r#""prompt":[1,"a,b"]"#, "text [1,\"a,b\"]"),
        (K::Completions, r#""prompt":[1,[2,3]]"#, "text [1,[2,3]]"),
        (K::Completions, r#""prompt":[1,null]"#, "text [1,null]"),
        (K::Completions, r#""prompt":null"#, "none"),
        (K::Completions, r#""prompt":7"#, "none"),
        (K::Completions, r#""prompt":{"a":1}"#, "none"),
        (K::Completions, r#""messages":[]"#, "none"),
        (K::Chat, r#""messages":[]"#, "messages []"),
        (K::Chat, r#""messages":"hi""#, "none"),
        (K::Chat, r#""prompt":"hi""#, "none"),
        (K::Messages, r#""system":"s","messages":[{"a":1}]"#, "messages [{\"a\":1}]"),
        (K::Responses, r#""input":"hi""#, "input \"hi\""),
        (K::Responses, r#""input":[1]"#, "input [1]"),
        (K::Responses, r#""input":null"#, "none"),
        (K::Embeddings, r#""input":"hi""#, "none"),
        (K::Other, r#""messages":[]"#, "none"),
    ];
    for (kind, member, expected) in cases {
        let body = format!("{{\"model\":\"m\",{member}}}");
        let shown = match of(*kind, &body).unwrap().prompt {
            Prompt::None => "none".into(),
            Prompt::Messages(span) => format!("messages {}", &body[span]),
            Prompt::Text(span) => format!("text {}", &body[span]),
            Prompt::Input(span) => format!("input {}", &body[span]),
            Prompt::TokenIds(ids) => format!("ids {ids:?}"),
        };
        assert_eq!(shown, *expected, "{kind:?} {member}");
    }
}

#[test]
fn the_engine_skips_its_cache_for_prompt_log_probabilities() {
    use RequestKind as K;
    let cases: &[(K, &str, bool)] = &[
        (K::Chat, r#""prompt_logprobs":1"#, true),
        (K::Chat, r#""prompt_logprobs":0"#, true),
        (K::Chat, r#""prompt_logprobs":null"#, false),
        (K::Chat, r#""prompt_logprobs":false"#, false),
        (K::Completions, r#""echo":true,"logprobs":1"#, true),
        (K::Completions, r#""echo":true,"logprobs":0"#, true),
        (K::Completions, r#""echo":true,"logprobs":null"#, false),
        (K::Completions, r#""echo":true"#, false),
        (K::Completions, r#""echo":false,"logprobs":1"#, false),
        (K::Completions, r#""logprobs":1"#, false),
        (K::Chat, r#""echo":true,"logprobs":true"#, true),
        (K::Chat, r#""echo":true,"logprobs":true,"top_logprobs":null"#, false),
        (K::Chat, r#""logprobs":true,"top_logprobs":5"#, false),
    ];
    for (kind, members, expected) in cases {
        let found = of(*kind, &format!("{{\"model\":\"m\",{members}}}")).unwrap();
        assert_eq!(found.skips_cache, *expected, "{kind:?} {members}");
    }
}

#[test]
fn output_limits_follow_the_api() {
    use RequestKind as K;
    let cases: &[(K, &str, Option<u32>)] = &[
        (K::Chat, r#""max_tokens":1,"max_completion_tokens":2"#, Some(2)),
        (K::Chat, r#""max_tokens":1,"max_completion_tokens":null"#, Some(1)),
        (K::Completions, r#""max_tokens":1,"max_completion_tokens":2"#, Some(1)),
        (K::Messages, r#""max_tokens":9"#, Some(9)),
        (K::Responses, r#""max_output_tokens":3,"max_tokens":1"#, Some(3)),
        (K::Chat, r#""max_tokens":4294967296"#, None),
        (K::Chat, r#""max_tokens":-1"#, None),
        (K::Chat, r#""max_tokens":1.5"#, None),
        (K::Chat, r#""max_tokens":"5""#, None),
    ];
    for (kind, members, expected) in cases {
        let found = of(*kind, &format!("{{\"model\":\"m\",{members}}}")).unwrap();
        assert_eq!(found.max_tokens, *expected, "{members}");
    }
}

#[test]
fn the_responses_fields_are_read() {
    let body = r#"{"model":"m","input":"x","previous_response_id":"resp_1","background":true,"store":false}"#;
    let found = of(RequestKind::Responses, body).unwrap();
    assert_eq!(found.previous_response_id.as_deref(), Some("resp_1"));
    assert!(found.background);
    assert_eq!(found.store, Some(false));
    let body = r#"{"model":"m","input":"x","previous_response_id":null,"background":null,"store":null}"#;
    let found = of(RequestKind::Responses, body).unwrap();
    assert_eq!((found.previous_response_id, found.background, found.store), (None, false, None));
}

/// USE-02: the four ways a client can speak about usage.
#[test]
fn usage_is_lacking_only_where_a_stream_does_not_ask() {
    use RequestKind as K;
    let cases: &[(K, &str, bool, bool)] = &[
        (K::Chat, r#""stream":true"#, false, true),
        (K::Completions, r#""stream":true,"stream_options":null"#, false, true),
        (K::Chat, r#""stream":true,"stream_options":{}"#, false, true),
        (K::Chat, r#""stream":true,"stream_options":{"include_usage":true}"#, true, false),
        (K::Chat, r#""stream":true,"stream_options":{"include_usage":false}"#, false, true),
        (K::Chat, r#""stream":true,"stream_options":{"include_usage":1}"#, true, false),
        (
            K::Chat,
            r#""stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true}"#,
            true,
            false,
        ),
        (
            K::Chat,
            r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
            false,
            true,
        ),
        (K::Chat, r#""stream":true,"stream_options":"x""#, false, false),
        (K::Chat, r#""stream":true,"stream_options":[]"#, false, false),
        (K::Chat, r#""stream":false"#, false, false),
        (K::Chat, r#""stream":1"#, false, false),
        (K::Messages, r#""stream":true"#, false, false),
        (K::Responses, r#""stream":true"#, false, false),
    ];
    for (kind, members, asked, lacking) in cases {
        let found = of(*kind, &format!("{{\"model\":\"m\",{members}}}")).unwrap();
        assert_eq!(found.include_usage_asked, *asked, "{members}");
        assert_eq!(found.lacks_usage(*kind), *lacking, "{kind:?} {members}");
    }
}
