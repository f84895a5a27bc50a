//! One running attempt at one endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvasir_core::InFlightCost;

use crate::live::Live;

/// Counts from [`State::begin`](crate::State::begin) until it is dropped, however the attempt ends. Goes on counting
/// down on the numbers it counted up, also when its endpoint is long gone.
#[derive(Debug)]
#[must_use = "dropping it ends the attempt"]
pub struct InFlight {
    live: Arc<Live>,
    cost: InFlightCost,
    decoding: bool,
    /// Whether this is the one request that tries an endpoint that is out.
    trial: bool,
}

impl InFlight {
    pub(crate) fn new(live: Arc<Live>, cost: InFlightCost, trial: bool) -> Self {
        live.requests.fetch_add(1, Ordering::Relaxed);
        live.in_flight.fetch_add(1, Ordering::Relaxed);
        live.prefill_tokens.fetch_add(u64::from(cost.prefill_tokens), Ordering::Relaxed);
        Self { live, cost, decoding: false, trial }
    }

    /// The answer's first byte is here: the prompt is prefilled, and the endpoint decodes. Only the first call counts.
    pub fn first_byte(&mut self) {
        if !self.decoding {
            self.decoding = true;
            self.live.prefill_tokens.fetch_sub(u64::from(self.cost.prefill_tokens), Ordering::Relaxed);
            self.live.decoding.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.decoding {
            self.live.decoding.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.live.prefill_tokens.fetch_sub(u64::from(self.cost.prefill_tokens), Ordering::Relaxed);
        }
        self.live.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.trial {
            self.live.in_trial.store(false, Ordering::Relaxed);
        }
    }
}
