//! What is counted where prefill and decode are apart.

use std::time::Duration;

use prometheus::{CounterVec, HistogramVec, Registry};

use crate::metrics::{Metrics, RequestLabels, counter, histogram};
use crate::names::disaggregation as names;

/// The families of the two phases. Without such targets none of them ever has a series.
#[derive(Debug)]
pub(crate) struct DisaggregationMetrics {
    prefill: HistogramVec,
    decode: HistogramVec,
    fallback: CounterVec,
}

impl DisaggregationMetrics {
    pub(crate) fn register(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            prefill: histogram(r, &names::PREFILL_DURATION)?,
            decode: histogram(r, &names::DECODE_DURATION)?,
            fallback: counter(r, &names::PD_FALLBACK)?,
        })
    }
}

fn observe(family: &HistogramVec, labels: &RequestLabels, status: u16, took: Duration) {
    let status = status.to_string();
    family.with_label_values(&[labels.model.as_str(), labels.path, &status]).observe(took.as_secs_f64());
}

impl Metrics {
    /// A prefill endpoint's part ended.
    pub fn prefill_ended(&self, labels: &RequestLabels, status: u16, took: Duration) {
        observe(&self.disaggregation.prefill, labels, status, took);
    }

    /// A decode endpoint's part ended.
    pub fn decode_ended(&self, labels: &RequestLabels, status: u16, took: Duration) {
        observe(&self.disaggregation.decode, labels, status, took);
    }

    /// A decode endpoint gets a whole request, because of `reason`.
    pub fn pd_fallback(&self, model: &str, reason: &str) {
        self.disaggregation.fallback.with_label_values(&[model, reason]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_show_under_kthenas_names() {
        let metrics = Metrics::new().unwrap();
        let labels = RequestLabels::unresolved("m", "/v1/chat/completions");
        metrics.prefill_ended(&labels, 200, Duration::from_millis(30));
        metrics.decode_ended(&labels, 503, Duration::from_millis(3));
        metrics.pd_fallback("m", "no_pair");
        let page = metrics.render();
        let series = "model=\"m\",path=\"/v1/chat/completions\",status_code";
        for part in [
            format!("kthena_router_request_prefill_duration_seconds_sum{{{series}=\"200\"}} 0.03"),
            format!("kthena_router_request_decode_duration_seconds_count{{{series}=\"503\"}} 1"),
            "kvasir_pd_fallback_total{model=\"m\",reason=\"no_pair\"} 1".to_owned(),
        ] {
            assert!(page.contains(&part), "{part} is missing in\n{page}");
        }
    }
}
