use super::*;
use crate::presets::PRESETS;

fn demand() -> Demand {
    let shape = PRESETS[0].shape();
    Demand {
        pods: 4,
        fleet_tokens: 4 * shape.kv_tokens(),
        pod_tokens: shape.kv_tokens(),
        kv_demand: 0.73,
        utilisation: 0.7,
        requests: 1500,
        warm_up: 300,
        length_scale: 1.0,
        speed: 4.0,
    }
}

#[test]
fn plans_are_in_order_long_enough_and_the_same_for_a_seed() {
    let shape = PRESETS[0].shape();
    for workload in Workload::ALL {
        let trace = plan(workload, &demand(), &shape, 5);
        assert!(trace.requests.len() >= 1500, "{}", workload.name());
        assert!(trace.requests.is_sorted_by_key(|request| request.at), "{}", workload.name());
        let again = plan(workload, &demand(), &shape, 5);
        let key = |trace: &Trace| {
            trace.requests.iter().map(|request| (request.at, request.prompt.clone())).collect::<Vec<_>>()
        };
        assert_eq!(key(&trace), key(&again), "{}", workload.name());
        assert_ne!(key(&trace), key(&plan(workload, &demand(), &shape, 6)), "{}", workload.name());
    }
}

#[test]
fn the_kv_demand_is_met_where_there_is_something_to_keep() {
    let shape = PRESETS[0].shape();
    for workload in Workload::ALL {
        let trace = plan(workload, &demand(), &shape, 5);
        let share = trace.working_set as f64 / demand().fleet_tokens as f64;
        match workload {
            Workload::Short => assert_eq!(trace.working_set, 0),
            Workload::SystemFew => assert!(share < 0.05, "{share}"),
            _ => assert!((0.72..0.80).contains(&share), "{} {share}", workload.name()),
        }
    }
}

#[test]
fn work_comes_at_the_wanted_rate() {
    let shape = PRESETS[0].shape();
    for workload in Workload::ALL {
        let trace = plan(workload, &demand(), &shape, 5);
        let length = crate::clock::seconds(trace.requests.last().unwrap().at);
        let utilisation = trace.requests.len() as f64 * trace.mean_work(&shape) / length / 4.0;
        // A few hundred arrivals and a handful of bursts are no precise clock.
        assert!((0.55..0.9).contains(&utilisation), "{} {utilisation}", workload.name());
    }
}

#[test]
fn a_turn_continues_the_prompt_and_the_answer_before_it() {
    let trace = plan(Workload::Chat, &demand(), &PRESETS[0].shape(), 5);
    let mut continued = 0;
    for request in &trace.requests {
        let Some(before) = request.after.map(|before| &trace.requests[before as usize]) else { continue };
        let said = before.prompt.len();
        assert_eq!(request.prompt[..said], before.prompt[..]);
        assert_eq!(request.prompt[said], before.answer);
        continued += 1;
    }
    assert!(continued > 300, "{continued}");
}

#[test]
fn tasks_branch_over_a_common_trunk() {
    let trace = plan(Workload::Agents, &demand(), &PRESETS[0].shape(), 5);
    let siblings = trace.requests.windows(2).filter(|pair| {
        let trunk = pair[0].prompt.len() - 1;
        pair[0].session == pair[1].session
            && pair[1].prompt.len() == pair[0].prompt.len()
            && pair[1].prompt[..trunk] == pair[0].prompt[..trunk]
            && pair[1].at - pair[0].at < 200_000_000
    });
    assert!(siblings.count() > 200);
}

#[test]
fn a_boundless_cache_reuses_what_was_seen_and_never_a_whole_prompt() {
    let trace = plan(Workload::Short, &demand(), &PRESETS[0].shape(), 5);
    assert_eq!(trace.ideal_reuse().iter().max(), Some(&0));
    let trace = plan(Workload::Documents, &demand(), &PRESETS[0].shape(), 5);
    assert!(trace.ideal_hit_rate() > 0.9, "{}", trace.ideal_hit_rate());
    for (request, reused) in trace.requests.iter().zip(trace.ideal_reuse()) {
        assert!(reused < request.prompt_tokens());
    }
}
