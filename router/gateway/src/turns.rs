//! Whose turn it is: the picks in their order, less those that have left service since.

use kvasir_core::Pick;
use kvasir_state::State;

/// The turns of one request. A decision is frozen, and retries may come minutes after it: by then a pod may terminate,
/// be drained, or have made room for another one in its slot.
#[derive(Debug)]
pub(crate) struct Turns<'p> {
    picks: &'p [Pick],
    /// Turns that were taken or passed over.
    taken: usize,
    most: usize,
}

impl<'p> Turns<'p> {
    /// One turn for each pick, or the picks `again` and again.
    pub(crate) fn of(picks: &'p [Pick], again: bool) -> Self {
        Self { picks, taken: 0, most: if again { usize::MAX } else { picks.len() } }
    }

    /// The next pick that takes requests now, with its prefill endpoint; `None` when none does. The first turn is everybody's best pick even then:
    /// the decision has just been made, and a pod that has begun to leave still answers.
    pub(crate) fn next(&mut self, state: &State) -> Option<&'p Pick> {
        let first = self.taken == 0;
        for _ in self.picks {
            if self.taken == self.most {
                break;
            }
            let pick = self.picks.get(self.taken % self.picks.len())?;
            self.taken += 1;
            let prefills = pick.prefill.as_ref().is_none_or(|prefill| state.still_takes(&prefill.endpoint));
            if prefills && state.still_takes(&pick.endpoint) {
                return Some(pick);
            }
        }
        self.picks.first().filter(|_| first)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kvasir_core::{Address, EndpointId, EngineKind, PrefillPick, Role, SystemClock};
    use kvasir_state::{Plan, PlanEndpoint, PlanModel, StateOptions};

    use super::*;

    fn id(pod: &str) -> EndpointId {
        EndpointId::new("ns", pod, 8000, 0)
    }

    /// A plan of pods, each with whether it is ready and when it started.
    fn plan(pods: &[(&str, bool, u64)]) -> Plan {
        let endpoint = |(pod, ready, started): &(&str, bool, u64)| PlanEndpoint {
            id: id(pod),
            address: Address::parse(&format!("http://{pod}:8000")).unwrap(),
            engine: EngineKind::Vllm,
            role: Role::Both,
            pin_rank: false,
            labels: Default::default(),
            started_at: Some(*started),
            ready: *ready,
        };
        let model = PlanModel {
            name: "m".into(),
            served: "m".into(),
            aliases: Vec::new(),
            adapters: Vec::new(),
            endpoints: pods.iter().map(endpoint).collect(),
            disaggregation: None,
        };
        Plan { models: vec![model], ..Plan::default() }
    }

    /// A state of the pods a, b and c, and a decision for them in this order.
    fn decided() -> (State, Vec<Pick>) {
        let state = State::new(Arc::new(SystemClock), StateOptions::default());
        state.replace(plan(&[("a", true, 1), ("b", true, 1), ("c", true, 1)]));
        let pick = |(index, pod)| {
            let endpoint = state.endpoint(&id(pod)).unwrap();
            Pick { index, endpoint, prefill: None, total: 0.0 }
        };
        let picks = ["a", "b", "c"].into_iter().enumerate().map(pick).collect();
        (state, picks)
    }

    fn pods(turns: &mut Turns<'_>, state: &State, count: usize) -> String {
        let turn =
            |_| turns.next(state).map_or_else(|| "-".to_owned(), |pick| pick.endpoint.id.pod.to_string());
        (0..count).map(turn).collect()
    }

    #[test]
    fn the_picks_take_turns() {
        let (state, picks) = decided();
        assert_eq!(pods(&mut Turns::of(&picks, true), &state, 7), "abcabca");
        assert_eq!(pods(&mut Turns::of(&[], true), &state, 2), "--");
        assert_eq!(pods(&mut Turns::of(&picks, false), &state, 5), "abc--");
        // Whoever leaves gives no other pick a second turn.
        state.replace(plan(&[("a", true, 1), ("c", true, 1)]));
        assert_eq!(pods(&mut Turns::of(&picks, false), &state, 4), "ac--");
    }

    #[test]
    fn who_has_left_since_the_decision_gets_no_retry() {
        for (after, expected) in [
            (plan(&[("a", true, 1), ("b", false, 1), ("c", true, 1)]), "acac"),
            (plan(&[("a", true, 1), ("c", true, 1)]), "acac"),
            // Another engine under the old name: what was found out about the old one is not true of it.
            (plan(&[("a", true, 1), ("b", true, 2), ("c", true, 1)]), "acac"),
            (plan(&[("a", false, 1), ("c", true, 1)]), "accc"),
            (plan(&[("a", false, 1)]), "a---"),
        ] {
            let (state, picks) = decided();
            let mut turns = Turns::of(&picks, true);
            let first = pods(&mut turns, &state, 1);
            state.replace(after);
            assert_eq!(first + &pods(&mut turns, &state, 3), expected);
        }
    }

    #[test]
    fn the_first_turn_is_somebodys_in_any_case() {
        let (state, picks) = decided();
        state.replace(plan(&[("a", false, 1), ("b", true, 1)]));
        assert_eq!(pods(&mut Turns::of(&picks, true), &state, 2), "bb");
        state.replace(Plan::default());
        assert_eq!(pods(&mut Turns::of(&picks, true), &state, 2), "a-");
    }

    #[test]
    fn a_pair_has_its_turn_while_both_of_it_are_there() {
        let (state, mut picks) = decided();
        let prefill = PrefillPick { index: 2, endpoint: state.endpoint(&id("c")).unwrap(), total: 0.0 };
        picks.truncate(2);
        picks[1].prefill = Some(prefill);
        assert_eq!(pods(&mut Turns::of(&picks, true), &state, 3), "aba");
        state.replace(plan(&[("a", true, 1), ("b", true, 1), ("c", false, 1)]));
        assert_eq!(pods(&mut Turns::of(&picks, true), &state, 3), "aaa");
    }
}
