//! What an engine's metrics say that matters here: how much it can hold, and whether it sleeps.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use kvasir_core::{SideClient, SideError, SideRequest};
use kvasir_upstream::{MetricsPage, read_metrics};

use crate::config::EngineConfig;

/// Largest page, bytes. A page of one vLLM rank has some 60 kB.
const MOST_BYTES: usize = 8 << 20;

/// One reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// Whether the engine answers.
    pub(super) answers: bool,
    /// Whether it sleeps.
    pub(super) asleep: bool,
    page: Option<MetricsPage>,
}

impl Readings {
    /// Of an engine that has just answered something else.
    pub(super) fn answering() -> Self {
        Self { answers: true, ..Self::default() }
    }

    /// Blocks that a rank can hold, and tokens in one; `None` where the engine does not tell.
    pub(super) fn capacity(&self, rank: u32) -> Option<(usize, u32)> {
        let numbers = self.page.as_ref()?.numbers(Some(rank))?;
        (numbers.kv_blocks > 0 && numbers.block_size > 0)
            .then_some((numbers.kv_blocks as usize, numbers.block_size))
    }
}

/// Reads the engine's metrics. Never fails: an engine that does not answer says nothing.
pub(super) async fn read(client: &dyn SideClient, config: &EngineConfig, limit: Duration) -> Readings {
    let request = SideRequest {
        method: Method::GET,
        url: format!("{}{}", config.address.url(), config.metrics_path),
        tls: config.address.tls.clone(),
        body: Bytes::new(),
        timeout: limit,
        max_bytes: MOST_BYTES,
    };
    match client.call(request).await {
        Ok(answer) => {
            let page = (answer.status == StatusCode::OK)
                .then(|| read_metrics(&answer.body, config.kind).ok())
                .flatten();
            let asleep = page.as_ref().and_then(|page| page.numbers(None)).and_then(|numbers| numbers.asleep)
                == Some(true);
            Readings { answers: true, asleep, page }
        }
        // A page that is too large is an answer all the same.
        Err(SideError::TooLarge(_)) => Readings { answers: true, ..Readings::default() },
        Err(_) => Readings::default(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use kvasir_core::{Address, BoxFuture, EngineKind, SideResponse};

    use super::*;

    struct Canned(Result<(u16, &'static str), SideError>);

    impl SideClient for Canned {
        fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
            assert_eq!(request.url, "http://e:8000/engine/metrics");
            let answer = self.0.clone().map(|(status, body)| SideResponse {
                status: StatusCode::from_u16(status).unwrap(),
                headers: HeaderMap::new(),
                body: Bytes::from_static(body.as_bytes()),
            });
            Box::pin(async move { answer })
        }
    }

    async fn readings(answer: Result<(u16, &'static str), SideError>) -> Readings {
        let config = EngineConfig {
            kind: EngineKind::Vllm,
            address: Address::parse("http://e:8000").unwrap(),
            metrics_path: "/engine/metrics".to_owned(),
            pod: "e".into(),
            namespace: "default".into(),
            model: None,
            kv_events: Vec::new(),
        };
        read(&Canned(answer), &config, Duration::from_secs(1)).await
    }

    const PAGE: &str = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0\n\
        vllm:cache_config_info{block_size=\"32\",engine=\"0\",num_gpu_blocks=\"500\"} 1\n\
        vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n\
        vllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} 1\n";

    #[tokio::test]
    async fn capacity_and_sleep_are_read() {
        let readings = readings(Ok((200, PAGE))).await;
        assert!(readings.answers && readings.asleep);
        assert_eq!((readings.capacity(0), readings.capacity(1)), (Some((500, 32)), None));
    }

    #[tokio::test]
    async fn what_cannot_be_read_says_nothing() {
        for (answer, answers) in [
            (Ok((404, "{}")), true),
            (Ok((200, "<html>")), true),
            (Err(SideError::TooLarge(1)), true),
            (Err(SideError::Timeout), false),
            (Err(SideError::Connect("refused".to_owned())), false),
        ] {
            let readings = readings(answer).await;
            assert_eq!((readings.answers, readings.asleep, readings.capacity(0)), (answers, false, None));
        }
    }
}
