//! Whether a renderer answers, and whether the one that answers is ours.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{SideClient, SideRequest, SideResponse};
use serde::Deserialize;

/// Largest answer of a look, bytes.
const MOST_BYTES: usize = 1 << 20;

/// Looks at renderers.
#[derive(Clone)]
pub struct Health {
    client: Arc<dyn SideClient>,
    timeout: Duration,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Health {
    /// Looks that wait so long.
    pub fn new(client: Arc<dyn SideClient>, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Whether `/health` says 200.
    pub async fn answers(&self, port: u16) -> bool {
        self.get(port, "/health").await.is_some_and(|answer| answer.status == http::StatusCode::OK)
    }

    /// Whether the one that answers serves our model, as far as it says: with an API key among the extra arguments
    /// the list is refused, and then our own child's being alive has to do.
    pub async fn is_ours(&self, port: u16, model: &str) -> bool {
        let Some(answer) = self.get(port, "/v1/models").await else { return false };
        if answer.status != http::StatusCode::OK {
            return true;
        }
        serde_json::from_slice::<List>(&answer.body)
            .is_ok_and(|list| list.data.iter().any(|entry| entry.id == model))
    }

    async fn get(&self, port: u16, path: &str) -> Option<SideResponse> {
        let request = SideRequest {
            method: http::Method::GET,
            url: format!("http://127.0.0.1:{port}{path}"),
            tls: None,
            body: Bytes::new(),
            timeout: self.timeout,
            max_bytes: MOST_BYTES,
        };
        self.client.call(request).await.ok()
    }
}

#[derive(Deserialize)]
struct List {
    data: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

#[cfg(test)]
mod tests {
    use kvasir_core::{BoxFuture, SideError};

    use super::*;

    /// Answers everything alike.
    struct Fixed(u16, &'static str);

    impl SideClient for Fixed {
        fn call(&self, _: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
            let status = http::StatusCode::from_u16(self.0).unwrap();
            let body = Bytes::from_static(self.1.as_bytes());
            Box::pin(async move { Ok(SideResponse { status, headers: http::HeaderMap::new(), body }) })
        }
    }

    async fn ours(status: u16, body: &'static str) -> bool {
        Health::new(Arc::new(Fixed(status, body)), Duration::from_secs(1)).is_ours(1, "m").await
    }

    #[tokio::test]
    async fn another_server_on_the_port_is_not_taken_for_ours() {
        assert!(ours(200, r#"{"data":[{"id":"x"},{"id":"m"}]}"#).await);
        assert!(!ours(200, r#"{"data":[{"id":"x"}]}"#).await);
        assert!(!ours(200, "<html>").await);
        assert!(ours(401, "").await);
    }
}
