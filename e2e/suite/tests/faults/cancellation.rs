//! Clients that leave: the engine is told at once, and no count stays behind.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kvasir_suite::client::post;
use kvasir_suite::eventually;
use kvasir_suite::h2c::H2c;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, json_answer, stream_head};
use kvasir_suite::socket::Socket;

const EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";

fn chat(stream: bool) -> String {
    format!(r#"{{"model":"{MODEL}","stream":{stream},"messages":[]}}"#)
}

/// CAN-01, on HTTP/2: a stream that is reset, and a connection that is closed, in a silent prefill and in a stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_on_http_2_is_noticed_at_once() -> anyhow::Result<()> {
    let silent = vec![Step::Hold];
    let streaming = vec![Step::Send(stream_head()), Step::Send(chunk(EVENT)), Step::Hold];
    for (script, stream, whole_connection) in [
        (silent.clone(), true, false),
        (silent.clone(), false, false),
        (silent, true, true),
        (streaming.clone(), true, false),
        (streaming, true, true),
    ] {
        let speaks = script.len() > 1;
        let engine = Scripted::start(script).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let client = H2c::connect(router.inference).await?;
        let mut asking = Some(Box::pin(client.begin(post("/v1/chat/completions", chat(stream))?)));
        let mut answer = None;
        if speaks && let Some(asking) = asking.take() {
            let mut begun = asking.await?;
            assert!(begun.body_mut().frame().await.is_some_and(|frame| frame.is_ok()));
            answer = Some(begun);
        }
        if let Some(asking) = &mut asking {
            tokio::select! {
                _ = asking => anyhow::bail!("a silent engine has answered"),
                () = eventually("the engine has it", || engine.arrived().len() == 1) => {}
            }
        }
        let left = Instant::now();
        drop(asking);
        if whole_connection {
            drop(client);
            eventually("the engine sees it leave", || engine.left() == 1).await;
            drop(answer);
        } else {
            drop(answer);
            eventually("the engine sees it leave", || engine.left() == 1).await;
        }
        assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
        let cancelled =
            format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"client_cancelled\"}}");
        eventually("it is counted as cancelled", || router.metric(&cancelled) == Some(1.0)).await;
    }
    Ok(())
}

/// A sequence that jumps about, for phases that differ from run to run of the loop only.
fn jump(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// One client that leaves at a moment that `seed` chooses: inside its request, before an answer, or inside one.
async fn abort(router: std::net::SocketAddr, mut seed: u64) -> anyhow::Result<()> {
    let mut client = Socket::open(router).await?;
    let body = chat(jump(&mut seed).is_multiple_of(2));
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    match jump(&mut seed) % 4 {
        0 => client.say(&request.as_bytes()[..jump(&mut seed) % request.len()]).await?,
        1 => {
            client.say(request.as_bytes()).await?;
            // How far the router gets meanwhile is chance.
            for _ in 0..jump(&mut seed) % 200 {
                tokio::task::yield_now().await;
            }
        }
        _ => {
            client.say(request.as_bytes()).await?;
            let wait = Duration::from_millis((jump(&mut seed) % 40) as u64);
            let _ = tokio::time::timeout(wait, client.hear_until(b"\"1\"")).await;
        }
    }
    Ok(())
}

/// CAN-02.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_aborts_at_any_moment_leave_no_count_behind() -> anyhow::Result<()> {
    let silent = Scripted::start(vec![Step::Hold]).await?;
    let stalls =
        Scripted::start(vec![Step::Send(stream_head()), Step::Send(chunk(EVENT)), Step::Hold]).await?;
    let busy = vec![Step::Send(json_answer("503 Service Unavailable", "{}")), Step::Again];
    let busy = Scripted::start(busy).await?;
    let mut settings = settings(&[silent.url(), stalls.url(), busy.url()])?;
    settings.limits.retry_budget = 1.0;
    let router = Router::start(settings).await?;
    let to = router.inference;
    let aborted: Vec<_> = (0..600).map(|seed| tokio::spawn(abort(to, seed))).collect();
    for one in aborted {
        one.await??;
    }
    let gauges = [
        "kthena_router_active_requests",
        "kthena_router_active_downstream_requests",
        "kthena_router_active_upstream_requests",
        "kvasir_buffered_bytes",
    ];
    let nobody = || {
        let endpoints = router.gateway.state.endpoints();
        let idle = endpoints.iter().all(|endpoint| {
            (endpoint.load.in_flight, endpoint.load.prefill_tokens, endpoint.load.decoding) == (0, 0, 0)
        });
        idle && gauges.iter().all(|gauge| router.metric(gauge).is_none_or(|number| number == 0.0))
            && router.gateway.readiness.inside() == 0
    };
    eventually("every count is back at zero", nobody).await;
    assert!(!silent.arrived().is_empty() && !stalls.arrived().is_empty() && !busy.arrived().is_empty());
    eventually("the silent engine sees them all leave", || silent.left() == silent.arrived().len()).await;
    Ok(())
}
