//! How many pods serve a model as clients call it, and whether one of them has time.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use kvasir_core::{ModelPods, PodCount};

use crate::registry::State;

impl ModelPods for State {
    /// An alias has the pods of its targets. Ranks of one engine are one pod. A pod that is out of service, drains or
    /// sleeps is none; one whose engine tells nothing of its queue counts as one without.
    fn pods(&self, model: &str) -> PodCount {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let mut seen = HashSet::new();
        let mut any_without_waiting = false;
        for member in snapshot.table.targets_of(model).flat_map(|target| target.pool.iter()) {
            if member.live.draining.load(Ordering::Relaxed) || !member.live.is_available(now) {
                continue;
            }
            let id = &member.endpoint.id;
            seen.insert((&id.namespace, &id.pod, id.port));
            any_without_waiting = any_without_waiting
                || member.live.load(now, self.freshness).sample.is_none_or(|sample| sample.waiting == 0);
        }
        PodCount { pods: u32::try_from(seen.len()).unwrap_or(u32::MAX), any_without_waiting }
    }
}

impl State {
    /// Whether a ModelRoute, or a model of the settings, claims this name.
    pub fn claims(&self, model: &str) -> bool {
        self.snapshot.load().table.is_claimed(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;
    use crate::testing::{id, model, models, planned, state};
    use kvasir_core::{EndpointId, EngineSample, SampleSink as _};

    fn count(pods: u32, any_without_waiting: bool) -> PodCount {
        PodCount { pods, any_without_waiting }
    }

    fn waits(state: &State, pod: &str, waiting: u32) {
        state.sampled(&id(pod), Ok(EngineSample { waiting, ..EngineSample::default() }));
    }

    #[test]
    fn an_alias_and_an_adapter_have_the_pods_of_their_model() {
        let (state, _) = state();
        let mut one = model("m", &["a", "b"]);
        one.aliases = vec!["alias".into()];
        one.adapters = vec!["adapter".into()];
        state.replace(models(vec![one]));
        for name in ["m", "alias", "adapter"] {
            assert_eq!(state.pods(name), count(2, true), "{name}");
        }
        assert_eq!(state.pods("served"), count(0, false), "a name that no client can use");
        assert!(state.claims("alias") && state.claims("adapter") && !state.claims("served"));
    }

    #[test]
    fn one_pod_without_a_queue_is_enough_and_an_old_sample_says_nothing() {
        let (state, clock) = state();
        state.replace(models(vec![model("m", &["a", "b"])]));
        waits(&state, "a", 3);
        assert_eq!(state.pods("m"), count(2, true), "b has told nothing");
        waits(&state, "b", 1);
        assert_eq!(state.pods("m"), count(2, false));
        waits(&state, "a", 0);
        assert_eq!(state.pods("m"), count(2, true));
        waits(&state, "a", 2);
        clock.advance(std::time::Duration::from_secs(60));
        assert_eq!(state.pods("m"), count(2, true));
    }

    #[test]
    fn pods_out_of_service_are_none_and_ranks_are_one() {
        let (state, _) = state();
        let mut ranked = model("m", &["a", "b"]);
        let mut second = planned("a");
        second.id = EndpointId::new("default", "a", 8000, 1);
        ranked.endpoints.push(second);
        state.replace(models(vec![ranked]));
        assert_eq!(state.pods("m"), count(2, true));
        state.drain(&id("b").to_string(), true);
        assert_eq!(state.pods("m"), count(1, true));
        state.drain(&id("b").to_string(), false);
        state.report(&id("b"), Attempt::ConnectFailed);
        assert_eq!(state.pods("m"), count(1, true));
    }
}
