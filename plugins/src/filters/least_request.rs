//! `least-request` as a filter: drops endpoints whose engine reports a full queue.
//!
//! Keeps an endpoint while `waiting < maxWaitingRequests`. An endpoint without a scrape counts as empty.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `maxWaitingRequests` | 10 | 0 is the default; a negative number drops every endpoint |
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: least-request
//!       args: {maxWaitingRequests: 10}
//!   plugins:
//!     Filter:
//!       enabled: [least-request]
//! ```

use kvasir_core::{Candidates, CycleState, Filter, Plugin};
use kvasir_settings::resolved::LeastRequestArgs;

/// The filter.
#[derive(Clone, Debug)]
pub struct LeastRequest {
    max_waiting: i64,
}

impl LeastRequest {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "least-request";

    /// With its arguments.
    pub fn new(args: &LeastRequestArgs) -> Self {
        let max_waiting = match args.max_waiting_requests {
            0 => LeastRequestArgs::default().max_waiting_requests,
            limit => limit,
        };
        Self { max_waiting }
    }
}

impl Plugin for LeastRequest {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Filter for LeastRequest {
    fn filter(&self, _: &CycleState, pool: &mut Candidates) {
        pool.retain(|candidate| {
            let waiting = candidate.load.sample.map_or(0, |sample| sample.waiting);
            i64::from(waiting) < self.max_waiting
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, pool_of, sampled};
    use kvasir_core::{EngineSample, Load};

    #[test]
    fn an_endpoint_is_kept_below_the_limit() {
        for (limit, waiting, kept) in [
            (10, Some(9), true),
            (10, Some(10), false),
            (10, None, true),
            (1, Some(0), true),
            (1, Some(1), false),
            (0, Some(9), true),
            (0, Some(10), false),
            (-1, Some(0), false),
            (-1, None, false),
        ] {
            let load = waiting.map_or_else(Load::default, |waiting| {
                sampled(EngineSample { waiting, ..EngineSample::default() })
            });
            let mut pool = pool_of([load]);
            LeastRequest::new(&LeastRequestArgs { max_waiting_requests: limit }).filter(&cycle(), &mut pool);
            assert_eq!(pool.is_kept(0), kept, "limit {limit}, waiting {waiting:?}");
        }
    }
}
