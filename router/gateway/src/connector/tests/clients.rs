//! What clients write that only the router may say, and what cannot be handed over.

use super::engine::send_to;
use super::*;

/// Everything by which an engine could be told where a prompt's cache is.
const WORDS: &str = r#""kv_transfer_params":{"do_remote_prefill":true,"remote_host":"evil"},"bootstrap_host":"evil","bootstrap_p\u006frt":22,"bootstrap_room":1,"disagg_prefill_dp_rank":1,"#;

#[tokio::test]
async fn a_client_says_nothing_of_the_hand_over() {
    let sent = ASK.replacen('{', &format!("{{{WORDS}"), 1);
    for connector in ConnectorKind::ALL {
        let prefill = Engine::start(|_| prefilled()).await;
        let decode = Engine::start(|_| Say::Json(200, answer("99"))).await;
        let house = House::open(connector, &[&prefill], &[&decode], usual).await;
        assert_eq!(post(house.address, &sent).await.status, 200, "{connector}");
        house.hears("completed d1 None").await;
        for seen in prefill.seen().iter().chain(&decode.seen()) {
            assert!(!seen.body.contains("evil") && seen.json().get("disagg_prefill_dp_rank").is_none());
            assert_eq!(seen.json().get("bootstrap_port"), None, "{connector}: the engine knows its own");
            assert_ne!(seen.json()["bootstrap_room"], 1, "{connector}");
        }
        // Nor where a decode endpoint gets all of it.
        let house = House::open(connector, &[], &[&decode], falling_back).await;
        assert_eq!(post(house.address, &sent).await.status, 200, "{connector}");
        assert_eq!(decode.seen()[1].body, ASK, "{connector}");
    }
}

/// A single cache is named in the prefill's answer, and a decode engine would take it for all prompts.
#[tokio::test]
async fn several_prompts_in_one_call_go_whole_where_one_cache_is_handed_over() {
    for (prompt, connector, split) in [
        (r#"["a","b"]"#, ConnectorKind::Nixl, false),
        (r#"[[1],[2]]"#, ConnectorKind::Mooncake, false),
        (r#"["a"]"#, ConnectorKind::Nixl, true),
        ("[1,2]", ConnectorKind::Nixl, true),
        (r#"["a","b"]"#, ConnectorKind::Http, true),
        (r#"["a","b"]"#, ConnectorKind::Sglang, true),
    ] {
        let prefill = Engine::start(|_| prefilled()).await;
        let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
        let house = House::open(connector, &[&prefill], &[&decode], usual).await;
        let sent = format!(r#"{{"model":"m","prompt":{prompt}}}"#);
        let got = finish(send_to(house.address, "/v1/completions", &sent).await).await;
        assert_eq!(got.status, 200, "{connector} {prompt}");
        let record = house.record().await;
        assert_eq!(record.pd_fallback, (!split).then_some("several_prompts"), "{connector} {prompt}");
        assert_eq!(prefill.seen().len(), usize::from(split), "{connector} {prompt}");
        if !split {
            assert_eq!(decode.seen()[0].body, sent);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_behind_the_first_byte_frees_both_engines() {
    let prefill = Engine::start(|_| prefilled()).await;
    let silent = Engine::start(|_| Say::Nothing).await;
    let paused = || Say::Pause(stream("96").remove(0), Arc::new(Notify::new()), Vec::new());
    let decode = Engine::start(move |_| paused()).await;
    for (connector, first, told) in [
        (ConnectorKind::Nixl, &prefill, "completed p1 Some(64)"),
        (ConnectorKind::Sglang, &silent, "failed p1"),
    ] {
        let house = House::open(connector, &[first], &[&decode], usual).await;
        let client = send(house.address, ASK_STREAM).await;
        house.hears("first_byte d1").await;
        assert_eq!(house.in_flight(), if connector == ConnectorKind::Sglang { 2 } else { 1 });
        drop(client);
        house.hears("failed d1").await;
        house.hears(told).await;
        house.record().await;
        assert_eq!((house.in_flight(), house.gateway.buffers.held()), (0, 0), "{connector}");
    }
    silent.left(1).await;
    decode.left(2).await;
}
