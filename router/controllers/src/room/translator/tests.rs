use std::num::NonZeroU32;

use kvasir_api::{ModelRoute, Read};
use kvasir_state::Plan;
use serde_json::{Value, json};

use super::*;
use crate::watch::WatchedKind;

/// Remembers when plans came, and can panic.
#[derive(Default)]
struct Plans {
    came: Mutex<Vec<Instant>>,
    panics: Mutex<u32>,
}

impl PlanSink for Plans {
    fn apply(&self, _plan: Plan) {
        self.came.lock().push(Instant::now());
        let mut panics = self.panics.lock();
        if *panics > 0 {
            *panics -= 1;
            panic!("a bug");
        }
    }
}

struct Bench {
    store: Arc<Store>,
    plans: Arc<Plans>,
    outbox: Arc<Outbox>,
    leadership: Leadership,
    lead: watch::Sender<bool>,
    counts: Arc<Counts>,
    synced: watch::Receiver<bool>,
}

/// A translator at work over one kind, 20 plans a second.
fn bench() -> Bench {
    let store = Arc::new(Store::new([WatchedKind::ModelRoutes]));
    let plans = Arc::new(Plans::default());
    let outbox = Arc::new(Outbox::default());
    let (lead, leadership) = Leadership::by_hand();
    let (translator, synced, counts) = Translator::new(
        Arc::clone(&store),
        Options::default(),
        Duration::from_secs(1) / NonZeroU32::MIN.saturating_add(19).get(),
        Arc::clone(&plans) as Arc<dyn PlanSink>,
        (leadership.clone(), Arc::clone(&outbox)),
    );
    tokio::spawn(translator.run());
    Bench { store, plans, outbox, leadership, lead, counts, synced }
}

fn route(name: &str, generation: i64, status: Value) -> Read<ModelRoute> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "generation": generation, "uid": name},
        "spec": {"modelName": name, "rules": [{"targetModels": [{"modelServerName": "absent"}]}]},
        "status": status,
    }))
    .expect("readable")
}

impl Bench {
    fn list(&self, routes: impl IntoIterator<Item = Read<ModelRoute>>) {
        use crate::watch::Watched;
        let all = routes.into_iter().map(|route| (route.key(), Arc::new(route.keep()))).collect();
        self.store.replace::<Read<ModelRoute>>(all);
    }

    /// Lets everything run that can run at this moment.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn came(&self) -> Vec<Instant> {
        self.plans.came.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_plan_waits_for_the_list_and_comes_at_once() {
    let bench = bench();
    bench.store.apply(route("a", 1, json!(null)));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(bench.came().is_empty() && !*bench.synced.borrow());
    let listed = Instant::now();
    bench.list([route("a", 1, json!(null))]);
    bench.synced.clone().wait_for(|synced| *synced).await.expect("it runs");
    assert_eq!(bench.came(), [listed]);
    assert_eq!(bench.counts.read().translations, 1);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_makes_at_most_20_plans_a_second_and_the_last_counts() {
    let bench = bench();
    bench.list([]);
    bench.settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    for generation in 1..=1000 {
        bench.store.apply(route("a", generation, json!(null)));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let last = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let came = bench.came().into_iter().filter(|when| *when >= begin).collect::<Vec<_>>();
    assert!((39..=43).contains(&came.len()), "{} plans in two seconds", came.len());
    assert_eq!(came[0], begin, "the first change is not held back");
    let after = came.last().map(|when| *when >= last - Duration::from_millis(2));
    assert_eq!(after, Some(true), "the last change is in a plan");
    assert!(came.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(50)));
}

#[tokio::test(start_paused = true)]
async fn a_status_alone_makes_no_plan() {
    let bench = bench();
    bench.list([route("a", 1, json!(null))]);
    bench.settle().await;
    let status = json!({"observedGeneration": 1, "conditions": []});
    bench.store.apply(route("a", 1, status));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.came().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_plan() {
    let bench = bench();
    *bench.plans.panics.lock() = 1;
    bench.list([route("a", 1, json!(null))]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.counts.read().translations, 0);
    bench.store.apply(route("a", 2, json!(null)));
    bench.synced.clone().wait_for(|synced| *synced).await.expect("it runs");
    assert_eq!(bench.counts.read().translations, 1);
}

#[tokio::test(start_paused = true)]
async fn statuses_are_compared_by_the_leader_and_all_of_them_when_it_begins_to_lead() {
    let bench = bench();
    bench.list(["a", "b", "c"].map(|name| route(name, 1, json!(null))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.outbox.len(), 0, "another replica writes");
    bench.leadership.set(&bench.lead, true);
    bench.settle().await;
    assert_eq!(bench.outbox.len(), 3);
    // Somebody wipes a status: it is wanted again, without a new plan.
    bench.outbox.clear();
    bench.store.apply(route("b", 1, json!({"conditions": []})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((bench.outbox.len(), bench.came().len()), (1, 1));
    // A route that is gone is no longer waited for.
    bench.list([route("a", 1, json!(null))]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.outbox.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_meanwhile_is_not_written() {
    let bench = bench();
    bench.leadership.set(&bench.lead, true);
    bench.list([route("a", 1, json!(null))]);
    bench.settle().await;
    assert_eq!(bench.outbox.len(), 1);
    // The object says it by now, as another replica wrote it.
    let objects = bench.store.objects();
    let key = crate::StatusKind::ModelRoute;
    let status =
        translate(&objects, &Options::default()).statuses.into_iter().find(|status| status.kind == key);
    let said = crate::writer::said(&status.expect("one"), &Options::default().controller_name);
    bench.store.apply(route("a", 1, said));
    bench.settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((bench.outbox.len(), bench.came().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_named_though_another_replica_writes() {
    let bench = bench();
    bench.list([route("a", 1, json!(null))]);
    bench.settle().await;
    assert_eq!(bench.outbox.len(), 0);
    let outcome = apply(&bench.store.objects(), &Options::default(), bench.plans.as_ref());
    assert_eq!(refusals::tell(&Refusals::new(), &outcome.refused), 1, "its target is absent");
}
