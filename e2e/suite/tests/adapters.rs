//! LoRA adapters seen from both ends: where an adapter is loaded decides where its requests go, and nothing of it is
//! mixed up with the base model's.

#![expect(clippy::expect_used, reason = "a test that cannot be set up must fail loudly")]

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use kvasir_core::{AdapterStanding, EngineAdapters};
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use serde_json::{Value, json};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Tokens of an answer that no test sees the end of; the engine's cache has room for them.
const NO_END: u32 = 60_000;

/// Three engines with room for one adapter in use, and the router over them.
struct House {
    engines: Vec<Engine>,
    router: Router,
}

fn engine(adapters: &[&str]) -> EngineConfig {
    EngineConfig {
        model: MODEL.to_owned(),
        adapters: adapters.iter().map(|name| (*name).to_owned()).collect(),
        adapter_places: 1,
        decode_us_per_token: 1000.0,
        answer_tokens: NO_END as usize,
        ..EngineConfig::default()
    }
}

impl House {
    async fn start(configs: Vec<EngineConfig>, scorers: &[&str]) -> anyhow::Result<Self> {
        let mut engines = Vec::new();
        for config in configs {
            engines.push(Engine::start(config).await?);
        }
        let urls: Vec<String> = engines.iter().map(Engine::url).collect();
        let mut settings = settings(&urls)?;
        settings.scrape_interval = Duration::from_millis(50);
        settings.models[0].adapters = ["sql", "law", "late"].map(Into::into).to_vec();
        settings.scheduler.scorers = scorers.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        Ok(Self { engines, router: Router::start(settings).await? })
    }

    async fn of_three(scorers: &[&str]) -> anyhow::Result<Self> {
        Self::start(vec![engine(&["sql", "law"]); 3], scorers).await
    }

    fn pod(&self, number: usize) -> String {
        format!("default/{}", self.engines[number].address())
    }

    /// Where a chat went, and its answer.
    async fn chat(&self, model: &str, text: &str) -> anyhow::Result<(String, Response<Bytes>)> {
        let body = json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2});
        let answer = send(self.router.inference, post("/v1/chat/completions", body.to_string())?).await?;
        let pod = answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok());
        Ok((pod.unwrap_or_default().to_owned(), answer))
    }

    /// The engines that `count` chats went to.
    async fn chats(&self, model: &str, count: usize) -> anyhow::Result<BTreeSet<String>> {
        let mut pods = BTreeSet::new();
        for number in 0..count {
            let (pod, answer) = self.chat(model, &format!("question {number}")).await?;
            assert_eq!(answer.status(), 200, "{pod}: {:?}", answer.body());
            pods.insert(pod);
        }
        Ok(pods)
    }

    /// How a chat would be decided.
    async fn explained(&self, model: &str, text: &str) -> anyhow::Result<Value> {
        let body = json!({"model": model, "messages": [{"role": "user", "content": text}]});
        let answer = send(self.router.admin, post("/explain", body.to_string())?).await?;
        Ok(serde_json::from_slice(answer.body())?)
    }

    /// Has an engine, past the router, answer with so many tokens, a millisecond each.
    fn occupy(&self, number: usize, adapter: &str, tokens: u32) {
        let body = json!({
            "model": adapter, "messages": [{"role": "user", "content": "x"}],
            "max_tokens": tokens,
        });
        let (address, request) =
            (self.engines[number].address(), post("/v1/chat/completions", body.to_string()));
        tokio::spawn(async move { send(address, request.expect("a good path")).await });
    }

    /// Waits until the router has heard that `adapter` stands so at an engine.
    async fn heard(&self, number: usize, adapter: &str, standing: AdapterStanding) {
        let pod = self.pod(number);
        eventually(&format!("{adapter} is {standing:?} at {pod}"), || {
            let told = self.router.gateway.state.endpoints().into_iter();
            let told = told.filter(|status| status.id.to_string() == pod).find_map(|status| status.adapters);
            told.is_some_and(|told: EngineAdapters| told.standing(adapter) == standing)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_where_their_adapter_is_loaded_and_avoid_full_engines() -> anyhow::Result<()> {
    let house = House::of_three(&["lora-residency"]).await?;
    house.occupy(1, "sql", NO_END);
    house.heard(1, "sql", AdapterStanding::Resident).await;
    for idle in [0, 2] {
        house.heard(idle, "sql", AdapterStanding::Absent).await;
    }
    assert_eq!(house.chats("sql", 12).await?, [house.pod(1)].into());
    let law = house.chats("law", 12).await?;
    assert!(!law.is_empty() && !law.contains(&house.pod(1)), "its one place is taken by sql: {law:?}");
    Ok(())
}

/// The engine names an adapter only while it has requests of it; the weights stay until another one needs the place.
#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_keeps_its_place_while_it_idles() -> anyhow::Result<()> {
    let house = House::of_three(&["lora-residency"]).await?;
    house.occupy(2, "sql", 500);
    house.heard(2, "sql", AdapterStanding::Resident).await;
    for idle in 0..3 {
        house.heard(idle, "sql", AdapterStanding::Absent).await;
    }
    assert_eq!(house.chats("sql", 12).await?, [house.pod(2)].into());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_every_engine_is_full_none_is_preferred() -> anyhow::Result<()> {
    let house = House::of_three(&["lora-residency"]).await?;
    for number in 0..3 {
        house.occupy(number, "sql", NO_END);
        house.heard(number, "law", AdapterStanding::Full).await;
    }
    let mut firsts = BTreeSet::new();
    for number in 0..64 {
        let record = house.explained("law", &format!("question {number}")).await?;
        let scores = &record["scores"][0]["scores"];
        assert_eq!(*scores, json!([20.0, 20.0, 20.0]), "{record}");
        firsts.insert(record["picks"][0].to_string());
    }
    assert_eq!(firsts.len(), 3, "ties are broken by chance: {firsts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_loads_the_adapter_is_avoided() -> anyhow::Result<()> {
    let slow = EngineConfig { adapter_load: FOR_EVER, ..engine(&["sql", "law"]) };
    let (second, third) = (engine(&["sql", "law"]), engine(&["sql", "law"]));
    let house = House::start(vec![slow, second, third], &["lora-residency"]).await?;
    house.occupy(0, "sql", NO_END);
    house.heard(0, "sql", AdapterStanding::Loading).await;
    house.heard(1, "sql", AdapterStanding::Absent).await;
    let pods = house.chats("sql", 12).await?;
    assert!(!pods.contains(&house.pod(0)), "{pods:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_do_not_steer_requests_of_the_base_model() -> anyhow::Result<()> {
    let house = House::of_three(&["lora-residency"]).await?;
    house.occupy(1, "sql", NO_END);
    house.heard(1, "sql", AdapterStanding::Resident).await;
    let record = house.explained(MODEL, "a question").await?;
    assert_eq!(record["scores"][0]["scores"], json!([null, null, null]), "{record}");
    assert_eq!(house.chats(MODEL, 64).await?.len(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_that_is_loaded_at_run_time_gets_its_requests() -> anyhow::Result<()> {
    let house = House::of_three(&["kvasir-cost", "lora-residency"]).await?;
    let (_, answer) = house.chat("late", "too early").await?;
    assert_eq!(answer.status(), 404, "no engine has it yet");
    let load = post("/v1/load_lora_adapter", json!({"lora_name": "late"}).to_string())?;
    assert_eq!(send(house.engines[1].address(), load).await?.status(), 200);
    let pod = house.pod(1);
    eventually("the router has read the engine's list", || {
        let listed =
            house.router.gateway.state.endpoints().into_iter().find(|status| status.id.to_string() == pod);
        let names = listed.and_then(|status| status.listed_models);
        names.is_some_and(|names| names.iter().any(|name| name == "late"))
    })
    .await;
    assert_eq!(house.chats("late", 8).await?, [house.pod(1)].into());
    Ok(())
}

/// What an adapter's requests leave in the caches is of no use to the base model, and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_and_its_base_model_share_no_credit() -> anyhow::Result<()> {
    let house = House::of_three(&["kvasir-cost"]).await?;
    let credit = |record: &Value| -> u64 {
        let candidates = record["candidates"].as_array().cloned().unwrap_or_default();
        candidates.iter().filter_map(|candidate| candidate["reusable_tokens"].as_u64()).sum()
    };
    for (first, others) in [(MODEL, ["sql", "law"]), ("sql", [MODEL, "law"])] {
        let text = format!("{first} asks first: {}", "all work and no play ".repeat(60));
        let (_, answer) = house.chat(first, &text).await?;
        assert_eq!(answer.status(), 200);
        let mut own = 0;
        for _ in 0..1000 {
            own = credit(&house.explained(first, &text).await?);
            if own >= 256 {
                break;
            }
        }
        assert!(own >= 256, "{first} has no credit for its own prompt");
        for other in others {
            let record = house.explained(other, &text).await?;
            assert_eq!(credit(&record), 0, "{other} has credit for what {first} left: {record}");
            let usage: Value = serde_json::from_slice(house.chat(other, &text).await?.1.body())?;
            let cached = &usage["usage"]["prompt_tokens_details"]["cached_tokens"];
            assert_eq!(cached.as_u64().unwrap_or(0), 0, "the engine shares nothing either");
        }
    }
    Ok(())
}
