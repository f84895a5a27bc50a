//! Where scrapes come in.

use kvasir_core::{EndpointId, EngineAdapters, EngineSample, SampleError, SampleSink};

use crate::health::Turn;
use crate::registry::State;

impl SampleSink for State {
    fn in_flight(&self, endpoint: &EndpointId) -> u32 {
        self.live(endpoint).map_or(0, |live| live.own().in_flight.saturating_add(live.peers().in_flight))
    }

    fn sampled(&self, endpoint: &EndpointId, result: Result<EngineSample, SampleError>) {
        if let Some(live) = self.live(endpoint) {
            live.sampled(result, self.clock.now());
        }
    }

    fn models_listed(&self, endpoint: &EndpointId, models: Vec<String>) {
        if let Some(live) = self.live(endpoint) {
            live.listed(models);
        }
    }

    fn adapters_listed(&self, endpoint: &EndpointId, adapters: Vec<String>) {
        if let Some(live) = self.live(endpoint) {
            live.adapters.write().listed(adapters);
        }
    }

    fn adapters_seen(&self, endpoint: &EndpointId, adapters: Option<EngineAdapters>) {
        if let Some(live) = self.live(endpoint) {
            live.adapters.write().seen(adapters, self.clock.now());
        }
    }

    fn probed(&self, endpoint: &EndpointId, healthy: bool) {
        if let Some(live) = self.live(endpoint)
            && live.probed(healthy, self.clock.now()) == Some(Turn::Back)
        {
            tracing::info!(%endpoint, by = "probe", "endpoint is back");
        }
    }
}
