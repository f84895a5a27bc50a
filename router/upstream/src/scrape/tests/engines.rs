//! Engines that answer as told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use kvasir_core::{BoxFuture, SideClient, SideError, SideRequest, SideResponse};
use parking_lot::Mutex;

/// What a fake engine does with a path.
#[derive(Clone, Copy)]
pub(super) enum Does {
    Answer(u16, &'static str),
    AnswerAfter(Duration, &'static str),
    Hang,
    Refuse,
    Panic,
}

/// Engines by host and path, with a count of the calls.
#[derive(Default)]
pub(super) struct Engines {
    does: Mutex<BTreeMap<(String, String), Does>>,
    calls: Mutex<BTreeMap<String, usize>>,
    pub(super) scraping: AtomicUsize,
    pub(super) most_scraping: AtomicUsize,
    pub(super) dropped: AtomicUsize,
}

/// Counts a call out, also when it is dropped half way.
struct Under<'a>(&'a Engines, bool);

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.scraping.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Engines {
    pub(super) fn set(&self, host: &str, path: &str, does: Does) {
        self.does.lock().insert((host.to_owned(), path.to_owned()), does);
    }

    pub(super) fn calls(&self, host: &str, path: &str) -> usize {
        self.calls.lock().get(&format!("http://{host}:8000{path}")).copied().unwrap_or(0)
    }

    async fn act(&self, request: SideRequest, does: Does) -> Result<SideResponse, SideError> {
        let now = self.scraping.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_scraping.fetch_max(now, Ordering::SeqCst);
        let mut under = Under(self, false);
        let (status, body) = match does {
            Does::Answer(status, body) => (status, body),
            Does::AnswerAfter(wait, body) => {
                tokio::time::sleep(wait).await;
                (200, body)
            }
            Does::Hang => {
                tokio::time::sleep(request.timeout).await;
                under.1 = true;
                return Err(SideError::Timeout);
            }
            Does::Refuse => {
                under.1 = true;
                return Err(SideError::Connect("Connection refused".to_owned()));
            }
            Does::Panic => panic!("a defect in the client"),
        };
        under.1 = true;
        let status = StatusCode::from_u16(status).expect("a status");
        Ok(SideResponse { status, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) })
    }
}

impl SideClient for Engines {
    fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
        *self.calls.lock().entry(request.url.clone()).or_default() += 1;
        let rest = request.url.strip_prefix("http://").unwrap_or_default();
        let (host, path) = rest.split_once(":8000").unwrap_or_default();
        let does = self.does.lock().get(&(host.to_owned(), path.to_owned())).copied();
        Box::pin(self.act(request, does.unwrap_or(Does::Answer(404, "{}"))))
    }
}
