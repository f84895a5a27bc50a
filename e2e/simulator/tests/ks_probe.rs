//! Probe.
use kvasir_simulator::experiment::Experiment;
use kvasir_simulator::policy::Policy;
use kvasir_simulator::presets::PRESETS;
use kvasir_simulator::workload::Workload;
#[test]
fn probe() {
    for (workload, policies) in [(Workload::Documents, vec![Policy::KvasirCost, Policy::KvCacheAware]), (Workload::Bursts, vec![Policy::KvasirCost, Policy::OracleReuse])] {
    let mut shape = PRESETS[0].shape();
    shape.kv_blocks /= 8;
    let e = Experiment { shape, pods: 4, uneven: false, replicas: 2, workloads: vec![workload], policies, affinity: None,
        seeds: (1..=12).collect(), kv_demand: 0.73, utilisation: 0.75, requests: 1200, warm_up: 0.3, length_scale: 0.25, slo: 1.0, jobs: 2 };
    for row in e.play(&|_, _| {}).unwrap() {
        let hits: Vec<String> = row.runs.iter().map(|r| format!("{:.1}/{:.0}", 100.0 * r.hit_rate, 1000.0 * r.ttft_p90)).collect();
        println!("{:?} {}", row.policy, hits.join(" "));
    }
    }
}
