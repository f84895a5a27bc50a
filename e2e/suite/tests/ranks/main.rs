//! Data-parallel ranks: caches and queues of their own behind one address.

#![expect(clippy::expect_used, reason = "a test that cannot be set up must fail loudly")]

mod front;

use std::collections::BTreeMap;
use std::time::Duration;

use kvasir_core::{EngineKind, EngineSample};
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use serde_json::{Value, json};

use front::Front;

struct House {
    front: Front,
    router: Router,
}

impl House {
    async fn start(engine: EngineKind) -> anyhow::Result<Self> {
        let front = Front::start(engine, 2).await?;
        let mut settings = settings(&[front.url()])?;
        settings.scrape_interval = Duration::from_millis(50);
        settings.models[0].engine = engine;
        settings.models[0].endpoints[0].ranks = 2;
        Ok(Self { router: Router::start(settings).await?, front })
    }

    fn id(&self, rank: usize) -> String {
        let rank = if rank == 0 { String::new() } else { format!("#{rank}") };
        format!("default/{}{rank}", self.front.address)
    }

    /// Which endpoint the router says a chat went to, and the tokens that it found cached.
    async fn chat(&self, text: &str) -> anyhow::Result<(String, u64)> {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2});
        let answer = send(self.router.inference, post("/v1/chat/completions", body.to_string())?).await?;
        assert_eq!(answer.status(), 200, "{:?}", answer.body());
        let endpoint = answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok());
        let endpoint = endpoint.unwrap_or_default().to_owned();
        let answer: Value = serde_json::from_slice(answer.body())?;
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        Ok((endpoint, cached))
    }

    /// The last sample of each endpoint.
    fn samples(&self) -> BTreeMap<String, EngineSample> {
        let all = self.router.gateway.state.endpoints().into_iter();
        all.filter_map(|status| Some((status.id.to_string(), status.load.sample?))).collect()
    }

    /// Gives a rank, past the router, `count` requests that do not end.
    fn occupy(&self, rank: usize, count: usize) {
        let body = json!({
            "model": MODEL, "messages": [{"role": "user", "content": "x"}],
        });
        for _ in 0..count {
            let (to, request) =
                (self.front.ranks[rank].address(), post("/v1/chat/completions", body.to_string()));
            tokio::spawn(async move { send(to, request.expect("a good path")).await });
        }
    }
}

fn prompt(number: usize) -> String {
    format!("document {number}: {}", "a rank knows its own blocks only ".repeat(40))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_goes_back_to_the_rank_that_holds_it() -> anyhow::Result<()> {
    let house = House::start(EngineKind::Vllm).await?;
    let mut holders = Vec::new();
    for number in 0..24 {
        holders.push(house.chat(&prompt(number)).await?.0);
    }
    for rank in 0..2 {
        assert!(holders.contains(&house.id(rank)), "rank {rank} was never chosen: {holders:?}");
    }
    for (number, holder) in holders.iter().enumerate() {
        let (endpoint, cached) = house.chat(&format!("{} and then?", prompt(number))).await?;
        assert_eq!((&endpoint, cached > 200), (holder, true), "document {number}: {cached} cached");
    }
    let asked = house.front.asked();
    assert_eq!(asked.len(), 48);
    for (asked, holder) in asked.iter().zip(holders.iter().chain(&holders)) {
        let rank = usize::from(*holder == house.id(1));
        assert_eq!(*asked, Some(rank.to_string()), "the engine is told which rank");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rank_has_its_own_numbers() -> anyhow::Result<()> {
    let house = House::start(EngineKind::Vllm).await?;
    house.occupy(0, 6);
    let running = |rank| house.samples().get(&house.id(rank)).map(|sample| sample.running);
    eventually("rank 0 runs all six", || running(0) == Some(6) && running(1) == Some(0)).await;
    for number in 0..12 {
        let (endpoint, _) = house.chat(&format!("short question {number}")).await?;
        assert_eq!(endpoint, house.id(1), "rank 0 is busy");
    }
    Ok(())
}

/// SGLang's own balancer chooses: nothing is pinned, and each rank counts with the mean of the engine.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_that_cannot_be_pinned_share_their_numbers() -> anyhow::Result<()> {
    let house = House::start(EngineKind::Sglang).await?;
    house.occupy(0, 6);
    let running = |rank| house.samples().get(&house.id(rank)).map(|sample| sample.running);
    eventually("half of six at each rank", || running(0) == Some(3) && running(1) == Some(3)).await;
    for number in 0..4 {
        house.chat(&prompt(number)).await?;
    }
    assert_eq!(house.front.asked(), vec![None; 4]);
    let turns =
        house.front.ranks.iter().map(|rank| rank.requests().iter().filter(|r| r.method == "POST").count());
    assert!(turns.min() >= Some(2), "the engine's turns reach both ranks");
    Ok(())
}
