use super::*;
use crate::experiment::Experiment;
use crate::presets::PRESETS;
use crate::workload::Workload;

/// Four small pods; lengths and memory are a quarter of the preset's, times stay in proportion.
fn small(workloads: &[Workload], policies: &[Policy], seeds: &[u64]) -> Experiment {
    let mut shape = PRESETS[0].shape();
    shape.kv_blocks /= 8;
    Experiment {
        shape,
        pods: 4,
        uneven: false,
        replicas: 2,
        workloads: workloads.to_vec(),
        policies: policies.to_vec(),
        affinity: None,
        seeds: seeds.to_vec(),
        kv_demand: 0.73,
        utilisation: 0.75,
        requests: 900,
        warm_up: 0.3,
        length_scale: 0.25,
        slo: 1.0,
        jobs: 2,
    }
}

#[test]
fn every_request_ends_once_in_order_of_its_moments() {
    for policy in Policy::ALL {
        let experiment = small(&[Workload::Mixed], &[policy], &[3]);
        let trace = experiment.trace(Workload::Mixed, 3);
        let (_, result) = experiment.run_one(Workload::Mixed, policy, 3).unwrap();
        assert_eq!(result.fates.len(), trace.requests.len());
        for (fate, request) in result.fates.iter().zip(&trace.requests) {
            assert!(
                request.at <= fate.came && fate.came < fate.first && fate.first <= fate.ended,
                "{fate:?}"
            );
            assert!(fate.cached < fate.prompt && fate.prompt == request.prompt_tokens(), "{fate:?}");
            if let Some(before) = request.after {
                assert!(result.fates[before as usize].ended < fate.came, "{}", policy.name());
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_fates_and_another_one_others() {
    for policy in [Policy::KvasirCost, Policy::KthenaDefault, Policy::OracleReuse] {
        let experiment = small(&[Workload::Agents], &[policy], &[1]);
        let fates = |seed| experiment.run_one(Workload::Agents, policy, seed).unwrap().1.fates;
        assert_eq!(fates(1), fates(1), "{}", policy.name());
        assert_ne!(fates(1), fates(2), "{}", policy.name());
    }
}

#[test]
fn uneven_pods_get_uneven_work() {
    let mut experiment = small(&[Workload::Short], &[Policy::LeastRequest], &[1]);
    experiment.uneven = true;
    experiment.length_scale = 1.0;
    let (_, result) = experiment.run_one(Workload::Short, Policy::LeastRequest, 1).unwrap();
    let at = |odd: u32| result.fates.iter().filter(|fate| fate.pod % 2 == odd).count();
    assert!(at(0) > at(1) * 11 / 10, "{} {}", at(0), at(1));
}

#[test]
fn a_request_that_fits_nowhere_is_said_to() {
    let mut experiment = small(&[Workload::SystemMany], &[Policy::Random], &[1]);
    experiment.shape.kv_blocks = 40;
    let error = experiment.run_one(Workload::SystemMany, Policy::Random, 1).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
}
