//! `lora-affinity`: keeps the endpoints that serve the name the client asked for.
//!
//! An endpoint serves the name when it is its model or one of its adapters. Where no candidate is known to serve
//! it, the name is an alias or an adapter that nobody has listed yet: then the filter cannot tell and keeps all,
//! and an engine that does not know the name says so itself.
//!
//! No parameters.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Filter:
//!       enabled: [lora-affinity]
//! ```

use kvasir_core::{Candidates, CycleState, Endpoint, Filter, Plugin};

/// The filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoraAffinity;

impl LoraAffinity {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "lora-affinity";
}

impl Plugin for LoraAffinity {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Filter for LoraAffinity {
    fn filter(&self, cycle: &CycleState, pool: &mut Candidates) {
        let name = cycle.requested_model.as_str();
        if name == cycle.model.as_str() {
            return;
        }
        if pool.kept().any(|(_, candidate)| serves(&candidate.endpoint, name)) {
            pool.retain(|candidate| serves(&candidate.endpoint, name));
        }
    }
}

fn serves(endpoint: &Endpoint, name: &str) -> bool {
    endpoint.model.as_str() == name || endpoint.adapters.iter().any(|adapter| adapter.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, endpoint};
    use kvasir_core::{Candidate, Load};
    use std::sync::Arc;

    /// Three endpoints of model `m`: without adapters, with `red`, with `red` and `blue`.
    fn pool() -> Candidates {
        let with = |index, adapters: &[&str]| {
            let adapters = adapters.iter().map(|name| (*name).into()).collect();
            let endpoint = Arc::new(Endpoint { adapters, ..endpoint(index) });
            Candidate { endpoint, load: Load::default() }
        };
        Candidates::new(vec![with(0, &[]), with(1, &["red"]), with(2, &["red", "blue"])])
    }

    #[test]
    fn the_requested_name_decides() {
        for (name, kept) in [
            ("red", [false, true, true]),
            ("blue", [false, false, true]),
            ("m", [true, true, true]),
            ("an-alias", [true, true, true]),
            ("Red", [true, true, true]),
        ] {
            let mut pool = pool();
            let mut cycle = cycle();
            cycle.requested_model = name.to_owned();
            LoraAffinity.filter(&cycle, &mut pool);
            assert_eq!([0, 1, 2].map(|index| pool.is_kept(index)), kept, "{name}");
        }
    }
}
