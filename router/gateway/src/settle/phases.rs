//! The two parts of a request whose prompt one endpoint computes and whose answer comes from another.

use std::time::{Duration, Instant};

use kvasir_core::{Endpoint, RouterError};
use kvasir_telemetry::Gauge;

use super::Trail;
use crate::connector::{Failure, Prefill};
use crate::dispatch::kind_of;
use crate::reply::{self, CLIENT_CLOSED};

/// The parts that are under way.
#[derive(Default)]
pub(super) struct Phases {
    prefill: Option<(Instant, Gauge)>,
    decode: Option<Instant>,
}

impl Trail<'_> {
    /// A prompt goes to a prefill endpoint.
    pub(crate) fn prefill_begun(&mut self, endpoint: &Endpoint) {
        self.prefill_dropped();
        self.log.prefill_pod = endpoint.id.to_string();
        let gauge = self.gateway.metrics.active_upstream(&self.labels);
        gauge.inc();
        self.phases.prefill = Some((self.gateway.clock.now(), gauge));
    }

    /// The prefill endpoint is through with it, in whatever way.
    pub(crate) fn prefill_ended(&mut self, told: &Result<Prefill<'_>, Failure>) {
        let Some(begun) = self.prefill_dropped() else { return };
        let status = match told {
            Ok(Prefill::Done { status, .. }) => *status,
            Ok(Prefill::Refused(refusal)) => refusal.header.status.as_u16(),
            Err(failure) => {
                let meant = RouterError::from(kind_of(&failure.what, Duration::ZERO));
                reply::sort(&meant).status.as_u16()
            }
        };
        let took = self.gateway.clock.now().saturating_duration_since(begun);
        self.gateway.metrics.prefill_ended(&self.labels, status, took);
    }

    /// Nobody waits for the prefill endpoint any more; since when it was at work.
    pub(crate) fn prefill_dropped(&mut self) -> Option<Instant> {
        let (begun, gauge) = self.phases.prefill.take()?;
        gauge.dec();
        Some(begun)
    }

    /// The request goes to the endpoint that decodes.
    pub(crate) fn decode_begun(&mut self) {
        self.phases.decode = Some(self.gateway.clock.now());
    }

    /// Nobody waits for that endpoint any more: it has done nothing that could be timed.
    pub(crate) fn decode_dropped(&mut self) {
        self.phases.decode = None;
    }

    /// That endpoint's part is over.
    pub(super) fn decode_ended(&mut self, status: u16) {
        let Some(begun) = self.phases.decode.take() else { return };
        let took = self.gateway.clock.now().saturating_duration_since(begun);
        self.gateway.metrics.decode_ended(&self.labels, status, took);
    }

    /// A decode endpoint gets all of a request that was to be split.
    pub(crate) fn fell_back(&mut self, reason: &'static str) {
        // What was begun so far is none of what it does now.
        self.decode_dropped();
        self.log.prefill_pod.clear();
        if let Some(record) = &mut self.record {
            record.pd_fallback = Some(reason);
            self.gateway.metrics.pd_fallback(record.model.as_str(), reason);
        }
    }

    /// Nothing goes on after the trail.
    pub(super) fn end_phases(&mut self) {
        self.prefill_dropped();
        let gone = self.outcome == "client_cancelled";
        let broken = reply::sort(&kvasir_core::ErrorKind::StreamBroken.into()).status.as_u16();
        self.decode_ended(if gone { CLIENT_CLOSED } else { broken });
    }
}
