//! Streams are relayed byte-true as they arrive, hundreds at once, and a client that leaves is noticed at once.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use kvasir_suite::client::{Raw, post, send};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, last_chunk, stream_head};
use kvasir_suite::{GUARD, eventually};

/// Events with every kind of line end, comments, multi-byte text, and usage at the end.
const EVENTS: &str = ": ping\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\u{e9} \u{1f600} \u{4f60}\"}}]}\n\n\
                      event: x\nid: 1\ndata:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n\
                      data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n\
                      data: [DONE]\n\n";

fn body(usage: bool) -> String {
    let options = if usage { r#","stream_options":{"include_usage":true}"# } else { "" };
    format!(r#"{{"model":"{MODEL}","stream":true{options},"messages":[]}}"#)
}

/// What a client must see that did not ask for usage: the usage event gone, whole.
fn without_usage() -> String {
    let from = EVENTS.find("data: {\"choices\":[],").unwrap_or_default();
    let to = EVENTS.find("data: [DONE]").unwrap_or_default();
    format!("{}{}", &EVENTS[..from], &EVENTS[to..])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_byte_true_for_every_split() -> anyhow::Result<()> {
    let bytes = EVENTS.as_bytes();
    for split in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(split);
        let mut script = vec![Step::Send(stream_head())];
        script.extend(
            [head, tail].into_iter().filter(|part| !part.is_empty()).map(|part| Step::Send(chunk(part))),
        );
        script.extend([Step::Send(last_chunk()), Step::Again]);
        let engine = Scripted::start(script).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let asked = send(router.inference, post("/v1/chat/completions", body(true))?).await?;
        assert_eq!(asked.body(), EVENTS, "split at {split}");
        assert_eq!(
            engine.arrived().first().map(|a| a.body.clone()),
            Some(Bytes::from(body(true))),
            "asked: untouched"
        );
        let silent = send(router.inference, post("/v1/chat/completions", body(false))?).await?;
        assert_eq!(silent.body(), &without_usage(), "split at {split}, usage not asked for");
        let tokens = format!("kthena_router_tokens_total{{backend_name=\"default/{MODEL}\"");
        eventually("usage of both is counted", || {
            router
                .metrics_page()
                .lines()
                .any(|line| line.starts_with(&tokens) && line.contains("\"input\"") && line.ends_with(" 14"))
        })
        .await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_a_chunk_is_byte_true() -> anyhow::Result<()> {
    let mut script = vec![Step::Send(stream_head())];
    script.extend(EVENTS.as_bytes().iter().map(|byte| Step::Send(chunk(&[*byte]))));
    script.push(Step::Send(last_chunk()));
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let answer = send(router.inference, post("/v1/chat/completions", body(false))?).await?;
    assert_eq!(answer.body(), &without_usage());
    assert_eq!(
        answer.headers().get("content-type").and_then(|v| v.to_str().ok()),
        Some("text/event-stream; charset=utf-8")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_pass_on_before_the_next_one_is_made() -> anyhow::Result<()> {
    let first = b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";
    let script = vec![
        Step::Send(stream_head()),
        Step::Send(chunk(first)),
        Step::Wait,
        Step::Send(chunk(b"data: [DONE]\n\n")),
        Step::Send(last_chunk()),
    ];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Raw::post(router.inference, "/v1/chat/completions", body(false).as_bytes()).await?;
    let mut seen = Vec::new();
    while !seen.windows(first.len()).any(|window| window == first) {
        let next = tokio::time::timeout(GUARD, client.read()).await??;
        seen.extend_from_slice(&next.expect("the stream is open"));
    }
    engine.proceed();
    while !seen.ends_with(b"0\r\n\r\n") {
        let next = tokio::time::timeout(GUARD, client.read()).await??;
        seen.extend_from_slice(&next.expect("the stream is open"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_hundred_streams_run_at_once() -> anyhow::Result<()> {
    const STREAMS: usize = 500;
    let script = vec![
        Step::Send(stream_head()),
        Step::Send(chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n")),
        Step::Wait,
        Step::Send(chunk(b"data: [DONE]\n\n")),
        Step::Send(last_chunk()),
        Step::Again,
    ];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let request = body(false);
    let clients =
        (0..STREAMS).map(|_| Raw::post(router.inference, "/v1/chat/completions", request.as_bytes()));
    let mut clients = try_join_all(clients).await?;
    eventually("all have arrived", || engine.arrived().len() == STREAMS).await;
    assert_eq!(router.metric("kthena_router_active_requests"), Some(STREAMS as f64));
    for _ in 0..STREAMS {
        engine.proceed();
        tokio::task::yield_now().await;
    }
    // `proceed` keeps one permit only: go on giving until every stream has ended.
    let finished = try_join_all(clients.iter_mut().map(|client| async {
        let mut all = Vec::new();
        while !all.ends_with(b"0\r\n\r\n") {
            match tokio::time::timeout(GUARD, async {
                loop {
                    tokio::select! {
                        read = client.read() => return read,
                        () = tokio::time::sleep(Duration::from_millis(1)) => engine.proceed(),
                    }
                }
            })
            .await??
            {
                Some(bytes) => all.extend_from_slice(&bytes),
                None => anyhow::bail!("a stream was cut"),
            }
        }
        Ok(all)
    }))
    .await?;
    assert!(finished.iter().all(|all| all.windows(6).any(|window| window == b"[DONE]")));
    eventually("every counter is back at zero", || {
        router.metric("kthena_router_active_requests") == Some(0.0)
            && router.gateway.state.endpoints().iter().all(|endpoint| endpoint.load.in_flight == 0)
    })
    .await;
    Ok(())
}

/// A client that leaves must be seen by the engine within 100 ms; the guard is ten times that.
async fn leaves(script: Vec<Step>, read_first: bool) -> anyhow::Result<()> {
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Raw::post(router.inference, "/v1/chat/completions", body(false).as_bytes()).await?;
    eventually("the request arrives", || engine.arrived().len() == 1).await;
    if read_first {
        client.read().await?;
    }
    let left = Instant::now();
    drop(client);
    eventually("the engine sees it leave", || engine.left() == 1).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    let cancelled =
        format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"client_cancelled\"}}");
    eventually("it is counted as cancelled", || router.metric(&cancelled) == Some(1.0)).await;
    let endpoints = router.gateway.state.endpoints();
    assert!(
        endpoints.iter().all(|endpoint| endpoint.load.in_flight == 0 && endpoint.load.prefill_tokens == 0)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_silent_prefill_is_noticed() -> anyhow::Result<()> {
    leaves(vec![Step::Hold], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_mid_stream_is_noticed() -> anyhow::Result<()> {
    leaves(vec![Step::Send(stream_head()), Step::Send(chunk(b"data: {}\n\n")), Step::Hold], true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_reports_an_error_is_no_success() -> anyhow::Result<()> {
    let events = b"data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let engine =
        Scripted::start(vec![Step::Send(stream_head()), Step::Send(chunk(events)), Step::Send(last_chunk())])
            .await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let answer = send(router.inference, post("/v1/chat/completions", body(false))?).await?;
    assert_eq!(answer.body().as_ref(), events);
    let failed = format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"engine_error\"}}");
    eventually("it is counted as the engine's error", || router.metric(&failed) == Some(1.0)).await;
    Ok(())
}
