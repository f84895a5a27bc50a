//! What the access log and the budget of bytes say of a request with two endpoints.

use std::path::PathBuf;

use kvasir_telemetry::{AccessLogger, Metrics};
use serde_json::Value;

use super::*;

/// An access log in a file of its own.
struct Log {
    path: PathBuf,
    logger: AccessLogger,
}

impl Log {
    fn open() -> Self {
        let path = std::env::temp_dir().join(format!("kvasir-split-{}.log", uuid::Uuid::new_v4()));
        let dropped = Metrics::new().unwrap().log_dropped.clone();
        let logger = AccessLogger::start(&path.to_string_lossy(), true, dropped).unwrap();
        Self { path, logger }
    }

    /// The line of the one request, once it was written.
    async fn line(&self) -> Value {
        loop {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            if let Some(line) = text.lines().next().and_then(|line| serde_json::from_str(line).ok()) {
                return line;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[tokio::test]
async fn the_logged_status_is_of_the_answer_and_not_of_a_late_prefill() {
    for asked in [ASK, ASK_STREAM] {
        let go = Arc::new(Notify::new());
        let wait = Arc::clone(&go);
        let prefill = Engine::start(move |_| Say::When(Arc::clone(&wait), Box::new(refused(500)))).await;
        let decode = Engine::start(move |_| match asked {
            ASK => Say::Json(200, answer("99")),
            _ => Say::Events(stream("99")),
        })
        .await;
        let log = Log::open();
        let (connector, logger) = (ConnectorKind::Sglang, Some(log.logger.clone()));
        let house = House::with_log(connector, &[&prefill], &[&decode], usual, logger).await;
        let client = send(house.address, asked).await;
        house.hears("first_byte d1").await;
        go.notify_one();
        assert_eq!(finish(client).await.status, 200);
        let line = log.line().await;
        assert_eq!((&line["status_code"], &line["upstream_status_code"]), (&json!(200), &json!(200)));
        assert!(line["selected_pod"].as_str().unwrap().starts_with("ns/d1"), "{line}");
        assert!(line["prefill_pod"].as_str().unwrap().starts_with("ns/p1"), "{line}");
    }
}

#[tokio::test]
async fn who_computed_no_prompt_is_not_logged_for_it() {
    for said in ["{\"usage\":{}}", ""] {
        let prefill = match said {
            "" => Engine::dead(),
            body => Engine::start(move |_| Say::Json(200, body.to_owned())).await,
        };
        let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
        let log = Log::open();
        let (connector, logger) = (ConnectorKind::Nixl, Some(log.logger.clone()));
        let house = House::with_log(connector, &[&prefill], &[&decode], falling_back, logger).await;
        assert_eq!(post(house.address, ASK).await.status, 200);
        let line = log.line().await;
        assert!(line.get("prefill_pod").is_none(), "{line}");
    }
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_room_passes_as_it_is() {
    let small = |limits: &mut Limits| limits.max_buffered_bytes = 4 << 10;
    let long = answer("99").replace("\"b\"", &format!("\"{}\"", "b".repeat(8 << 10)));
    for (said, expected) in [(answer("99"), answer("64")), (long.clone(), long)] {
        let prefill = Engine::start(|_| prefilled()).await;
        let decode = Engine::start(move |_| Say::Json(200, said.clone())).await;
        let house = House::open(ConnectorKind::Http, &[&prefill], &[&decode], small).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.whole), (200, true));
        assert_eq!(got.body, expected);
        house.record().await;
        assert_eq!(house.gateway.buffers.held(), 0);
    }
}

#[tokio::test]
async fn a_body_counts_until_the_late_prefill_is_through() {
    let (go, on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, pause) = (Arc::clone(&go), Arc::clone(&on));
    let prefill = Engine::start(move |_| Say::When(Arc::clone(&wait), Box::new(prefilled()))).await;
    let decode = Engine::start(move |_| {
        let mut pieces = stream("99");
        Say::Pause(pieces.remove(0), Arc::clone(&pause), pieces)
    })
    .await;
    let house = House::open(ConnectorKind::Sglang, &[&prefill], &[&decode], usual).await;
    let client = send(house.address, ASK_STREAM).await;
    // The first byte is at the client: nothing is tried again, and only the prefill's body is still needed.
    client.readable().await.unwrap();
    assert!(house.gateway.buffers.held() > 0);
    go.notify_one();
    house.hears("completed p1 Some(64)").await;
    while house.gateway.buffers.held() > 0 {
        tokio::task::yield_now().await;
    }
    on.notify_one();
    let got = finish(client).await;
    assert_eq!((got.body, got.whole), (stream("64").concat(), true));
}
