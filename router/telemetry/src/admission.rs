//! What becomes of requests that ask for admission, under kthena's names.

use std::time::Duration;

use kvasir_core::{AdmissionMeter, QueueKind};
use prometheus::{CounterVec, GaugeVec, HistogramVec, Registry};

use crate::metrics::{Metrics, counter, gauge, histogram};
use crate::names::admission as names;

/// kthena's label for users: never a user, for there may be any number of them.
const ALL_USERS: &str = "_all";

/// The families of both queues. Only those of the queue that is on ever have a series.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    fairness: QueueMetrics,
    session_boost: QueueMetrics,
    denied: CounterVec,
}

#[derive(Debug)]
struct QueueMetrics {
    /// Labels behind the model's.
    labels: &'static [&'static str],
    size: GaugeVec,
    duration: HistogramVec,
    cancelled: CounterVec,
    dequeued: CounterVec,
    in_flight: GaugeVec,
}

impl AdmissionMetrics {
    pub(crate) fn register(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            fairness: QueueMetrics {
                labels: &[ALL_USERS],
                size: gauge(r, &names::FAIRNESS_SIZE)?,
                duration: histogram(r, &names::FAIRNESS_DURATION)?,
                cancelled: counter(r, &names::FAIRNESS_CANCELLED)?,
                dequeued: counter(r, &names::FAIRNESS_DEQUEUED)?,
                in_flight: gauge(r, &names::FAIRNESS_INFLIGHT)?,
            },
            session_boost: QueueMetrics {
                labels: &[],
                size: gauge(r, &names::SESSION_BOOST_SIZE)?,
                duration: histogram(r, &names::SESSION_BOOST_DURATION)?,
                cancelled: counter(r, &names::SESSION_BOOST_CANCELLED)?,
                dequeued: counter(r, &names::SESSION_BOOST_DEQUEUED)?,
                in_flight: gauge(r, &names::SESSION_BOOST_INFLIGHT)?,
            },
            denied: counter(r, &names::ADMISSION_DENIED)?,
        })
    }

    fn queue(&self, kind: QueueKind) -> &QueueMetrics {
        match kind {
            QueueKind::Fairness => &self.fairness,
            QueueKind::SessionBoost => &self.session_boost,
        }
    }
}

impl QueueMetrics {
    /// The labels of a model's series, in the order of the families.
    fn values<'a>(&self, model: &'a str) -> Vec<&'a str> {
        std::iter::once(model).chain(self.labels.iter().copied()).collect()
    }
}

impl AdmissionMeter for Metrics {
    fn queued(&self, _kind: QueueKind, _model: &str) {}

    fn dequeued(&self, kind: QueueKind, model: &str, waited: Duration) {
        let queue = self.admission.queue(kind);
        let values = queue.values(model);
        queue.dequeued.with_label_values(&values).inc();
        queue.duration.with_label_values(&values).observe(waited.as_secs_f64());
    }

    fn cancelled(&self, kind: QueueKind, model: &str, _waited: Duration) {
        let queue = self.admission.queue(kind);
        queue.cancelled.with_label_values(&queue.values(model)).inc();
    }

    /// As in kthena, who waited in vain also counts as cancelled.
    fn closed(&self, kind: QueueKind, model: &str, waited: Duration) {
        self.cancelled(kind, model, waited);
        self.admission.denied.with_label_values(&[model, "closed"]).inc();
    }

    /// Counts as cancelled too.
    fn displaced(&self, kind: QueueKind, model: &str, waited: Duration) {
        self.cancelled(kind, model, waited);
        self.rejected(kind, model);
    }

    /// Counts as cancelled too.
    fn timed_out(&self, kind: QueueKind, model: &str, waited: Duration) {
        self.cancelled(kind, model, waited);
        self.admission.denied.with_label_values(&[model, "timed_out"]).inc();
    }

    fn rejected(&self, _kind: QueueKind, model: &str) {
        self.admission.denied.with_label_values(&[model, "full"]).inc();
    }

    fn queue_size(&self, kind: QueueKind, model: &str, waiting: usize) {
        let queue = self.admission.queue(kind);
        queue.size.with_label_values(&queue.values(model)).set(waiting as f64);
    }

    fn in_flight(&self, kind: QueueKind, model: &str, running: usize) {
        self.admission.queue(kind).in_flight.with_label_values(&[model]).set(running as f64);
    }

    /// Gauges go; counters and histograms stay, as those of requests do, so that rates keep their meaning.
    fn forgotten(&self, kind: QueueKind, model: &str) {
        let queue = self.admission.queue(kind);
        let _ = queue.size.remove_label_values(&queue.values(model));
        let _ = queue.in_flight.remove_label_values(&[model]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fairness_queue_shows_under_kthenas_names_and_names_no_user() {
        let metrics = Metrics::new().unwrap();
        let kind = QueueKind::Fairness;
        metrics.queued(kind, "m");
        metrics.queue_size(kind, "m", 3);
        metrics.in_flight(kind, "m", 2);
        metrics.dequeued(kind, "m", Duration::from_millis(7));
        metrics.cancelled(kind, "m", Duration::ZERO);
        metrics.timed_out(kind, "m", Duration::from_secs(60));
        metrics.rejected(kind, "m");
        metrics.closed(kind, "m", Duration::ZERO);
        metrics.displaced(kind, "m", Duration::ZERO);
        let page = metrics.render();
        for line in [
            r#"kthena_router_fairness_queue_size{model="m",user_id="_all"} 3"#,
            r#"kthena_router_fairness_queue_inflight{model="m"} 2"#,
            r#"kthena_router_fairness_queue_dequeue_total{model="m",user_id="_all"} 1"#,
            r#"kthena_router_fairness_queue_cancelled_total{model="m",user_id="_all"} 4"#,
            r#"kthena_router_fairness_queue_duration_seconds_bucket{model="m",user_id="_all",le="0.01"} 1"#,
            r#"kvasir_admission_denied_total{model="m",reason="timed_out"} 1"#,
            r#"kvasir_admission_denied_total{model="m",reason="full"} 2"#,
            r#"kvasir_admission_denied_total{model="m",reason="closed"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is missing in\n{page}");
        }
        assert!(!page.contains("session_boost"), "{page}");
    }

    #[test]
    fn session_boost_has_no_user_and_a_forgotten_model_has_no_gauge() {
        let metrics = Metrics::new().unwrap();
        let kind = QueueKind::SessionBoost;
        metrics.queue_size(kind, "m", 1);
        metrics.in_flight(kind, "m", 4);
        metrics.dequeued(kind, "m", Duration::ZERO);
        let page = metrics.render();
        assert!(page.contains(r#"kthena_router_session_boost_queue_size{model="m"} 1"#), "{page}");
        assert!(page.contains(r#"kthena_router_session_boost_queue_inflight{model="m"} 4"#), "{page}");
        metrics.forgotten(kind, "m");
        let page = metrics.render();
        assert!(!page.contains("session_boost_queue_size{") && !page.contains("queue_inflight{"), "{page}");
        assert!(page.contains(r#"kthena_router_session_boost_queue_dequeue_total{model="m"} 1"#), "{page}");
    }
}
