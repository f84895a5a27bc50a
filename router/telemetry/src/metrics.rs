//! The counters that requests touch, registered once.

use std::time::Duration;

use kvasir_core::plugin::ScheduleMeter;
use kvasir_core::{ModelName, Usage};
use prometheus::{
    CounterVec, Encoder as _, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntGauge, Opts,
    Registry, TextEncoder,
};

use crate::admission::AdmissionMetrics;
use crate::disaggregation::DisaggregationMetrics;
use crate::names::{self, Family};

/// The labels that tell where a request was bound. Values come from settings, never from clients.
#[derive(Clone, Debug)]
pub struct RequestLabels {
    /// The requested name if a route registers it, else `unknown`.
    pub model: String,
    /// A path label of a fixed set.
    pub path: &'static str,
    /// Route, `none` while unknown.
    pub model_route: String,
    /// `model_server` once bound, else `unresolved`.
    pub backend_type: &'static str,
    /// Backend, `none` while unknown.
    pub backend_name: String,
    /// Model name sent upstream, `none` while unknown.
    pub upstream_model: String,
}

impl RequestLabels {
    /// Labels of a request that has not been bound to a backend.
    pub fn unresolved(model: &str, path: &'static str) -> Self {
        Self {
            model: model.to_owned(),
            path,
            model_route: "none".to_owned(),
            backend_type: "unresolved",
            backend_name: "none".to_owned(),
            upstream_model: "none".to_owned(),
        }
    }
}

/// Every metric that requests touch. Cheap to share; all methods are wait-free apart from a label look-up.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: CounterVec,
    duration: HistogramVec,
    tokens: CounterVec,
    plugin: HistogramVec,
    /// Requests in the router.
    pub active: IntGauge,
    active_downstream: GaugeVec,
    active_upstream: GaugeVec,
    prefix_cache_match: HistogramVec,
    prefix_cache_evictions: CounterVec,
    kvcache_match: HistogramVec,
    tokenize: HistogramVec,
    kvcache_errors: CounterVec,
    pub(crate) admission: AdmissionMetrics,
    pub(crate) disaggregation: DisaggregationMetrics,
    outcomes: CounterVec,
    ttft: HistogramVec,
    attempts: CounterVec,
    retries: CounterVec,
    retries_denied: CounterVec,
    gather: HistogramVec,
    decide: HistogramVec,
    tokenized: CounterVec,
    untokenized: CounterVec,
    produce_failed: CounterVec,
    proof: CounterVec,
    prediction_off: HistogramVec,
    predicted: CounterVec,
    reported: CounterVec,
    /// Bytes of bodies held.
    pub buffered_bytes: IntGauge,
    /// Access-log lines dropped.
    pub log_dropped: IntCounter,
}

pub(crate) fn counter(registry: &Registry, family: &Family) -> Result<CounterVec, prometheus::Error> {
    let vec = CounterVec::new(Opts::new(family.name, family.help), family.labels)?;
    registry.register(Box::new(vec.clone()))?;
    Ok(vec)
}

pub(crate) fn gauge(registry: &Registry, family: &Family) -> Result<GaugeVec, prometheus::Error> {
    let vec = GaugeVec::new(Opts::new(family.name, family.help), family.labels)?;
    registry.register(Box::new(vec.clone()))?;
    Ok(vec)
}

pub(crate) fn histogram(registry: &Registry, family: &Family) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(family.name, family.help).buckets(family.buckets.to_vec());
    let vec = HistogramVec::new(options, family.labels)?;
    registry.register(Box::new(vec.clone()))?;
    Ok(vec)
}

impl Metrics {
    /// Registers everything in a registry of its own.
    ///
    /// # Errors
    /// Only when two families share a name, which a test rules out.
    pub fn new() -> Result<Self, prometheus::Error> {
        let r = Registry::new();
        let active = IntGauge::new(names::ACTIVE.name, names::ACTIVE.help)?;
        let buffered_bytes = IntGauge::new(names::BUFFERED_BYTES.name, names::BUFFERED_BYTES.help)?;
        let log_dropped = IntCounter::new(names::LOG_DROPPED.name, names::LOG_DROPPED.help)?;
        r.register(Box::new(active.clone()))?;
        r.register(Box::new(buffered_bytes.clone()))?;
        r.register(Box::new(log_dropped.clone()))?;
        Ok(Self {
            requests: counter(&r, &names::REQUESTS)?,
            duration: histogram(&r, &names::REQUEST_DURATION)?,
            tokens: counter(&r, &names::TOKENS)?,
            plugin: histogram(&r, &names::PLUGIN_DURATION)?,
            active,
            active_downstream: gauge(&r, &names::ACTIVE_DOWNSTREAM)?,
            active_upstream: gauge(&r, &names::ACTIVE_UPSTREAM)?,
            prefix_cache_match: histogram(&r, &names::PREFIX_CACHE_MATCH)?,
            prefix_cache_evictions: counter(&r, &names::PREFIX_CACHE_EVICTIONS)?,
            kvcache_match: histogram(&r, &names::KVCACHE_MATCH)?,
            tokenize: histogram(&r, &names::TOKENIZE_DURATION)?,
            kvcache_errors: counter(&r, &names::KVCACHE_ERRORS)?,
            admission: AdmissionMetrics::register(&r)?,
            disaggregation: DisaggregationMetrics::register(&r)?,
            outcomes: counter(&r, &names::OUTCOMES)?,
            ttft: histogram(&r, &names::TTFT)?,
            attempts: counter(&r, &names::ATTEMPTS)?,
            retries: counter(&r, &names::RETRIES)?,
            retries_denied: counter(&r, &names::RETRIES_DENIED)?,
            gather: histogram(&r, &names::GATHER_DURATION)?,
            decide: histogram(&r, &names::DECIDE_DURATION)?,
            tokenized: counter(&r, &names::TOKENIZED)?,
            untokenized: counter(&r, &names::UNTOKENIZED)?,
            produce_failed: counter(&r, &names::PRODUCE_FAILED)?,
            proof: counter(&r, &names::PROMPT_PROOF)?,
            prediction_off: histogram(&r, &names::PREDICTION_OFF)?,
            predicted: counter(&r, &names::PREDICTED_TOKENS)?,
            reported: counter(&r, &names::REPORTED_TOKENS)?,
            buffered_bytes,
            log_dropped,
            registry: r,
        })
    }

    /// The text page of everything registered here.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // Writing to a Vec cannot fail; a family without series is left out by the encoder.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// One request ended.
    pub fn request_ended(&self, labels: &RequestLabels, status: u16, error_type: &str, took: Duration) {
        let number = status.to_string();
        let status = number.as_str();
        let l = labels;
        self.requests
            .with_label_values(&[
                &l.model,
                l.path,
                status,
                error_type,
                &l.model_route,
                l.backend_type,
                &l.backend_name,
                &l.upstream_model,
            ])
            .inc();
        self.duration
            .with_label_values(&[
                &l.model,
                l.path,
                status,
                &l.model_route,
                l.backend_type,
                &l.backend_name,
                &l.upstream_model,
            ])
            .observe(took.as_secs_f64());
    }

    /// Tokens an engine reported.
    pub fn usage(&self, labels: &RequestLabels, usage: &Usage) {
        let l = labels;
        for (kind, count) in [("input", usage.prompt_tokens), ("output", usage.completion_tokens)] {
            if count > 0 {
                self.tokens
                    .with_label_values(&[
                        &l.model,
                        l.path,
                        kind,
                        &l.model_route,
                        l.backend_type,
                        &l.backend_name,
                        &l.upstream_model,
                    ])
                    .inc_by(count as f64);
            }
        }
    }

    /// The gauge of requests whose model is known; the caller counts up and down.
    pub fn active_downstream(&self, model: &str) -> Gauge {
        self.active_downstream.with_label_values(&[model])
    }

    /// The gauge of attempts at a backend.
    pub fn active_upstream(&self, labels: &RequestLabels) -> Gauge {
        self.active_upstream.with_label_values(&[
            &labels.backend_name,
            &labels.model_route,
            labels.backend_type,
            &labels.backend_name,
            &labels.upstream_model,
        ])
    }

    /// How a request ended, in one of the words of the family's help.
    pub fn outcome(&self, model: &str, outcome: &str) {
        self.outcomes.with_label_values(&[model, outcome]).inc();
    }

    /// The first byte came.
    pub fn first_byte(&self, model: &str, took: Duration) {
        self.ttft.with_label_values(&[model]).observe(took.as_secs_f64());
    }

    /// One attempt ended.
    pub fn attempt(&self, model: &str, result: &str) {
        self.attempts.with_label_values(&[model, result]).inc();
    }

    /// One more attempt is made because of `reason`.
    pub fn retry(&self, model: &str, reason: &str) {
        self.retries.with_label_values(&[model, reason]).inc();
    }

    /// A retry was not made.
    pub fn retry_denied(&self, model: &str, reason: &str) {
        self.retries_denied.with_label_values(&[model, reason]).inc();
    }

    /// Gathering and deciding took this long.
    pub fn decided(&self, model: &str, gather: Duration, decide: Duration) {
        self.gather.with_label_values(&[model]).observe(gather.as_secs_f64());
        self.decide.with_label_values(&[model]).observe(decide.as_secs_f64());
    }

    /// Token ids were had.
    pub fn tokenized(&self, model: &str, source: &str, took: Duration) {
        self.tokenized.with_label_values(&[model, source]).inc();
        self.tokenize.with_label_values(&[model]).observe(took.as_secs_f64());
    }

    /// Token ids were not had; reasons other than "not meant to be tokenized" also count as kthena's errors do.
    pub fn untokenized(&self, model: &str, reason: &str) {
        self.untokenized.with_label_values(&[model, reason]).inc();
        if !matches!(reason, "not_tokenizable" | "no_backend") {
            self.kvcache_errors.with_label_values(&[model, "tokenize"]).inc();
        }
    }

    /// Our prompt count was compared with the engine's.
    pub fn proof(&self, model: &str, source: &str, equal: bool) {
        self.proof.with_label_values(&[model, source, if equal { "equal" } else { "differs" }]).inc();
    }

    /// The cached tokens we predicted were compared with the engine's.
    pub fn prediction(&self, model: &str, predicted: u64, reported: u64, block_size: u64) {
        let off = predicted.abs_diff(reported).div_ceil(block_size.max(1));
        self.prediction_off.with_label_values(&[model]).observe(off as f64);
        self.predicted.with_label_values(&[model]).inc_by(predicted as f64);
        self.reported.with_label_values(&[model]).inc_by(reported as f64);
    }
}

impl ScheduleMeter for Metrics {
    fn plugin_ran(&self, model: &ModelName, plugin: &'static str, kind: &'static str, took: Duration) {
        self.plugin.with_label_values(&[model.as_str(), plugin, kind]).observe(took.as_secs_f64());
    }

    fn match_ratio(&self, model: &ModelName, plugin: &'static str, ratio: f64) {
        let family = if plugin == "prefix-cache" { &self.prefix_cache_match } else { &self.kvcache_match };
        family.with_label_values(&[model.as_str()]).observe(ratio);
    }

    fn produce_failed(&self, model: &ModelName, producer: &'static str, reason: &'static str) {
        self.produce_failed.with_label_values(&[model.as_str(), producer, reason]).inc();
    }

    fn prefix_evicted(&self, model: &ModelName, hashes: u64) {
        self.prefix_cache_evictions.with_label_values(&[model.as_str()]).inc_by(hashes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_on_the_page_under_kthenas_names() {
        let metrics = Metrics::new().unwrap();
        let labels = RequestLabels::unresolved("m", "/v1/chat/completions");
        metrics.request_ended(&labels, 200, "successful_request", Duration::from_millis(3));
        metrics.usage(&labels, &Usage { prompt_tokens: 7, completion_tokens: 2, cached_tokens: None });
        metrics.prediction("m", 32, 16, 16);
        let page = metrics.render();
        for part in [
            "kthena_router_requests_total{",
            "status_code=\"200\"",
            "kthena_router_tokens_total{",
            "token_type=\"input\"",
            "kthena_router_request_duration_seconds_bucket",
            "kvasir_cached_tokens_off_blocks_sum{model=\"m\"} 1",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
    }
}
