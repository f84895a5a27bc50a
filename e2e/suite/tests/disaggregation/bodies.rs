//! What each engine gets of a request, and what the client gets of both answers.

use http::{HeaderValue, header};
use kvasir_mock_engine::{ConnectorKind, Role};
use kvasir_suite::client::{post, send};
use kvasir_suite::router::MODEL;
use serde_json::{Value, json};

use crate::site::{CHAT, COMPLETIONS, Site, Sketch, cached, events, ids, is_whole, requests, usage};

/// Members that no engine reads, written as no library would write them.
const ODD: &str = r#""temperature":1.0e0,"metadata":{"b": "\u00e9<&>","a":12345678901234567890}"#;

/// A body of this many words; `more` begins with a comma.
fn body(path: &str, words: usize, more: &str) -> String {
    let text = "word ".repeat(words);
    let prompt = if path == CHAT {
        format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#)
    } else {
        format!(r#""prompt":"{text}""#)
    };
    format!(r#"{{ "model":"{MODEL}", {ODD},{prompt}{more}}}"#)
}

/// The members that a connector adds.
fn additions(connector: ConnectorKind, role: Role) -> &'static [&'static str] {
    match (connector, role) {
        (ConnectorKind::Http | ConnectorKind::Lmcache, _) => &[],
        (ConnectorKind::Nixl | ConnectorKind::Mooncake, _) => &["kv_transfer_params"],
        (ConnectorKind::Sglang, Role::Prefill) => &["bootstrap_room"],
        (ConnectorKind::Sglang, _) => &["bootstrap_room", "bootstrap_host"],
    }
}

/// The latest bodies at the one prefill and the one decode engine.
fn bodies(site: &Site) -> (String, String) {
    let last = |engine| {
        let request = requests(engine).pop().expect("the engine was asked");
        String::from_utf8(request.body.to_vec()).expect("text")
    };
    (last(&site.groups[0].prefills[0]), last(&site.groups[0].decodes[0]))
}

fn members(body: &str) -> serde_json::Map<String, Value> {
    serde_json::from_str(body).expect("a JSON object")
}

/// Takes the connector's members out of a body; all of them must be there.
fn without_additions(connector: ConnectorKind, role: Role, body: &str) -> Value {
    let mut members = members(body);
    for name in additions(connector, role) {
        assert!(members.remove(*name).is_some(), "{connector}: {name} is missing in {body}");
    }
    // Other routers of SGLang tell both engines everything, the port included.
    if connector == ConnectorKind::Sglang {
        members.remove("bootstrap_host");
        members.remove("bootstrap_port");
    }
    Value::Object(members)
}

/// The decode engine gets the client's bytes, with what the connector adds at the end and nothing else.
fn is_untouched(connector: ConnectorKind, sent: &str, arrived: &str) {
    if additions(connector, Role::Decode).is_empty() {
        assert_eq!(arrived, sent, "{connector}");
    } else {
        let whole = sent.strip_suffix('}').expect("an object");
        assert!(arrived.starts_with(whole), "{connector}: the client's bytes are changed: {arrived}");
    }
    let sent: Value = serde_json::from_str(sent).expect("JSON");
    assert_eq!(without_additions(connector, Role::Decode, arrived), sent, "{connector}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connector_serves_chats_and_completions_streamed_and_not() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 1).build().await?;
        for (path, stream) in [(CHAT, true), (CHAT, false), (COMPLETIONS, true), (COMPLETIONS, false)] {
            let more = if stream {
                r#","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}"#
            } else {
                r#","max_tokens":5"#
            };
            let sent = body(path, 60, more);
            let answer = site.answer(path, sent.clone()).await?;
            assert!(is_whole(answer.body()), "{connector} {path} {stream}: {:?}", answer.body());
            let usage = usage(answer.body());
            assert_eq!(usage["completion_tokens"], 5, "{connector} {path} {stream}");
            let (prefill, decode) = bodies(&site);
            is_untouched(connector, &sent, &decode);
            let mut expected: Value = serde_json::from_str(&sent)?;
            let fields = expected.as_object_mut().expect("an object");
            fields.remove("stream");
            fields.remove("stream_options");
            fields.insert("max_tokens".to_owned(), json!(1));
            assert_eq!(without_additions(connector, Role::Prefill, &prefill), expected, "{connector}");
            assert!(prefill.contains(ODD), "{connector}: {prefill}");
        }
        site.is_clean().await;
        assert!(site.by_prompt().values().all(|counts| counts.0 == counts.1));
        let (prefills, decodes) = (site.exchanges(Role::Prefill), site.exchanges(Role::Decode));
        assert_eq!((prefills.len(), decodes.len()), (4, 4), "{connector}");
        if connector != ConnectorKind::Sglang {
            for (prefill, decode) in prefills.iter().zip(&decodes) {
                assert!(
                    prefill.ended.is_some_and(|ended| ended <= decode.began),
                    "{connector}: one after the other"
                );
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_get_path_query_and_headers_and_their_own_host() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 1).build().await?;
        let mut request = post("/v1/completions?a=b", body(COMPLETIONS, 20, ""))?;
        request.headers_mut().insert("x-team", HeaderValue::from_static("blue"));
        request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        let answer = send(site.door(), request).await?;
        assert_eq!(answer.status(), 200, "{:?}", answer.body());
        for engine in site.groups[0].engines() {
            let request = requests(engine).pop().expect("was asked");
            assert_eq!(request.path, "/v1/completions?a=b");
            assert_eq!(request.headers["x-team"], "blue");
            assert_eq!(request.headers[header::HOST], engine.address().to_string());
            assert_eq!(request.headers[header::CONTENT_LENGTH], request.body.len().to_string());
            assert!(!request.headers.contains_key(header::AUTHORIZATION), "credentials stay here");
        }
        site.is_clean().await;
    }
    Ok(())
}

/// PD-01.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_request_contradicts_its_prefill() -> anyhow::Result<()> {
    let more = r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false},"min_tokens":5,"max_completion_tokens":50,"n":2,"logprobs":true,"top_logprobs":5"#;
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 1).build().await?;
        let sent = body(CHAT, 40, more);
        let answer = site.answer(CHAT, sent.clone()).await?;
        let finished = events(answer.body())
            .iter()
            .filter(|event| event["choices"][0]["finish_reason"].is_string())
            .count();
        assert_eq!(finished, 2, "{connector}: the client asked for two");
        let (prefill, decode) = bodies(&site);
        is_untouched(connector, &sent, &decode);
        let prefill = members(&prefill);
        assert_eq!(prefill["max_completion_tokens"], 1, "{connector}");
        assert_eq!((&prefill["logprobs"], &prefill["top_logprobs"]), (&json!(true), &json!(5)));
        site.is_clean().await;
    }
    Ok(())
}

/// PD-02.
#[tokio::test(flavor = "multi_thread")]
async fn the_decode_engine_gets_exactly_the_limits_that_the_client_sent() -> anyhow::Result<()> {
    let limits = [
        "",
        r#","max_tokens":null"#,
        r#","max_tokens":3"#,
        r#","max_completion_tokens":3"#,
        r#","max_completion_tokens":null"#,
        r#","max_completion_tokens":3,"max_tokens":4"#,
        r#","max_completion_tokens":null,"max_tokens":4"#,
    ];
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 1).build().await?;
        for limit in limits {
            let sent = body(CHAT, 20, limit);
            let answer = site.answer(CHAT, sent.clone()).await?;
            let (prefill, decode) = bodies(&site);
            is_untouched(connector, &sent, &decode);
            let tokens = usage(answer.body())["completion_tokens"].as_u64();
            let expected = if limit.contains(":3") {
                3
            } else if limit.contains(":4") {
                4
            } else {
                8
            };
            assert_eq!(tokens, Some(expected), "{connector} {limit}");
            let prefill = members(&prefill);
            assert_eq!(prefill["max_tokens"], 1);
            let completion = prefill.get("max_completion_tokens");
            assert!(completion.is_none_or(|value| value.is_null() || *value == json!(1)), "{limit}");
        }
        site.is_clean().await;
    }
    Ok(())
}

/// What a client says in the connector's fields is no business of the engines.
#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_the_hand_over_are_the_routers_own() -> anyhow::Result<()> {
    let more = r#","kv_transfer_params":{"do_remote_prefill":true,"remote_host":"evil","nonce":1},"bootstrap_room":7,"bootstrap_host":"evil""#;
    for connector in [ConnectorKind::Nixl, ConnectorKind::Mooncake, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 1).build().await?;
        for _ in 0..2 {
            assert!(is_whole(site.answer(COMPLETIONS, body(COMPLETIONS, 30, more)).await?.body()));
        }
        site.is_clean().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_prefill_engine_gives_out_is_handed_over_to_the_byte() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Mooncake] {
        let site = Sketch::of(connector, 1).build().await?;
        site.answer(COMPLETIONS, body(COMPLETIONS, 400, "")).await?;
        let (_, decode) = bodies(&site);
        let handed = members(&decode)["kv_transfer_params"].clone();
        assert!(handed["remote_block_ids"].as_array().is_some_and(|blocks| blocks.len() > 20));
        // The engine writes without spaces, and a number that no double can hold.
        let written = handed.to_string();
        assert!(decode.contains(&written), "{decode}");
        site.is_clean().await;
    }
    Ok(())
}

/// USE-05: the client sees how much of its prompt was cached where it was computed; all else in usage is the decode
/// engine's.
#[tokio::test(flavor = "multi_thread")]
async fn cached_tokens_are_the_prefill_engines() -> anyhow::Result<()> {
    let told = |more: &str| format!(r#"{{"model":"{MODEL}","prompt":{}{more}}}"#, ids(1, 100));
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 1).build().await?;
        let prefill = &site.groups[0].prefills[0];
        for (turn, stream) in [(1, false), (2, false), (3, true), (4, true)] {
            let more = if stream { r#","stream":true,"stream_options":{"include_usage":true}"# } else { "" };
            let before = prefill.stats();
            let answer = site.answer(COMPLETIONS, told(more)).await?;
            let after = prefill.stats();
            let usage = usage(answer.body());
            assert_eq!(
                cached(&usage),
                Some(after.cached_tokens - before.cached_tokens),
                "{connector}, turn {turn}: {usage}"
            );
            assert_eq!(cached(&usage) > Some(0), turn > 1, "{connector}, turn {turn}");
            assert_eq!(usage["prompt_tokens"], after.prompt_tokens - before.prompt_tokens);
            assert_eq!(usage["completion_tokens"], 8);
        }
        // A client that did not ask for usage sees none.
        let answer = site.answer(COMPLETIONS, told(r#","stream":true"#)).await?;
        assert!(is_whole(answer.body()));
        assert!(events(answer.body()).iter().all(|event| event.get("usage").is_none_or(Value::is_null)));
        site.is_clean().await;
        let counted = site.router.metric(&format!("kvasir_cached_tokens_reported_total{{model=\"{MODEL}\""));
        assert_eq!(counted, Some(prefill.stats().cached_tokens as f64), "{connector}");
    }
    Ok(())
}
