//! What is alive in the whole process after many requests is what was alive after few.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicIsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_suite::client::post;
use kvasir_suite::router::{MODEL, Router, settings};
use tokio::net::TcpStream;

/// The system's allocator, with a count of what is alive.
struct Counting;

/// Bytes that were asked for and not given back.
static ALIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe to write; this one hands every call on as it came")]
// SAFETY: memory comes from the system's allocator and goes back to it, under the layout it came by.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises about the layout are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: `memory` was handed out by `alloc` above, which is `System`'s, under this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Decisions that are kept: fewer than the first requests make.
const RING: usize = 8;

/// Requests until everything that is kept for good is there. They take longer than the four seconds for which the router
/// keeps a timer for each use of a pooled connection.
const FIRST: usize = 250;

/// Rounds of requests. The one in the middle is looked at: in some a table grew, or the connection to the engine was another.
const ROUNDS: usize = 5;

/// Requests of a round.
const ROUND: usize = 60;

/// Bytes that one of them may leave. Without the call in the gateway's `timers` it is 500 and more.
const SLACK: isize = 64;

/// Every piece of an answer takes its time, so that each wait of the router's needs a timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_leave_nothing_behind() -> anyhow::Result<()> {
    let engine = Engine::start(EngineConfig {
        model: MODEL.to_owned(),
        decode_us_per_token: 5_000.0,
        record_requests: 0,
        ..EngineConfig::default()
    })
    .await?;
    let mut settings = settings(&[engine.url()])?;
    settings.decision_ring = RING;
    let router = Router::start(settings).await?;
    let mut client = connect(router.inference).await?;
    ask(&mut client, FIRST).await?;
    let mut left = Vec::new();
    for _ in 0..ROUNDS {
        let before = ALIVE.load(Ordering::Relaxed);
        ask(&mut client, ROUND).await?;
        left.push((ALIVE.load(Ordering::Relaxed) - before) / ROUND as isize);
    }
    left.sort_unstable();
    let middle = left.get(ROUNDS / 2).copied();
    assert!(middle.is_some_and(|middle| middle <= SLACK), "bytes that a request leaves, by round: {left:?}");
    Ok(())
}

async fn connect(to: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(TcpStream::connect(to).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// One request after the other, on one connection.
async fn ask(client: &mut SendRequest<Full<Bytes>>, requests: usize) -> anyhow::Result<()> {
    for _ in 0..requests {
        let body =
            format!(r#"{{"model":"{MODEL}","stream":true,"max_tokens":4,"prompt":[1,2,3,4,5,6,7,8]}}"#);
        client.ready().await?;
        let answer = client.send_request(post("/v1/completions", body)?).await?;
        anyhow::ensure!(answer.status() == 200, "{}", answer.status());
        answer.into_body().collect().await?;
    }
    Ok(())
}
