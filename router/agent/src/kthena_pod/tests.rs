//! Taps and their pod, and what a pod's writers put where.

use kvasir_coordination::key;
use kvasir_coordination::testing::TestServer;
use kvasir_core::{EngineHash, KvEvent, Stored};
use kvasir_kvcache::{Batch, EventTap};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::eventually;

fn pod() -> Arc<KthenaPod> {
    let name = PodName { namespace: "ns".into(), pod: "pod".into() };
    Arc::new(KthenaPod::new(name, "m".into(), EngineKind::Vllm))
}

fn batch(seq: u64, first: u64, adapter: Option<&str>) -> Batch {
    let stored = Stored {
        hashes: vec![EngineHash::Int { bits: first, negative: false }],
        token_ids: (0..16).collect(),
        block_size: 16,
        adapter: adapter.map(Into::into),
        ..Stored::default()
    };
    Batch { seq, events: vec![KvEvent::Stored(stored)], ..Batch::default() }
}

#[test]
fn ranks_of_a_pod_count_together_and_go_alone() {
    let pod = pod();
    let (zero, one) = (RankTap::new(Arc::clone(&pod), 0, None), RankTap::new(Arc::clone(&pod), 1, None));
    zero.applied(&batch(0, 1, None));
    one.applied(&batch(0, 1, None));
    assert_eq!((pod.line().keys, pod.line().blocks), (1, 2));
    zero.reset();
    assert_eq!((pod.line().keys, pod.line().blocks), (1, 1));
    one.forget();
    assert_eq!(pod.line().keys, 0);
    one.applied(&batch(0, 1, None));
    assert_eq!(pod.line().keys, 0, "numbers go on after a sleep");
    one.applied(&batch(1, 1, None));
    assert_eq!(pod.line().keys, 1);
}

#[test]
fn a_tap_goes_on_from_its_ledger_once_it_is_proved() {
    let first = pod();
    let tap = RankTap::new(Arc::clone(&first), 0, None);
    tap.applied(&batch(4, 1, None));
    let saved = first.ledger.lock().save(0);
    let second = pod();
    let tap = RankTap::new(Arc::clone(&second), 7, saved.clone());
    assert_eq!(second.line().keys, 0, "not before");
    tap.restored();
    assert_eq!(second.line().keys, 1);
    tap.applied(&batch(4, 2, None));
    assert_eq!(second.line().blocks, 1, "the batch is in the state");

    let other_life = pod();
    let tap = RankTap::new(Arc::clone(&other_life), 7, saved);
    tap.reset();
    tap.restored();
    assert_eq!(other_life.line().keys, 0, "a state of another life is never used");
}

#[test]
fn capacity_is_that_of_all_ranks() {
    let pod = pod();
    let (zero, one) = (RankTap::new(Arc::clone(&pod), 0, None), RankTap::new(Arc::clone(&pod), 1, None));
    zero.set_capacity(600);
    one.set_capacity(600);
    for number in 0..2000 {
        zero.applied(&batch(number, number, None));
    }
    assert_eq!(pod.line().blocks, 2000, "twice 1,200 blocks fit");
    for number in 2000..9000 {
        zero.applied(&batch(number, number, None));
    }
    assert!(pod.line().blocks <= 2401, "{}", pod.line().blocks);
}

#[tokio::test]
async fn adapters_have_keys_of_their_own() {
    let redis = TestServer::start().await;
    let pod = pod();
    let tap = RankTap::new(Arc::clone(&pod), 0, None);
    tap.applied(&batch(0, 1, None));
    tap.applied(&batch(1, 2, Some("sql")));
    let stop = CancellationToken::new();
    let task = tokio::spawn(writing::write(Arc::clone(&pod), redis.redis().await, stop.clone()));
    let owned = async |model: &str| {
        let key = key::kthena_block(model, 6_473_494_984_593_326_032);
        redis.ask(&["HEXISTS", &key, "pod.ns"]).await == ["1"]
    };
    redis.ask(&["HSET", "matrix:kv:block:sql@5", "pod.ns", "1"]).await;
    assert!(!owned("m").await, "nothing is written before the pod is opened");
    pod.open();
    eventually("both are written", async || owned("m").await && owned("sql").await).await;
    eventually("both names are gone through", async || {
        let line = pod.line();
        !line.reconciling && line.pending == 0 && line.stale_removed == 1
    })
    .await;
    for name in ["vllm:kv:block:pod.ns@1", "vllm:kv:block:pod.ns@2"] {
        assert_eq!(redis.ask(&["EXISTS", name]).await, ["1"], "{name} is kept by both writers");
    }
    tap.reset();
    // The last changes are written at the end.
    stop.cancel();
    task.await.unwrap();
    assert!(!owned("m").await && !owned("sql").await);
}
