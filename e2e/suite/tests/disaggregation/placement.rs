//! Who prefills and who decodes: the cache counts for the one, load for the other, and groups stay apart.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use kvasir_core::Completeness;
use kvasir_mock_engine::{ConnectorKind, Engine, Role};
use kvasir_suite::client::{Raw, post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::MODEL;

use crate::site::{COMPLETIONS, Group, Site, Sketch, cached, completion, is_whole, streamed, usage};

/// A completion of these token ids.
fn of_ids(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!(r#"{{"model":"{MODEL}","max_tokens":4,"prompt":[{}]}}"#, ids.join(","))
}

/// The engine that prefilled last.
fn last(site: &Site, role: Role) -> SocketAddr {
    site.exchanges(role).into_iter().max_by_key(|exchange| exchange.began).expect("somebody was asked").engine
}

/// Waits until the router knows what an engine holds.
async fn learned(site: &Site, engine: SocketAddr) {
    let all = || site.groups.iter().flat_map(|group| group.engines());
    let holds = all().find(|one| one.address() == engine).map_or(0, |one| one.stats().cached_blocks);
    eventually("the engine's blocks are known", || {
        let endpoints = site.router.gateway.state.endpoints();
        let url = format!("http://{engine}");
        let slot = endpoints.iter().find(|endpoint| endpoint.url == url).map(|endpoint| endpoint.slot);
        let stats = site.router.gateway.index.stats();
        let owner = stats.iter().find(|owner| Some(owner.slot) == slot);
        owner.is_some_and(|owner| owner.completeness == Completeness::Exact && owner.blocks >= holds)
    })
    .await;
}

/// PD-05: conversations that share a system prompt go on where they were computed.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_at_the_prefill_engine_that_has_it() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 1).each(4, 2).build().await?;
        let mut conversations: Vec<Vec<u32>> = (0..10)
            .map(|number| (1..=64).chain((0..200).map(|token| 1_000_000 * (number + 1) + token)).collect())
            .collect();
        let mut homes: Vec<SocketAddr> = Vec::new();
        // Apart by hand, as many at once would have spread.
        for (number, conversation) in conversations.iter().enumerate() {
            let prefill = &site.groups[0].prefills[number % 4];
            begin(connector, &site.groups[0], prefill, conversation).await?;
            homes.push(prefill.address());
        }
        for home in &homes {
            learned(&site, *home).await;
        }
        for turn in 2..=5u32 {
            for (number, conversation) in conversations.iter_mut().enumerate() {
                let held = conversation.len() as u64;
                conversation
                    .extend((0..40).map(|token| 1_000_000 * (number as u32 + 1) + turn * 1000 + token));
                let answer = site.answer(COMPLETIONS, of_ids(conversation)).await?;
                assert_eq!(last(&site, Role::Prefill), homes[number], "{connector}: turn {turn} of {number}");
                let cached = cached(&usage(answer.body()));
                assert!(cached >= Some(held / 16 * 16), "{connector}: {cached:?} of {held}");
                learned(&site, homes[number]).await;
            }
        }
        site.is_clean().await;
    }
    Ok(())
}

/// Has an engine compute a prompt without a router.
async fn begin(
    connector: ConnectorKind,
    group: &Group,
    prefill: &Engine,
    prompt: &[u32],
) -> anyhow::Result<()> {
    let with = |fields: &str| of_ids(prompt).replace("\"max_tokens\":4", fields);
    let fields = match connector {
        ConnectorKind::Nixl | ConnectorKind::Mooncake => {
            r#""max_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}"#
        }
        ConnectorKind::Sglang => r#""max_tokens":1,"bootstrap_room":ROOM"#,
        _ => r#""max_tokens":1"#,
    };
    let room = prompt.last().map_or_else(String::new, u32::to_string);
    let asked = send(prefill.address(), post(COMPLETIONS, with(&fields.replace("ROOM", &room)))?);
    let answer = if connector == ConnectorKind::Sglang {
        let fields = format!(r#""bootstrap_room":{room},"bootstrap_host":"{}""#, prefill.address().ip());
        tokio::join!(asked, send(group.decodes[0].address(), post(COMPLETIONS, with(&fields))?)).0
    } else {
        asked.await
    };
    anyhow::ensure!(answer?.status() == 200);
    Ok(())
}

/// Streams that have begun and go on for long.
async fn busy(site: &Site, count: u32) -> anyhow::Result<Vec<Raw>> {
    let mut streams = Vec::new();
    for number in 0..count {
        let mut stream = Raw::post(site.door(), COMPLETIONS, streamed(900 + number, 5000).as_bytes()).await?;
        anyhow::ensure!(stream.read().await?.is_some_and(|begun| begun.starts_with(b"HTTP/1.1 200")));
        streams.push(stream);
    }
    Ok(streams)
}

/// Prompts that one prefill engine holds are decoded by whoever is idle, though the other one has decoded them before.
#[tokio::test(flavor = "multi_thread")]
async fn decode_goes_by_load_whatever_is_cached_there() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let slow = |sketch: Sketch| {
            sketch
                .each(2, 2)
                .engines_that(Role::Decode, |config| config.decode_us_per_token = 20_000.0)
                // A scrape beside the end of a stream may find the one and not the other.
                .router(|settings| settings.scrape_interval = Duration::from_secs(3600))
        };
        let site = slow(Sketch::of(connector, 1)).build().await?;
        let streams = busy(&site, 4).await?;
        let decoding: Vec<usize> = site.groups[0].decodes.iter().map(|one| one.backlog().decoding).collect();
        assert_eq!(decoding, [2, 2], "{connector}: streams spread");
        drop(streams);
        site.is_clean().await;
        let first = streamed(1, 3);
        site.answer(COMPLETIONS, first.clone()).await?;
        let home = last(&site, Role::Prefill);
        learned(&site, home).await;
        let streams = busy(&site, 1).await?;
        let held = last(&site, Role::Decode);
        for _ in 0..3 {
            site.answer(COMPLETIONS, first.clone()).await?;
            assert_ne!(last(&site, Role::Decode), held, "{connector}: one decode engine is idle");
            assert_eq!(last(&site, Role::Prefill), home, "{connector}: one prefill engine has it");
        }
        drop(streams);
        site.is_clean().await;
    }
    Ok(())
}

/// Strict engines refuse what another group's engine gave out, and what they did not prefill themselves.
#[tokio::test(flavor = "multi_thread")]
async fn groups_are_never_mixed() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 3).build().await?;
        let asked: Vec<_> = (0..60).map(|seed| site.answer(COMPLETIONS, completion(seed, 50))).collect();
        for answer in futures_util::future::join_all(asked).await {
            assert!(is_whole(answer?.body()));
        }
        site.is_clean().await;
        for group in &site.groups {
            let prompts = |role| -> Vec<Option<u64>> {
                let mut prompts: Vec<_> = group.exchanges(role).iter().map(|one| one.prompt).collect();
                prompts.sort_unstable();
                prompts
            };
            assert_eq!(prompts(Role::Prefill), prompts(Role::Decode), "{connector}");
            assert!(!prompts(Role::Decode).is_empty(), "{connector}: every group gets some");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_hundred_at_once_none_is_lost_and_none_doubled() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let site = Sketch::of(connector, 2).each(2, 2).build().await?;
        let bodies =
            (0..200u32).map(|seed| if seed % 2 == 0 { completion(seed, 60) } else { streamed(seed, 6) });
        let asked: Vec<_> = bodies.map(|body| site.answer(COMPLETIONS, body)).collect();
        let mut ids = HashSet::new();
        for answer in futures_util::future::join_all(asked).await {
            let answer = answer?;
            assert!(is_whole(answer.body()), "{connector}: {:?}", answer.body());
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            let id = text.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next());
            ids.insert(id.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no id"))?);
        }
        assert_eq!(ids.len(), 200, "{connector}: every client has an answer of its own");
        site.is_clean().await;
        let counts = site.by_prompt();
        assert_eq!(counts.len(), 200, "{connector}");
        assert!(counts.values().all(|count| *count == (1, 1)), "{connector}: {counts:?}");
        assert!(site.exchanges(Role::Both).is_empty());
        let used = |role| site.exchanges(role).iter().map(|one| one.engine).collect::<HashSet<_>>().len();
        assert_eq!((used(Role::Prefill), used(Role::Decode)), (4, 4), "{connector}: all engines work");
    }
    Ok(())
}

/// Requests that an engine got.
pub fn served(site: &Site, engine: &Engine) -> usize {
    let all = site.groups.iter().flat_map(|group| group.fabric.exchanges());
    all.filter(|exchange| exchange.engine == engine.address()).count()
}
