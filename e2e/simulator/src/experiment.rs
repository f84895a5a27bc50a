//! Many runs: every policy on every workload, over several seeds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::engine::EngineShape;
use crate::outcome::{Figures, Spread, figures};
use crate::policy::Policy;
use crate::run::{RunResult, Setup, run};
use crate::trace::Trace;
use crate::workload::{Demand, Workload, plan};

/// What is compared, and under which load.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The engine; with [`uneven`](Self::uneven) every second pod has half its speed and memory.
    pub shape: EngineShape,
    /// Pods.
    pub pods: usize,
    /// Whether every second pod is half as fast and half as large.
    pub uneven: bool,
    /// Router replicas.
    pub replicas: usize,
    /// Workloads, in the order they are shown.
    pub workloads: Vec<Workload>,
    /// Policies, in the order they are shown.
    pub policies: Vec<Policy>,
    /// Of `kvasir-cost`; `None` is the default.
    pub affinity: Option<f64>,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// Tokens worth keeping over the fleet's KV memory.
    pub kv_demand: f64,
    /// Work over capacity, by [`Trace::mean_work`].
    pub utilisation: f64,
    /// Requests of a run.
    pub requests: usize,
    /// Share of them that warms up.
    pub warm_up: f64,
    /// Factor of all lengths.
    pub length_scale: f64,
    /// Most seconds until the first token that are well.
    pub slo: f64,
    /// Runs at once.
    pub jobs: usize,
}

/// One policy on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: Workload,
    /// The policy.
    pub policy: Policy,
    /// One for each seed.
    pub runs: Vec<Figures>,
}

/// What a workload is on this fleet.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Nature {
    /// The workload.
    pub workload: Workload,
    /// Tokens worth keeping over the fleet's KV memory, as drawn.
    pub kv_demand: f64,
    /// Hit rate of one boundless cache that everybody shares.
    pub ideal_hit_rate: f64,
    /// Mean prompt, tokens.
    pub prompt: f64,
    /// Mean answer, tokens.
    pub answer: f64,
}

impl Row {
    /// Mean and deviation of one figure over the seeds.
    pub fn over_seeds(&self, of: impl Fn(&Figures) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(of))
    }
}

impl Experiment {
    /// The pods.
    pub fn shapes(&self) -> Vec<EngineShape> {
        let small = EngineShape {
            rates: self.shape.rates.faster(0.5),
            kv_blocks: self.shape.kv_blocks / 2,
            ..self.shape
        };
        (0..self.pods).map(|pod| if self.uneven && pod % 2 == 1 { small } else { self.shape }).collect()
    }

    fn demand(&self) -> Demand {
        let shapes = self.shapes();
        let speed = |shape: &EngineShape| self.shape.rates.step / shape.rates.step;
        Demand {
            pods: self.pods as u32,
            fleet_tokens: shapes.iter().map(EngineShape::kv_tokens).sum(),
            pod_tokens: shapes.iter().map(EngineShape::kv_tokens).min().unwrap_or_default(),
            kv_demand: self.kv_demand,
            utilisation: self.utilisation,
            requests: self.requests,
            warm_up: (self.requests as f64 * self.warm_up) as usize,
            length_scale: self.length_scale,
            speed: shapes.iter().map(speed).sum(),
        }
    }

    /// The requests of one seed.
    pub fn trace(&self, workload: Workload, seed: u64) -> Trace {
        plan(workload, &self.demand(), &self.shape, seed)
    }

    /// What `workload` is on this fleet, by the first seed.
    pub fn nature(&self, workload: Workload) -> Nature {
        let trace = self.trace(workload, self.seeds.first().copied().unwrap_or_default());
        let count = trace.requests.len().max(1) as f64;
        let mean = |of: fn(&crate::trace::Planned) -> u32| {
            trace.requests.iter().map(|request| f64::from(of(request))).sum::<f64>() / count
        };
        Nature {
            workload,
            kv_demand: trace.working_set as f64 / self.demand().fleet_tokens.max(1) as f64,
            ideal_hit_rate: trace.ideal_hit_rate(),
            prompt: mean(crate::trace::Planned::prompt_tokens),
            answer: mean(|request| request.answer.tokens),
        }
    }

    /// One run.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run_one(
        &self,
        workload: Workload,
        policy: Policy,
        seed: u64,
    ) -> anyhow::Result<(Figures, RunResult)> {
        let trace = self.trace(workload, seed);
        let setup =
            Setup { shapes: self.shapes(), replicas: self.replicas, policy, affinity: self.affinity, seed };
        let result = run(&setup, &trace)?;
        let counted = result.fates.get(trace.warm_up..).unwrap_or_default();
        Ok((figures(counted, self.pods, self.slo), result))
    }

    /// Every run, as many at once as [`jobs`](Self::jobs) says; `progress` hears of each that ended.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn play(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> anyhow::Result<Vec<Row>> {
        let mut tasks = Vec::new();
        for workload in &self.workloads {
            for policy in &self.policies {
                tasks.extend(self.seeds.iter().map(|seed| (*workload, *policy, *seed)));
            }
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(vec![None; tasks.len()]);
        let ended = AtomicUsize::new(0);
        let work = || -> anyhow::Result<()> {
            while let Some((workload, policy, seed)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (figures, _) = self.run_one(*workload, *policy, *seed)?;
                let at = tasks.iter().position(|task| *task == (*workload, *policy, *seed));
                if let (Ok(mut done), Some(at)) = (done.lock(), at) {
                    done[at] = Some(figures);
                }
                progress(ended.fetch_add(1, Ordering::Relaxed) + 1, tasks.len());
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a run panicked")))
            })
        })?;
        let mut all = done.into_inner().unwrap_or_default().into_iter().flatten();
        let mut rows = Vec::new();
        for workload in &self.workloads {
            for policy in &self.policies {
                let runs = all.by_ref().take(self.seeds.len()).collect();
                rows.push(Row { workload: *workload, policy: *policy, runs });
            }
        }
        Ok(rows)
    }
}
