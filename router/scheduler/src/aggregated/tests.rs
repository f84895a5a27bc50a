use super::*;
use crate::testing::{Fixed, Heard, Ranking, Ticking, cycle, endpoint, pool, request};
use kvasir_core::{BoxFuture, PlacementObserver, Plugin, PrefixHit, ProduceError, Scores};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Plugin for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }
}

impl PlacementObserver for Diary {
    fn dispatched(&self, _: &CycleState, endpoint: &Endpoint, cost: InFlightCost) {
        self.0.lock().push(format!("to {} for {}", endpoint.id.pod, cost.prefill_tokens));
    }
    fn completed(&self, _: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>) {
        self.0.lock().push(format!("done {} {:?}", endpoint.id.pod, usage.map(|usage| usage.prompt_tokens)));
    }
    fn failed(&self, _: &CycleState, endpoint: &Endpoint) {
        self.0.lock().push(format!("failed {}", endpoint.id.pod));
    }
}

/// Provides tokens (nothing in fact) and hits that favour the last candidate.
struct LastIsWarm;

impl Plugin for LastIsWarm {
    fn name(&self) -> &'static str {
        "last-is-warm"
    }
}

impl DataProducer for LastIsWarm {
    fn provides(&self) -> Needs {
        Needs::TOKENS | Needs::PREFIX_HITS
    }

    fn produce<'a>(
        &'a self,
        _: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            cycle.prompt_tokens = 100;
            cycle.hits = vec![PrefixHit::default(); pool.len()];
            if let Some(last) = cycle.hits.last_mut() {
                last.tokens = 50;
            }
            Ok(())
        })
    }
}

struct ByHits;

impl Plugin for ByHits {
    fn name(&self) -> &'static str {
        "by-hits"
    }
}

impl kvasir_core::Scorer for ByHits {
    fn needs(&self) -> Needs {
        Needs::PREFIX_HITS
    }
    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        for (index, _) in pool.kept() {
            out[index] = Some(f64::from(cycle.reusable_tokens(index)));
        }
    }
}

fn scheduler(
    scorer: Arc<dyn kvasir_core::Scorer>,
    extra: Needs,
    observers: Vec<Arc<dyn PlacementObserver>>,
) -> Scheduler {
    let profile =
        Profile { filters: Vec::new(), scorers: vec![(scorer, 1.0)], picker: Arc::new(Ranking), observers };
    Scheduler::new(
        profile,
        vec![Arc::new(LastIsWarm)],
        Duration::from_secs(5),
        Arc::new(Heard::default()),
        Arc::new(Ticking::default()),
        extra,
    )
}

#[tokio::test]
async fn what_was_gathered_decides() {
    let scheduler = scheduler(Arc::new(ByHits), Needs::NONE, Vec::new());
    let mut pool = pool(4);
    let cycle = scheduler.gather(&request(), &pool).await;
    assert_eq!(cycle.gathered_in, Duration::from_millis(1));
    let decision = scheduler.decide(&cycle, &mut pool, &mut StdRng::seed_from_u64(3)).unwrap();
    assert_eq!((decision.picks[0].index, decision.picks[0].total), (3, 50.0));
    assert!(scheduler.uses_tokens());
}

#[tokio::test]
async fn observers_may_need_data_that_no_scorer_reads() {
    let scorer = || Arc::new(Fixed("fixed", vec![Some(1.0)]));
    let without = scheduler(scorer(), Needs::NONE, Vec::new());
    assert!(!without.uses_tokens());
    assert!(without.gather(&request(), &pool(1)).await.hits.is_empty());
    let with = scheduler(scorer(), Needs::PREFIX_HITS, Vec::new());
    assert!(with.uses_tokens());
    assert_eq!(with.gather(&request(), &pool(1)).await.hits.len(), 1);
}

#[test]
fn observers_hear_of_every_attempt() {
    let diaries = [Arc::new(Diary::default()), Arc::new(Diary::default())];
    let observers = diaries.iter().map(|diary| Arc::clone(diary) as Arc<dyn PlacementObserver>).collect();
    let scheduler = scheduler(Arc::new(ByHits), Needs::NONE, observers);
    let cycle = cycle();
    scheduler.dispatched(
        &cycle,
        &endpoint(0),
        InFlightCost { prefill_tokens: 12, ..InFlightCost::default() },
    );
    scheduler.failed(&cycle, &endpoint(0));
    scheduler.completed(&cycle, &endpoint(1), Some(&Usage { prompt_tokens: 9, ..Usage::default() }));
    for diary in diaries {
        assert_eq!(*diary.0.lock(), ["to pod-0 for 12", "failed pod-0", "done pod-1 Some(9)"]);
    }
}
