//! Whether event sources can be reached from here, before anything is given up for them.

use std::time::Duration;

use kvasir_kvcache::KvEventsSource;
use tokio::net::TcpStream;

/// For one connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Whether all these sources accept connections. A source that connects to us cannot be tried, and counts as closed.
pub(super) async fn all_open(sources: &[KvEventsSource]) -> bool {
    for source in sources {
        if source.bind || !is_open(&source.endpoint).await {
            return false;
        }
    }
    true
}

async fn is_open(endpoint: &str) -> bool {
    let Some(address) = endpoint.strip_prefix("tcp://") else { return false };
    matches!(tokio::time::timeout(CONNECT, TcpStream::connect(address)).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn ports_that_are_closed_are_noticed() {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [open_at, closed_at] =
            [&open, &closed].map(|listener| format!("tcp://{}", listener.local_addr().unwrap()));
        drop(closed);
        let source = |endpoint: &str| KvEventsSource::configured(endpoint, None, "", 0);
        assert!(all_open(&[source(&open_at)]).await);
        assert!(!all_open(&[source(&open_at), source(&closed_at)]).await);
        assert!(!all_open(&[source("ipc://somewhere")]).await);
        assert!(!all_open(&[source(&open_at.replace("127.0.0.1", "*"))]).await);
    }
}
