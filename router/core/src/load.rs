//! An endpoint's load: what we sent, and what its engine reports.

use serde::Serialize;

use crate::ids::EndpointId;

/// What one request costs the endpoint it is sent to, as far as the router can tell at dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct InFlightCost {
    /// Prompt tokens that the endpoint has to prefill (prompt minus what it holds).
    pub prefill_tokens: u32,
    /// Leading prompt tokens that the decision found there by events, predictions apart; 0 when nothing was looked up.
    pub confirmed_tokens: u32,
}

/// Where a LoRA adapter stands at one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdapterStanding {
    /// The engine does not tell, or no adapter is asked for.
    #[default]
    Unknown,
    /// In use there now, or the last that was, with nothing in its place yet.
    Resident,
    /// Requests wait there for it to be loaded.
    Loading,
    /// Not loaded there, and there is room for another one.
    Absent,
    /// Not loaded there, and it has to wait until another one leaves.
    Full,
}

/// The LoRA adapters of one engine, as it reports them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EngineAdapters {
    /// In use by running requests.
    pub running: Vec<String>,
    /// Waited for.
    pub waiting: Vec<String>,
    /// Most that can be in use at once; 0 when not reported.
    pub most: u32,
}

impl EngineAdapters {
    /// Where `adapter` stands by this report alone.
    ///
    /// vLLM (0.11 to 0.32) lists an adapter as running and as waiting for as long as it has a request of either kind.
    /// So a name in both lists runs, unless the lists hold more names than there is room for: then some of them wait,
    /// and nobody can say which.
    pub fn standing(&self, adapter: &str) -> AdapterStanding {
        let lists = |names: &[String]| names.iter().any(|name| name == adapter);
        let (runs, waits) = (lists(&self.running), lists(&self.waiting));
        let only_waiting = self.waiting.iter().filter(|name| !self.running.contains(name)).count();
        let (taken, most) = (self.running.len() + only_waiting, self.most as usize);
        match (runs, waits) {
            (true, true) if most > 0 && taken > most => AdapterStanding::Loading,
            (true, _) => AdapterStanding::Resident,
            (false, true) => AdapterStanding::Loading,
            (false, false) if most > 0 && taken >= most => AdapterStanding::Full,
            (false, false) => AdapterStanding::Absent,
        }
    }
}

/// One endpoint's numbers, frozen for one decision.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Load {
    /// Requests in flight there: this router's and, where replicas tell each other, its live peers'.
    pub in_flight: u32,
    /// Uncached prompt tokens of requests in flight there that have not shown their first byte.
    pub prefill_tokens: u64,
    /// Requests in flight that are past their first byte (decoding).
    pub decoding: u32,
    /// The part of `in_flight` that peers sent.
    pub peers_in_flight: u32,
    /// The last good scrape, `None` before the first one and once it is too old to trust.
    pub sample: Option<EngineSample>,
    /// The share of the requests that others had sent by then which is taken to have ended since: 0 right after a scrape,
    /// 1 once it is too old to say who is there now.
    pub foreign_faded: f64,
    /// Where the request's adapter stands there; [`AdapterStanding::Unknown`] for a request without one.
    pub adapter: AdapterStanding,
}

impl Load {
    /// Requests the engine runs that neither this router nor a live peer sent: what the last scrape showed beyond what
    /// was known then, faded with its age; 0 without a scrape.
    pub fn foreign(&self) -> u32 {
        let Some(sample) = self.sample else { return 0 };
        let seen = sample.running.saturating_add(sample.waiting);
        let unknown = seen.saturating_sub(sample.in_flight_at_scrape);
        (f64::from(unknown) * (1.0 - self.foreign_faded)).round() as u32
    }
}

/// The numbers of one good scrape of an engine's `/metrics`, summed over its series.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct EngineSample {
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// KV cache in use, 0 to 1.
    pub kv_usage: f64,
    /// Mean time to first token over the last scrape interval, seconds; 0 when never seen.
    pub ttft_seconds: f64,
    /// Mean time per output token over the last scrape interval, seconds; 0 when never seen.
    pub tpot_seconds: f64,
    /// KV capacity in blocks, 0 when not reported.
    pub kv_blocks: u32,
    /// Tokens in a block, 0 when not reported.
    pub block_size: u32,
    /// What this router and its live peers had in flight there when the scrape was taken.
    pub in_flight_at_scrape: u32,
}

/// Why an endpoint could not be scraped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SampleError {
    /// Nothing listens, or the network failed.
    #[error("connection failed: {0}")]
    Connect(String),
    /// No answer within the limit.
    #[error("timed out")]
    Timeout,
    /// An answer that is no metrics page.
    #[error("not a metrics page: {0}")]
    Garbage(String),
}

/// What one process has in flight at an endpoint; what replicas tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SharedLoad {
    /// Requests in flight.
    pub in_flight: u32,
    /// Uncached prompt tokens of those that have not shown their first byte.
    pub prefill_tokens: u64,
    /// Those past their first byte.
    pub decoding: u32,
}

/// Where replicas meet: our own load goes out, the others' sum comes in. Implemented by the endpoint registry.
pub trait LoadBoard: Send + Sync {
    /// What this process has in flight, endpoints with nothing left out.
    fn own(&self) -> Vec<(EndpointId, SharedLoad)>;

    /// Every endpoint.
    fn endpoints(&self) -> Vec<EndpointId>;

    /// What all live peers together have in flight. Replaces what was set before; endpoints that are left out have
    /// nothing, unknown ones are ignored.
    fn set_peers(&self, loads: &[(EndpointId, SharedLoad)]);
}

/// Where scrapes go. Implemented by the endpoint registry, called by the scraper from its own tasks.
pub trait SampleSink: Send + Sync {
    /// Requests in flight at `endpoint` now, peers' included, for [`EngineSample::in_flight_at_scrape`].
    fn in_flight(&self, endpoint: &EndpointId) -> u32;
    /// One scrape ended. An unknown endpoint is ignored: it may have been removed meanwhile.
    fn sampled(&self, endpoint: &EndpointId, result: Result<EngineSample, SampleError>);
    /// The models and adapters that `endpoint` listed at `/v1/models`; replaces what was known.
    fn models_listed(&self, endpoint: &EndpointId, models: Vec<String>);
    /// Which of them are adapters of another one; replaces what was known.
    fn adapters_listed(&self, endpoint: &EndpointId, adapters: Vec<String>);
    /// The adapters that `endpoint` reported with its numbers; `None` when it reports none.
    fn adapters_seen(&self, endpoint: &EndpointId, adapters: Option<EngineAdapters>);
    /// An active health probe ended.
    fn probed(&self, endpoint: &EndpointId, healthy: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_requests_are_those_that_nobody_here_sent_and_they_fade() {
        for (running, waiting, known, faded, foreign) in [
            (5, 3, 2, 0.0, 6),
            (5, 3, 8, 0.0, 0),
            (5, 3, 9, 0.0, 0),
            (5, 3, 2, 0.5, 3),
            (1, 0, 0, 0.4, 1),
            (1, 0, 0, 0.6, 0),
            (5, 3, 2, 1.0, 0),
            (u32::MAX, u32::MAX, 0, 0.0, u32::MAX),
        ] {
            let sample =
                EngineSample { running, waiting, in_flight_at_scrape: known, ..EngineSample::default() };
            let load = Load { sample: Some(sample), foreign_faded: faded, ..Load::default() };
            assert_eq!(load.foreign(), foreign, "{running} {waiting} {known} {faded}");
        }
        assert_eq!(Load { in_flight: 3, ..Load::default() }.foreign(), 0, "nothing was scraped");
    }

    #[test]
    fn an_adapter_stands_where_the_lists_and_the_room_put_it() {
        use AdapterStanding::{Absent, Full, Loading, Resident};
        for (running, waiting, most, standings) in [
            (&["a"][..], &[][..], 2, [Resident, Absent, Absent]),
            (&["a"], &["b"], 2, [Resident, Loading, Full]),
            (&["a", "b"], &[], 2, [Resident, Resident, Full]),
            (&["a"], &["a"], 2, [Resident, Absent, Absent]),
            (&["a", "b"], &["a", "b"], 2, [Resident, Resident, Full]),
            (&["a", "b"], &["a", "b"], 1, [Loading, Loading, Full]),
            (&[], &["a"], 1, [Loading, Full, Full]),
            (&["a"], &["b"], 0, [Resident, Loading, Absent]),
            (&[], &[], 1, [Absent, Absent, Absent]),
        ] {
            let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let told = EngineAdapters { running: names(running), waiting: names(waiting), most };
            assert_eq!(["a", "b", "c"].map(|name| told.standing(name)), standings, "{told:?}");
        }
    }
}
