//! An engine of a pair fails before the client has anything: the next pair does all of it anew, and the client sees one
//! whole answer.

use kvasir_mock_engine::{ConnectorKind, Fault, Role};
use kvasir_suite::router::MODEL;

use crate::placement::served;
use crate::site::{COMPLETIONS, Site, Sketch, completion, ids, is_whole, requests, streamed};

const REFUSAL: &str = r#"{"error":{"message":"an engine's own words","code":1}}"#;

fn status(code: u16) -> Fault {
    Fault::Status { code, body: REFUSAL.to_owned() }
}

/// Two groups, and a router that may try again whenever it wants to.
async fn two_groups(connector: ConnectorKind) -> anyhow::Result<Site> {
    Sketch::of(connector, 2).router(|settings| settings.limits.retry_budget = 1.0).build().await
}

/// Sends requests until the first group was asked; each answer must be whole.
async fn moves_on(site: &Site, what: &str) -> anyhow::Result<()> {
    for seed in 0..64 {
        let body = if seed % 2 == 0 { completion(seed, 50) } else { streamed(seed, 6) };
        let answer = site.answer(COMPLETIONS, body).await.map_err(|error| error.context(what.to_owned()))?;
        assert!(is_whole(answer.body()), "{what}: {:?}", answer.body());
        if seed > 2 && !site.groups[0].fabric.exchanges().is_empty() {
            break;
        }
    }
    assert!(!site.groups[0].fabric.exchanges().is_empty(), "{what}: the bad pair was never asked");
    site.is_clean().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_that_fails_moves_the_request_to_the_next_pair() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let mut faults = vec![status(503), status(429), status(502), Fault::ResetBeforeFirstByte];
        if connector != ConnectorKind::Sglang {
            // Of an SGLang pair the answer is the decode engine's, whatever the other one says after its work.
            faults.extend([Fault::ResetMidStream { after_events: 1 }, Fault::ShortBody]);
            faults.push(Fault::StatusAfterWork { code: 503, ms: 0 });
        }
        for fault in faults {
            let site = two_groups(connector).await?;
            site.groups[0].spoil_prefill(fault.clone()).await;
            moves_on(&site, &format!("{connector}, prefill {fault:?}")).await?;
            let successes =
                |role| site.groups[0].exchanges(role).iter().filter(|one| one.succeeded()).count();
            assert_eq!(successes(Role::Decode), 0, "{connector} {fault:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_that_refuses_moves_the_request_to_the_next_pair() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for fault in [status(503), status(429), status(502), Fault::ResetBeforeFirstByte] {
            let site = two_groups(connector).await?;
            site.groups[0].spoil_decode(fault.clone()).await;
            moves_on(&site, &format!("{connector}, decode {fault:?}")).await?;
            assert!(!site.groups[1].exchanges(Role::Prefill).is_empty(), "the next pair prefills anew");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_connections_costs_no_request() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for role in [Role::Prefill, Role::Decode] {
            let site = two_groups(connector).await?;
            match role {
                Role::Prefill => site.groups[0].spoil_prefill(Fault::RefuseConnections).await,
                _ => site.groups[0].spoil_decode(Fault::RefuseConnections).await,
            }
            for seed in 0..8 {
                let answer = site.answer(COMPLETIONS, completion(seed, 50)).await?;
                assert!(is_whole(answer.body()), "{connector} {role:?}");
            }
            site.is_clean().await;
            assert_eq!(served(&site, &site.groups[1].decodes[0]), 8);
        }
    }
    Ok(())
}

/// The group's other prefill engine takes over, also where there is one decode engine only.
#[tokio::test(flavor = "multi_thread")]
async fn another_prefill_engine_of_the_same_group_takes_over() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for fault in [Fault::RefuseConnections, status(503)] {
            let sketch = Sketch::of(connector, 1).each(2, 1);
            let site = sketch.router(|settings| settings.limits.retry_budget = 1.0).build().await?;
            let [bad, good] = &site.groups[0].prefills[..] else { anyhow::bail!("two engines") };
            bad.set_fault(fault.clone()).await;
            for seed in 0..8 {
                let answer = site.ask(COMPLETIONS, completion(seed, 50)).await?;
                assert_eq!(answer.status(), 200, "{connector} {fault:?}: {:?}", answer.body());
            }
            site.is_clean().await;
            assert!(served(&site, good) >= 8);
        }
    }
    Ok(())
}

/// vLLM's connectors: an answer without what the decode engine needs is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_answer_that_cannot_be_used_moves_the_request_on() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Mooncake] {
        for fault in [Fault::AnswerNoJson, Fault::NoTransferParams] {
            let site = two_groups(connector).await?;
            site.groups[0].spoil_prefill(fault.clone()).await;
            moves_on(&site, &format!("{connector}, prefill {fault:?}")).await?;
        }
    }
    Ok(())
}

/// RET-01: each engine of the next pair gets the whole body, at any size.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_goes_whole_to_the_next_pair() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let site = two_groups(connector).await?;
        site.groups[0].spoil_decode(status(503)).await;
        let filler = "x".repeat(2_000_000);
        let sent = format!(r#"{{"model":"{MODEL}","user":"{filler}","prompt":{}"#, ids(1, 50));
        for _ in 0..64 {
            assert!(is_whole(site.answer(COMPLETIONS, format!("{sent}}}")).await?.body()));
            if !site.groups[0].fabric.exchanges().is_empty() {
                break;
            }
        }
        for engine in site.groups.iter().flat_map(|group| group.engines()) {
            let got = requests(engine);
            assert!(!got.is_empty(), "{connector}: every engine was asked");
            assert!(got.iter().all(|request| request.body.starts_with(sent.as_bytes())), "{connector}");
        }
        site.is_clean().await;
    }
    Ok(())
}

/// D8: a refusal of the request is the request's own, whoever says it; one attempt, and the engine's words.
#[tokio::test(flavor = "multi_thread")]
async fn an_engines_own_error_passes_as_it_was_after_one_attempt() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for (role, code) in [
            (Role::Prefill, 400),
            (Role::Prefill, 422),
            (Role::Decode, 400),
            (Role::Decode, 404),
            (Role::Decode, 422),
            (Role::Decode, 500),
        ] {
            let site = two_groups(connector).await?;
            for group in &site.groups {
                match role {
                    Role::Prefill => group.spoil_prefill(status(code)).await,
                    _ => group.spoil_decode(status(code)).await,
                }
            }
            for stream in [false, true] {
                let body = if stream { streamed(1, 6) } else { completion(1, 50) };
                let answer = site.ask(COMPLETIONS, body).await?;
                assert_eq!(answer.status(), code, "{connector} {role:?}");
                assert_eq!(answer.body(), REFUSAL, "{connector} {role:?} {code}");
            }
            site.is_clean().await;
            let asked = site.exchanges(role).len();
            assert_eq!(asked, 2, "{connector} {role:?} {code}: one attempt for each request");
            if role == Role::Prefill && connector != ConnectorKind::Sglang {
                assert!(site.exchanges(Role::Decode).is_empty(), "{connector}: there was nothing to decode");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_pair_is_busy_the_engines_own_answer_goes_back() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        for role in [Role::Prefill, Role::Decode] {
            let site = two_groups(connector).await?;
            for group in &site.groups {
                let busy = Fault::BusyWithRetryAfter { code: 429, seconds: 7 };
                match role {
                    Role::Prefill => group.spoil_prefill(busy).await,
                    _ => group.spoil_decode(busy).await,
                }
            }
            let answer = site.ask(COMPLETIONS, completion(1, 50)).await?;
            assert_eq!(answer.status(), 429, "{connector} {role:?}: {:?}", answer.body());
            assert_eq!(answer.headers().get("retry-after").map(|value| value.as_bytes()), Some(&b"7"[..]));
            site.is_clean().await;
            assert_eq!(site.exchanges(role).len(), 2, "{connector} {role:?}: each pair once");
        }
    }
    Ok(())
}

/// A request that kills engines must not walk the fleet.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_kills_prefill_engines_is_given_up() -> anyhow::Result<()> {
    for connector in [ConnectorKind::Lmcache, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let sketch = Sketch::of(connector, 4).router(|settings| settings.limits.retry_budget = 1.0);
        let site = sketch.build().await?;
        for group in &site.groups {
            group.spoil_prefill(Fault::ResetBeforeFirstByte).await;
        }
        let answer = site.ask(COMPLETIONS, completion(1, 50)).await?;
        assert_eq!(answer.status(), 502, "{connector}: {:?}", answer.body());
        site.is_clean().await;
        assert_eq!(site.exchanges(Role::Prefill).len(), 2, "{connector}");
    }
    Ok(())
}

/// Engines of every kind fail now and then, while many clients ask: each has one whole answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_storm_of_failures_none_is_lost_and_none_doubled() -> anyhow::Result<()> {
    for connector in ConnectorKind::ALL {
        let sketch = Sketch::of(connector, 3).each(2, 2);
        let site = sketch
            .router(|settings| (settings.limits.retry_budget, settings.limits.max_attempts) = (1.0, 12))
            .build()
            .await?;
        // There may be as many retries as there were requests in the last seconds: so many first.
        let quiet: Vec<_> =
            (0..100).map(|seed| site.answer(COMPLETIONS, completion(1000 + seed, 20))).collect();
        for answer in futures_util::future::join_all(quiet).await {
            answer?;
        }
        site.is_clean().await;
        site.groups.iter().for_each(|group| group.fabric.clear_exchanges());
        for group in &site.groups[..2] {
            group.prefills[0].set_fault((status(503), 10)).await;
            group.prefills[1].set_fault((status(429), 10)).await;
            group.decodes[0].set_fault((status(503), 10)).await;
            group.decodes[1].set_fault((status(502), 10)).await;
        }
        let bodies =
            (0..120u32).map(|seed| if seed % 2 == 0 { completion(seed, 60) } else { streamed(seed, 6) });
        let asked: Vec<_> = bodies.map(|body| site.answer(COMPLETIONS, body)).collect();
        for answer in futures_util::future::join_all(asked).await {
            let answer = answer.map_err(|error| {
                let page = site.router.metrics_page();
                let denied = page.lines().filter(|line| line.starts_with("kvasir_retries"));
                error.context(format!("{connector}: {}", denied.collect::<Vec<_>>().join(", ")))
            })?;
            assert!(is_whole(answer.body()), "{connector}: {:?}", answer.body());
        }
        site.is_clean().await;
        let mut decoded = std::collections::BTreeMap::new();
        for exchange in site.exchanges(Role::Decode).iter().filter(|exchange| exchange.succeeded()) {
            *decoded.entry(exchange.prompt).or_insert(0) += 1;
        }
        assert_eq!(decoded.len(), 120, "{connector}");
        assert!(decoded.values().all(|count| *count == 1), "{connector}: {decoded:?}");
    }
    Ok(())
}
