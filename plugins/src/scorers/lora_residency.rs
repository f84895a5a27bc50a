//! `lora-residency`: prefers endpoints that have the request's LoRA adapter loaded, and avoids those that load it.
//!
//! | the adapter there | score |
//! |---|---|
//! | is loaded | 100 |
//! | is not, and there is room | 60 |
//! | unknown: the engine does not tell, or told too long ago | 40 |
//! | is not, and has to wait until another one leaves | 20 |
//! | is being loaded, or waited for | 0 |
//!
//! No opinion for a request without an adapter, and where no engine tells. No parameters.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: kvasir-cost, weight: 1}
//!         - {name: lora-residency, weight: 1}
//! ```

use kvasir_core::{AdapterStanding, Candidates, CycleState, Plugin, Scorer, Scores};

/// The scorer.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoraResidency;

impl LoraResidency {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "lora-residency";
}

impl Plugin for LoraResidency {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for LoraResidency {
    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let tells = |standing| standing != AdapterStanding::Unknown;
        if cycle.adapter.is_none() || !pool.kept().any(|(_, candidate)| tells(candidate.load.adapter)) {
            return;
        }
        super::fill(pool, out, |_, candidate| Some(worth(candidate.load.adapter)));
    }
}

/// A request at a loaded adapter costs nothing more; elsewhere it pays for the loading, at a full engine for the wait
/// for another adapter's requests too, and where a loading is on its way it stands in line behind those that wait.
fn worth(standing: AdapterStanding) -> f64 {
    match standing {
        AdapterStanding::Resident => 100.0,
        AdapterStanding::Absent => 60.0,
        AdapterStanding::Unknown => 40.0,
        AdapterStanding::Full => 20.0,
        AdapterStanding::Loading => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use AdapterStanding::{Absent, Full, Loading, Resident, Unknown};

    use super::*;
    use crate::testing::{cycle, pool_of, scores_of};
    use kvasir_core::Load;

    fn pool(standings: &[AdapterStanding]) -> Candidates {
        pool_of(standings.iter().map(|adapter| Load { adapter: *adapter, ..Load::default() }))
    }

    fn for_adapter() -> CycleState {
        CycleState { adapter: Some("sql".into()), ..cycle() }
    }

    #[test]
    fn the_loaded_come_first_and_the_loading_last() {
        let pool = pool(&[Full, Resident, Loading, Absent, Unknown]);
        let scores = scores_of(&LoraResidency, &for_adapter(), &pool);
        assert_eq!(scores, [20.0, 100.0, 0.0, 60.0, 40.0].map(Some));
    }

    #[test]
    fn there_is_no_opinion_without_an_adapter_or_without_knowledge() {
        assert_eq!(scores_of(&LoraResidency, &cycle(), &pool(&[Resident, Absent])), [None, None]);
        assert_eq!(scores_of(&LoraResidency, &for_adapter(), &pool(&[Unknown, Unknown])), [None, None]);
    }

    #[test]
    fn what_a_dropped_endpoint_tells_does_not_count() {
        let mut pool = pool(&[Resident, Unknown]);
        pool.retain(|candidate| candidate.load.adapter == Unknown);
        assert_eq!(scores_of(&LoraResidency, &for_adapter(), &pool), [None, None]);
    }
}
