//! The other APIs: what generates is split as chats are, what does not is whole at one engine.

use kvasir_mock_engine::{ConnectorKind, Role};
use kvasir_suite::router::MODEL;
use serde_json::Value;

use crate::site::{Sketch, requests};

#[tokio::test(flavor = "multi_thread")]
async fn responses_and_messages_are_split_too() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 1).build().await?;
        for (path, member, limit, end) in [
            ("/v1/responses", r#""input""#, "max_output_tokens", "response.completed"),
            ("/v1/messages", r#""messages":[{"role":"user","content""#, "max_tokens", "message_stop"),
        ] {
            let close = if path == "/v1/messages" { "}]" } else { "" };
            for stream in [true, false] {
                let text = "word ".repeat(40);
                let sent = format!(
                    r#"{{"model":"{MODEL}","{limit}":3,"stream":{stream},{member}:"{text}"{close}}}"#
                );
                let answer = site.answer(path, sent.clone()).await?;
                let text = String::from_utf8_lossy(answer.body());
                if stream {
                    assert!(text.contains(&format!("event: {end}\n")), "{connector} {path}: {text}");
                } else {
                    let usage = serde_json::from_str::<Value>(&text)?["usage"].clone();
                    assert_eq!(usage["output_tokens"], 3, "{connector} {path}: {text}");
                }
                let prefill = requests(&site.groups[0].prefills[0]).pop().expect("was asked");
                let members: Value = serde_json::from_slice(&prefill.body)?;
                assert_eq!(
                    (&members[limit], members.get("stream")),
                    (&Value::from(1), None),
                    "{connector} {path}"
                );
                let decode = requests(&site.groups[0].decodes[0]).pop().expect("was asked");
                let whole = sent.strip_suffix('}').expect("an object");
                assert!(decode.body.starts_with(whole.as_bytes()), "{connector} {path}");
            }
        }
        site.is_clean().await;
        assert_eq!((site.exchanges(Role::Prefill).len(), site.exchanges(Role::Decode).len()), (4, 4));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_generates_nothing_is_not_split() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = Sketch::of(connector, 1).build().await?;
        let sent = format!(r#"{{"model":"{MODEL}", "input":["one text","another"]}}"#);
        let answer = site.answer("/v1/embeddings", sent.clone()).await?;
        let answer: Value = serde_json::from_slice(answer.body())?;
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(2), "{connector}");
        let got: Vec<_> = site.groups[0].engines().flat_map(requests).map(|request| request.body).collect();
        assert_eq!(got, [sent], "{connector}: one engine, the client's bytes");
        site.is_clean().await;
    }
    Ok(())
}

/// Several prompts in one request, and several answers to each, are one prefill and one decode.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_one_pair_of_requests_or_goes_whole_where_one_hand_over_cannot_carry_it()
-> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        // vLLM hands over the blocks of the first prompt alone.
        let hands_over_one = matches!(connector, ConnectorKind::Nixl | ConnectorKind::Mooncake);
        let site =
            Sketch::of(connector, 1).parts(move |part| part.serves_whole = hands_over_one).build().await?;
        let sent = format!(
            r#"{{"model":"{MODEL}","n":2,"max_tokens":3,"prompt":["one text","another one","a third"]}}"#
        );
        let answer = site.answer("/v1/completions", sent).await?;
        let answer: Value = serde_json::from_slice(answer.body())?;
        assert_eq!(answer["choices"].as_array().map(Vec::len), Some(6), "{connector}");
        assert_eq!(answer["usage"]["completion_tokens"], 18, "{connector}");
        site.is_clean().await;
        // A whole request is no exchange.
        let pairs = usize::from(!hands_over_one);
        assert_eq!((site.exchanges(Role::Prefill).len(), site.exchanges(Role::Decode).len()), (pairs, pairs));
        assert_eq!(site.groups[0].decodes.iter().flat_map(requests).count(), 1, "{connector}");
    }
    Ok(())
}
