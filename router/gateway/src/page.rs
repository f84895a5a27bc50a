//! `/metrics`: the registered counters, and series made anew from what is there now.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, Response, StatusCode};
use kvasir_telemetry::{Page, names};
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;

use crate::Gateway;
use crate::admin::answer;

/// A number that another room counts, read whenever the page is made; `None` shows nothing.
#[derive(Clone)]
pub struct Counted(pub Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Counted").field(&(self.0)()).finish()
    }
}

/// The media type of the page.
pub(crate) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics application.
pub(crate) struct MetricsPage {
    gateway: Arc<Gateway>,
}

impl MetricsPage {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }
}

/// The whole page, made beside the threads that serve requests: of thousands of endpoints it takes milliseconds.
pub(crate) async fn render_aside(gateway: &Arc<Gateway>) -> String {
    let gateway = Arc::clone(gateway);
    match tokio::task::spawn_blocking(move || render(&gateway)).await {
        Ok(page) => page,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends.
            Err(_) => String::new(),
        },
    }
}

/// The whole page.
pub fn render(gateway: &Gateway) -> String {
    gateway.metrics.buffered_bytes.set(i64::try_from(gateway.buffers.held()).unwrap_or(i64::MAX));
    let mut page = Page::new(gateway.metrics.render());
    let entries = gateway.scheduling.prefix_cache_entries();
    page.family(&names::PREFIX_CACHE_ENTRIES, entries.map(|entries| (Vec::new(), entries as f64)));
    endpoints(gateway, &mut page);
    owners(gateway, &mut page);
    let tokens = gateway.tokens.status();
    let states = tokens.iter().flat_map(|model| {
        model.sources.iter().map(|s| (vec![model.model.as_str(), s.source.as_str(), s.proof.as_str()], 1.0))
    });
    page.family(&names::TOKENIZER_STATE, states);
    let differences = tokens.iter().filter_map(|model| {
        let first = model.probes.versions.iter().rev().find_map(|version| version.difference.as_ref())?;
        Some((vec![model.model.as_str(), first.probe], first.at.position as f64))
    });
    page.family(&names::TOKENIZER_DIFFERENCE, differences);
    gateway.coordination.add_to(&mut page);
    gateway.exhibits.add_to(&mut page);
    page.finish()
}

fn endpoints(gateway: &Gateway, page: &mut Page) {
    let endpoints: Vec<_> =
        gateway.state.endpoints().into_iter().map(|status| (status.id.to_string(), status)).collect();
    let mut family = |family: &names::Family,
                      number: &dyn Fn(&kvasir_state::EndpointStatus) -> Option<f64>| {
        let series = endpoints
            .iter()
            .filter_map(|(id, status)| Some((vec![status.model.as_str(), id.as_str()], number(status)?)))
            .collect::<Vec<_>>();
        page.family(family, series);
    };
    family(&names::ENDPOINT_IN_FLIGHT, &|status| Some(f64::from(status.own.in_flight)));
    family(&names::ENDPOINT_PREFILL, &|status| Some(status.own.prefill_tokens as f64));
    family(&names::ENDPOINT_UP, &|status| Some(f64::from(u8::from(status.available))));
    family(&names::ENDPOINT_WAITING, &|status| status.load.sample.map(|sample| f64::from(sample.waiting)));
    family(&names::ENDPOINT_KV, &|status| status.load.sample.map(|sample| sample.kv_usage));
}

fn owners(gateway: &Gateway, page: &mut Page) {
    let owners: Vec<_> = gateway
        .index
        .stats()
        .into_iter()
        .filter_map(|stats| Some((gateway.state.endpoint_by_slot(stats.slot)?.id.to_string(), stats)))
        .collect();
    page.family(
        &names::OWNER_BLOCKS,
        owners
            .iter()
            .map(|(id, s)| (vec![s.model.as_str(), id.as_str(), s.completeness.as_str()], s.blocks as f64)),
    );
    let mut counter = |family: &names::Family, number: &dyn Fn(&kvasir_kvcache::OwnerStats) -> u64| {
        page.family(
            family,
            owners
                .iter()
                .map(|(id, s)| (vec![s.model.as_str(), id.as_str()], number(s) as f64))
                .collect::<Vec<_>>(),
        );
    };
    counter(&names::OWNER_GAPS, &|s| s.gaps);
    counter(&names::OWNER_REPAIRS, &|s| s.repairs);
    counter(&names::OWNER_RESETS, &|s| s.resets);
    counter(&names::OWNER_DECODE_FAILURES, &|s| s.decode_failures);
}

#[async_trait]
impl ServeHttp for MetricsPage {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let head = session.req_header();
        if head.method != Method::GET || head.uri.path() != "/metrics" {
            return answer(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                b"404 page not found\n".to_vec(),
            );
        }
        answer(StatusCode::OK, MEDIA, render_aside(&self.gateway).await.into_bytes())
    }
}
