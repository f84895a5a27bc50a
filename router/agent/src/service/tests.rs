//! The whole agent beside a fake engine, with a real Redis.

use std::time::{Duration, Instant};

use clap::{Args as _, Command, FromArgMatches as _};
use kvasir_coordination::key;
use kvasir_coordination::testing::TestServer;
use kvasir_core::EndpointId;
use serde_json::Value;

use super::*;
use crate::cli::AgentArgs;
use crate::testing::{FakeEngine, PATIENCE, eventually, get};

/// A running agent.
struct Agent {
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    async fn start(redis_port: u16, engine: &FakeEngine, more: &[&str]) -> Self {
        let (redis, url) = (format!("redis://127.0.0.1:{redis_port}"), engine.url());
        let flags = [
            "agent",
            "--redis",
            &redis,
            "-B",
            &url,
            "-I",
            "pod.ns",
            "-H",
            "127.0.0.1",
            "-P",
            "0",
            "--scrape-interval",
            "100ms",
            "--lease",
            "2s",
        ];
        let command = AgentArgs::augment_args(Command::new("agent"));
        let resume: &[&str] =
            if more.contains(&"--resume-interval") { &[] } else { &["--resume-interval", "100ms"] };
        let matches = command.try_get_matches_from(flags.iter().chain(resume).chain(more)).unwrap();
        let config = AgentConfig::of(&AgentArgs::from_arg_matches(&matches).unwrap()).unwrap();
        let service = Service::bind(config).await.unwrap();
        let (address, stop) = (service.address(), CancellationToken::new());
        let task = tokio::spawn(service.serve(stop.clone()));
        Self { address, stop, task }
    }

    async fn status(&self) -> Value {
        serde_json::from_str(&get(self.address, "/status").await.1).unwrap()
    }

    /// The only owner's line.
    async fn owner(&self) -> Value {
        self.status().await["engines"][0]["owners"][0].clone()
    }

    async fn ready(&self) {
        eventually("ready", async || get(self.address, "/readyz").await.0 == 200).await;
    }

    /// Ends it as SIGTERM does, within five seconds.
    async fn end(self) {
        let began = Instant::now();
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// Ends it as SIGKILL does.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn meta(engine: &FakeEngine) -> String {
    key::meta(&key::owner(&EndpointId::new("ns", "pod", engine.port(), 0)))
}

/// The owner's blocks, as routers read them.
async fn published(redis: &TestServer, engine: &FakeEngine) -> String {
    redis.ask(&["HGET", &meta(engine), "blocks"]).await.concat()
}

#[tokio::test]
async fn what_an_engine_holds_is_published_and_followed() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.store(0..10);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    agent.ready().await;
    eventually("the snapshot is there", async || published(&redis, &engine).await == "10").await;
    engine.store(10..12);
    engine.remove(0..1);
    eventually("changes are published", async || {
        let owner = agent.owner().await;
        owner["blocks"] == 11 && owner["publisher"]["blocks"] == 11 && owner["publisher"]["lagMs"] == 0
    })
    .await;
    let owner = agent.owner().await;
    assert_eq!(owner["owner"], format!("ns/pod:{}#0", engine.port()));
    assert_eq!((&owner["completeness"], &owner["link"]), (&"exact".into(), &"following".into()));
    assert_eq!((&owner["lastSequence"], &owner["blockSize"]), (&2.into(), &16.into()));
    assert_eq!(agent.status().await["engines"][0]["model"], "served");
    let page = get(agent.address, "/metrics").await.1;
    for line in [
        format!(
            "kvasir_agent_blocks{{model=\"served\",owner=\"ns/pod:{}#0\",completeness=\"exact\"}} 11",
            engine.port()
        ),
        format!("kvasir_agent_last_sequence{{owner=\"ns/pod:{}#0\"}} 2", engine.port()),
        format!("kvasir_agent_publisher_state{{owner=\"ns/pod:{}#0\",state=\"following\"}} 1", engine.port()),
        "kvasir_agent_engine_up{pod=\"pod.ns\"} 1".to_owned(),
        "kvasir_agent_redis_up 1".to_owned(),
    ] {
        assert!(page.contains(&line), "{line}\n{page}");
    }
    let owners = key::owners(key::stream_of(&key::owner(&EndpointId::new("ns", "pod", engine.port(), 0))));
    assert_eq!(redis.ask(&["ZCARD", &owners]).await, ["1"]);
    agent.end().await;
    assert_eq!(published(&redis, &engine).await, "11", "what the engine holds outlives its agent");
}

#[tokio::test]
async fn an_engine_that_restarts_is_empty_at_once() {
    let redis = TestServer::start().await;
    let mut engine = FakeEngine::start().await;
    engine.store(0..10);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("published", async || agent.owner().await["publisher"]["blocks"] == 10).await;
    engine.restart();
    engine.store(50..52);
    eventually("the old blocks are gone", async || {
        let owner = agent.owner().await;
        owner["resets"] == 1 && owner["blocks"] == 2 && owner["publisher"]["blocks"] == 2
    })
    .await;
    eventually("all is known again", async || agent.owner().await["completeness"] == "exact").await;
    agent.end().await;
}

#[tokio::test]
async fn an_agent_that_restarts_goes_on_where_it_was() {
    for killed in [false, true] {
        // An agent that ends in order saves what came since the last time.
        let interval = if killed { "100ms" } else { "1h" };
        let redis = TestServer::start().await;
        let engine = FakeEngine::start().await;
        for block in 0..20 {
            engine.store(block..block + 1);
        }
        let first = Agent::start(redis.port(), &engine, &["--resume-interval", interval]).await;
        eventually("a state is saved", async || {
            redis.ask(&["HEXISTS", &meta(&engine), "resume"]).await == ["1"]
        })
        .await;
        let saved = redis.ask(&["HGET", &meta(&engine), "resume"]).await;
        engine.store(20..25);
        eventually("the next one too", async || {
            let newer = redis.ask(&["HGET", &meta(&engine), "resume"]).await != saved;
            first.owner().await["publisher"]["blocks"] == 25 && (newer || !killed)
        })
        .await;
        if killed {
            first.kill().await;
        } else {
            first.end().await;
        }
        // The engine went on meanwhile, and no longer has its first batches.
        engine.store(25..30);
        engine.store(30..31);
        engine.keep_for_replay(3);
        let second = Agent::start(redis.port(), &engine, &[]).await;
        eventually("it goes on", async || second.owner().await["blocks"] == 31).await;
        let owner = second.owner().await;
        assert_eq!(
            (&owner["resume"], &owner["completeness"]),
            (&"taken".into(), &"exact".into()),
            "{owner:#}"
        );
        second.end().await;
    }
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_waited_for() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.set_up(false);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("it says so", async || {
        let (code, body) = get(agent.address, "/readyz").await;
        code == 503 && body.contains("is the engine up?")
    })
    .await;
    assert_eq!(get(agent.address, "/health").await.0, 200);
    engine.set_sources("{}");
    engine.set_up(true);
    eventually("no events", async || agent.status().await["engines"][0]["phase"] == "no_events").await;
    let (code, body) = get(agent.address, "/readyz").await;
    assert!(code == 503 && body.contains("--kv-events-config"), "{body}");
    agent.end().await;
}

#[tokio::test]
async fn a_sleeping_engine_holds_nothing() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.store(0..4);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("published", async || agent.owner().await["publisher"]["blocks"] == 4).await;
    engine.set_asleep(true);
    eventually("forgotten", async || agent.owner().await["publisher"]["blocks"] == 0).await;
    assert_eq!(agent.status().await["engines"][0]["asleep"], true);
    agent.end().await;
}

/// An agent that is started while the engine sleeps reads of its past by replay.
#[tokio::test]
async fn an_engine_that_slept_before_its_agent_came_holds_nothing() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.store(0..4);
    engine.set_asleep(true);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("published", async || published(&redis, &engine).await == "0").await;
    eventually("forgotten", async || {
        let owner = agent.owner().await;
        owner["lastSequence"] == Value::Null && owner["blocks"] == 0 && owner["resets"] == 1
    })
    .await;
    engine.set_asleep(false);
    engine.store(4..6);
    eventually("what it holds now is published", async || published(&redis, &engine).await == "2").await;
    agent.end().await;
}

/// A living agent that does not hear its engine has nothing to vouch for.
#[tokio::test]
async fn an_engine_that_is_not_heard_lapses_until_it_is_again() {
    let redis = TestServer::start().await;
    let mut engine = FakeEngine::start().await;
    engine.store(0..4);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("published", async || published(&redis, &engine).await == "4").await;
    let owner = key::owner(&EndpointId::new("ns", "pod", engine.port(), 0));
    let lease_left = async || {
        let owners = key::owners(key::stream_of(&owner));
        let end = redis.ask(&["ZSCORE", &owners, &owner]).await.concat().parse::<f64>().unwrap_or_default();
        let now = redis.ask(&["TIME"]).await;
        end - now[0].parse::<f64>().unwrap() * 1e3 - now[1].parse::<f64>().unwrap() / 1e3
    };
    assert!(lease_left().await > 0.0);
    engine.cut_off();
    let cut = Instant::now();
    eventually("the lease ends", async || lease_left().await <= 0.0).await;
    assert!(cut.elapsed() >= Duration::from_secs(2), "a short break is no silence: {:?}", cut.elapsed());
    // Meanwhile the engine goes on.
    engine.store(4..6);
    engine.reconnect();
    eventually("it is vouched for again", async || lease_left().await > 0.0).await;
    eventually("and whole", async || published(&redis, &engine).await == "6").await;
    agent.end().await;
}

#[tokio::test]
async fn a_redis_that_comes_late_gets_everything() {
    let mut redis = TestServer::start().await;
    redis.kill();
    let engine = FakeEngine::start().await;
    engine.store(0..6);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    eventually("followed without Redis", async || agent.owner().await["blocks"] == 6).await;
    let (code, body) = get(agent.address, "/readyz").await;
    assert!(code == 503 && body.contains("Redis was not reached"), "{body}");
    redis.restart().await;
    eventually("published", async || published(&redis, &engine).await == "6").await;
    agent.ready().await;
    // And once more, emptied: what was ready stays ready.
    redis.kill();
    eventually("noticed", async || agent.status().await["redis"]["connected"] == false).await;
    assert_eq!(get(agent.address, "/readyz").await.0, 200);
    redis.restart().await;
    eventually("published anew", async || published(&redis, &engine).await == "6").await;
    agent.end().await;
}

#[tokio::test]
async fn an_agent_ends_in_time_whatever_is_missing() {
    let mut redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.store(0..4);
    let agent = Agent::start(redis.port(), &engine, &["--layout", "both"]).await;
    eventually("published", async || agent.owner().await["publisher"]["blocks"] == 4).await;
    engine.store(4..8);
    redis.pause();
    agent.end().await;
    redis.resume();
    redis.kill();
    engine.set_up(false);
    let agent = Agent::start(redis.port(), &engine, &[]).await;
    agent.end().await;
}

/// kthena's key of the block with the ids 0 to 15, and of the one with 16 to 31.
const FIRST: &str = "matrix:kv:block:alias@6473494984593326032";
const SECOND: &str = "matrix:kv:block:alias@3036027678049585822";

async fn owned(redis: &TestServer, key: &str) -> bool {
    redis.ask(&["HEXISTS", key, "pod.ns"]).await == ["1"]
}

#[tokio::test]
async fn kthenas_layout_is_written_beside_ours() {
    let redis = TestServer::start().await;
    let mut engine = FakeEngine::start().await;
    // What an earlier life of the pod left, what another pod owns, and what is nobody's business.
    redis.ask(&["HSET", "matrix:kv:block:alias@77", "pod.ns", "1", "other.ns", "1"]).await;
    redis.ask(&["SET", "vllm:kv:block:pod.ns@99", "77"]).await;
    redis.ask(&["HSET", "matrix:kv:block:served@77", "pod.ns", "1"]).await;
    engine.store(0..2);
    let agent = Agent::start(redis.port(), &engine, &["--layout", "both", "--model", "alias"]).await;
    eventually("written", async || owned(&redis, FIRST).await && owned(&redis, SECOND).await).await;
    eventually("mapped", async || {
        redis.ask(&["GET", "vllm:kv:block:pod.ns@1"]).await == ["6473494984593326032"]
    })
    .await;
    let stamp: u64 = redis.ask(&["HGET", FIRST, "pod.ns"]).await[0].parse().unwrap();
    assert!(stamp > 1_600_000_000, "seconds since 1970: {stamp}");
    eventually("what was stale is gone", async || {
        !owned(&redis, "matrix:kv:block:alias@77").await
            && redis.ask(&["EXISTS", "vllm:kv:block:pod.ns@99"]).await == ["0"]
    })
    .await;
    assert_eq!(redis.ask(&["HGET", "matrix:kv:block:alias@77", "other.ns"]).await, ["1"]);
    assert!(owned(&redis, "matrix:kv:block:served@77").await, "of another model");
    eventually("native keys have the served name", async || published(&redis, &engine).await == "2").await;
    assert_eq!(redis.ask(&["HGET", &meta(&engine), "model"]).await, ["served"]);

    // Block 0 once more under another name, from another prompt: one of the two removed changes nothing.
    engine.store_as(0, 500);
    engine.remove(0..1);
    eventually("the name is gone", async || redis.ask(&["EXISTS", "vllm:kv:block:pod.ns@1"]).await == ["0"])
        .await;
    assert!(owned(&redis, FIRST).await);
    engine.remove(500..501);
    eventually("the last one is gone", async || !owned(&redis, FIRST).await).await;
    assert!(owned(&redis, SECOND).await);

    engine.restart();
    engine.store(0..1);
    eventually("the new life is written", async || {
        owned(&redis, FIRST).await && !owned(&redis, SECOND).await
    })
    .await;
    let line = agent.status().await["kthena"][0].clone();
    assert_eq!((&line["model"], &line["keys"]), (&"alias".into(), &1.into()));
    let page = get(agent.address, "/metrics").await.1;
    assert!(page.contains("kvasir_agent_kthena_keys{pod=\"pod.ns\",model=\"alias\"} 1"), "{page}");
    agent.end().await;
    assert!(owned(&redis, FIRST).await, "what the engine holds outlives its agent");
}

#[tokio::test]
async fn a_restarted_agent_takes_no_warm_block_for_stale() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    for block in 0..10 {
        engine.store(block..block + 1);
    }
    let flags = ["--layout", "both", "--model", "alias"];
    let first = Agent::start(redis.port(), &engine, &flags).await;
    eventually("saved", async || {
        redis.ask(&["HEXISTS", &meta(&engine), "resume"]).await == ["1"]
            && first.owner().await["blocks"] == 10
    })
    .await;
    eventually("written", async || first.status().await["kthena"][0]["pending"] == 0).await;
    first.end().await;
    let before = redis.calls("hdel").await;
    engine.keep_for_replay(1);
    engine.remove(1..2);
    let second = Agent::start(redis.port(), &engine, &flags).await;
    eventually("the removal is written", async || !owned(&redis, SECOND).await).await;
    eventually("gone through", async || {
        let line = second.status().await["kthena"][0].clone();
        line["reconciling"] == false && line["pending"] == 0 && line["keys"] == 9
    })
    .await;
    assert!(owned(&redis, FIRST).await);
    let line = second.status().await["kthena"][0].clone();
    assert_eq!(
        (&line["unknownRemovals"], second.owner().await["resume"].as_str()),
        (&0.into(), Some("taken"))
    );
    assert!(redis.calls("hdel").await > before, "the removal");
    assert_eq!(redis.calls("keys").await, 0);
    second.end().await;
}

#[tokio::test]
async fn kthenas_layout_alone_leaves_ours_out() {
    let redis = TestServer::start().await;
    let engine = FakeEngine::start().await;
    engine.store(0..2);
    let agent = Agent::start(redis.port(), &engine, &["--layout", "kthena", "--model", "alias"]).await;
    eventually("written", async || owned(&redis, FIRST).await).await;
    assert_eq!(redis.ask(&["EXISTS", &meta(&engine)]).await, ["0"]);
    assert_eq!(agent.owner().await["publisher"], Value::Null);
    agent.ready().await;
    agent.end().await;
}
