use std::time::Duration;

use kvasir_core::{Endpoint, EndpointId, EngineSample, Load, QueryError, TokenSource, Tokenized};
use proptest::prelude::*;

use super::*;
use crate::testing::{Index, Store, endpoint, pool_of, request, sampled};

fn tokens(count: u32) -> TokenSlot {
    TokenSlot::Ready(Tokenized {
        ids: (0..count).collect(),
        source: TokenSource::Given,
        took: Duration::ZERO,
        whole: true,
    })
}

fn producer(
    store: &Arc<Store>,
    args: &KvCacheAwareArgs,
    mode: Option<CoordinationMode>,
) -> (StoreHits, Arc<HitSource>) {
    let index = Index {
        held: [(0, 16), (1, 320), (2, 48), (3, 0)].into(),
        known: [
            (0, Completeness::Exact),
            (1, Completeness::Partial),
            (2, Completeness::Approximate),
            (3, Completeness::Approximate),
        ]
        .into(),
        ..Index::default()
    };
    let source = Arc::new(HitSource::new(mode.into()));
    let lookup = Arc::clone(store) as Arc<dyn BlockLookup>;
    let store = StoreLookup { lookup, source: Arc::clone(&source) };
    (StoreHits::new(PrefixHits::new(Arc::new(index)), store, args), source)
}

/// What is found for `request` with `count` tokens.
async fn hits(
    store: &Arc<Store>,
    args: &KvCacheAwareArgs,
    request: &InferenceRequest,
    pool: &Candidates,
    count: u32,
) -> Result<Vec<PrefixHit>, ProduceError> {
    let mut cycle = CycleState::new(request);
    cycle.tokens = tokens(count);
    let (producer, _) = producer(store, args, Some(CoordinationMode::Query));
    producer.produce(request, pool, &mut cycle).await.map(|()| cycle.hits)
}

fn found(tokens: u32, block_tokens: u32) -> PrefixHit {
    PrefixHit { tokens, block_tokens, completeness: Some(Completeness::Partial), ..PrefixHit::default() }
}

/// Section 7 of kthena's layout: 40 tokens in blocks of 16 are two full blocks; the partial one is not asked for.
#[tokio::test]
async fn full_blocks_are_asked_for_by_their_content() {
    let store = Store::holding(&[2, 1, 0]);
    let pool = pool_of([Load::default(); 3]);
    let got = hits(&store, &KvCacheAwareArgs::default(), &request(), &pool, 40).await;
    assert_eq!(got, Ok(vec![found(32, 16), found(16, 16), found(0, 16)]));
    let asked = store.asked.lock().pop().unwrap();
    assert_eq!(asked.hashes, [6_473_494_984_593_326_032, 3_036_027_678_049_585_822]);
    assert_eq!(asked.models, ["m"]);
    assert_eq!(asked.owners, ["pod-0.default", "pod-1.default", "pod-2.default"]);
}

#[tokio::test]
async fn the_window_and_the_block_size_are_the_arguments() {
    let pool = pool_of([Load::default()]);
    for (block_size_to_hash, max_blocks_to_match, count, blocks) in
        [(16, None, 16 * 200, 128), (16, Some(200), 16 * 300, 200), (64, None, 200, 3), (64, Some(2), 200, 2)]
    {
        let args =
            KvCacheAwareArgs { block_size_to_hash, max_blocks_to_match, ..KvCacheAwareArgs::default() };
        let store = Store::holding(&[u32::MAX]);
        let got = hits(&store, &args, &request(), &pool, count).await.unwrap();
        assert_eq!(store.asked.lock().pop().unwrap().hashes.len(), blocks);
        assert_eq!(
            got,
            [found(blocks as u32 * block_size_to_hash, block_size_to_hash)],
            "never beyond the window"
        );
    }
}

#[tokio::test]
async fn blocks_are_filed_under_the_engines_or_the_adapters_name_and_the_clients() {
    let plain = request();
    let alias = InferenceRequest { requested_model: "alias".into(), ..request() };
    let adapted =
        InferenceRequest { requested_model: "sql".into(), adapter: Some("sql".into()), ..request() };
    for (request, names) in [(plain, vec!["m"]), (alias, vec!["m", "alias"]), (adapted, vec!["sql"])] {
        let store = Store::holding(&[1]);
        hits(&store, &KvCacheAwareArgs::default(), &request, &pool_of([Load::default()]), 16).await.unwrap();
        assert_eq!(store.asked.lock().pop().unwrap().models, names);
    }
}

#[tokio::test]
async fn ranks_hold_what_their_pod_holds() {
    let rank = |slot, pod: &str, rank| {
        let id = EndpointId::new("ns", pod, 8000, rank);
        let endpoint = Endpoint { id, started_at: Some(7), ..endpoint(slot) };
        Candidate { endpoint: Arc::new(endpoint), load: Load::default() }
    };
    let pool = Candidates::new(vec![rank(0, "a", 0), rank(1, "b", 0), rank(2, "a", 1)]);
    let store = Store::holding(&[2, 1]);
    let got = hits(&store, &KvCacheAwareArgs::default(), &request(), &pool, 32).await;
    assert_eq!(got, Ok(vec![found(32, 16), found(16, 16), found(32, 16)]));
    let asked = store.asked.lock().pop().unwrap();
    assert_eq!((asked.owners, asked.started), (vec!["a.ns".to_owned(), "b.ns".to_owned()], vec![Some(7); 2]));
}

#[tokio::test]
async fn nobody_is_asked_where_nothing_could_count() {
    let store = Store::holding(&[1]);
    let pool = pool_of([Load::default()]);
    let args = KvCacheAwareArgs::default();
    let salted = InferenceRequest { cache_salt: Some("s".into()), ..request() };
    let skipping = InferenceRequest { skips_cache: true, ..request() };
    assert_eq!(hits(&store, &args, &salted, &pool, 64).await, Ok(vec![PrefixHit::default()]));
    assert_eq!(hits(&store, &args, &skipping, &pool, 64).await, Ok(vec![PrefixHit::default()]));
    assert_eq!(hits(&store, &args, &request(), &pool, 15).await, Ok(vec![found(0, 16)]), "no full block");
    assert!(store.asked.lock().is_empty());
}

#[tokio::test]
async fn a_failure_is_named_and_leaves_nothing() {
    let pool = pool_of([Load::default()]);
    for (error, reason) in [
        (QueryError::Unreachable, "unreachable"),
        (QueryError::TimedOut, "timeout"),
        (QueryError::Refused, "refused"),
    ] {
        let store = Arc::new(Store { answer: Err(error), ..Store::default() });
        let got = hits(&store, &KvCacheAwareArgs::default(), &request(), &pool, 16).await;
        assert_eq!(got, Err(ProduceError { producer: "store-hits", reason }));
    }
    let (producer, _) =
        producer(&Store::holding(&[]), &KvCacheAwareArgs::default(), Some(CoordinationMode::Query));
    let mut cycle = CycleState::new(&request());
    let got = producer.produce(&request(), &pool, &mut cycle).await;
    assert_eq!(got.unwrap_err().reason, "no_tokens");
}

/// What is found where nothing says whom to ask, for 40 tokens.
async fn open_hits(producer: &StoreHits, request: &InferenceRequest, candidates: usize) -> Vec<PrefixHit> {
    let pool = pool_of(vec![Load::default(); candidates]);
    let mut cycle = CycleState::new(request);
    cycle.tokens = tokens(40);
    producer.produce(request, &pool, &mut cycle).await.unwrap();
    cycle.hits
}

#[tokio::test]
async fn only_those_are_asked_for_whose_content_is_not_known() {
    let store = Store::holding(&[1, 2, 0]);
    let make = producer;
    let (producer, source) = make(&store, &KvCacheAwareArgs::default(), None);
    let of_index = |tokens, completeness| PrefixHit { tokens, completeness, ..PrefixHit::default() };
    let (exact, partial, approximate) =
        (Completeness::Exact, Completeness::Partial, Completeness::Approximate);
    let known = [of_index(16, Some(exact)), of_index(320, Some(partial))];
    let guessed = of_index(48, Some(approximate));
    // There is nothing in the store yet.
    let got = open_hits(&producer, &request(), 4).await;
    assert_eq!(got, [known[0], known[1], guessed, of_index(0, Some(approximate))]);
    assert!(store.asked.lock().is_empty());
    source.filled();
    let got = open_hits(&producer, &request(), 5).await;
    let of_store = |tokens| PrefixHit { completeness: Some(approximate), ..found(tokens, 16) };
    assert_eq!(got, [known[0], known[1], of_store(16), of_store(32), of_index(0, None)]);
    let asked = store.asked.lock().pop().unwrap();
    assert_eq!(asked.owners, ["pod-2.default", "pod-3.default", "pod-4.default"]);
    // Everybody is known: nobody is asked.
    assert_eq!(open_hits(&producer, &request(), 2).await, known);
    // What was placed at a pod counts where the store has nothing, fails, or cannot tell.
    let salted = InferenceRequest { cache_salt: Some("s".into()), ..request() };
    assert_eq!(open_hits(&producer, &salted, 3).await, [known[0], known[1], guessed]);
    assert!(store.asked.lock().is_empty());
    for answer in [Ok(vec![0]), Err(QueryError::TimedOut)] {
        let store = Arc::new(Store { answer, ..Store::default() });
        let (producer, source) = make(&store, &KvCacheAwareArgs::default(), None);
        source.filled();
        assert_eq!(open_hits(&producer, &request(), 3).await, [known[0], known[1], guessed]);
        assert_eq!(store.asked.lock().len(), 1);
    }
}

#[tokio::test]
async fn a_mode_that_is_set_asks_always_or_never() {
    for (mode, expected, asked) in
        [(CoordinationMode::Mirror, [16, 320], 0), (CoordinationMode::Query, [16, 16], 1)]
    {
        let store = Store::holding(&[1, 1]);
        let (producer, source) = producer(&store, &KvCacheAwareArgs::default(), Some(mode));
        source.filled();
        let hits = open_hits(&producer, &request(), 2).await;
        assert_eq!(hits.iter().map(|hit| hit.tokens).collect::<Vec<_>>(), expected, "{mode:?}");
        assert_eq!(store.asked.lock().len(), asked);
    }
}

#[tokio::test]
async fn another_block_size_of_the_engines_is_noticed_where_the_store_is_asked() {
    let store = Store::holding(&[0]);
    let sized = |block_size| sampled(EngineSample { block_size, ..EngineSample::default() });
    let request = request();
    let noticed = async |mode, blocks: [u32; 3]| {
        let (producer, source) = producer(&store, &KvCacheAwareArgs::default(), mode);
        source.filled();
        let mut cycle = CycleState::new(&request);
        cycle.tokens = tokens(40);
        producer.produce(&request, &pool_of(blocks.map(sized)), &mut cycle).await.unwrap();
        source.other_sizes()
    };
    let query = Some(CoordinationMode::Query);
    assert_eq!(noticed(query, [16, 64, 0]).await, [("m".into(), Some(64))]);
    assert_eq!(noticed(query, [16, 0, 16]).await, [("m".into(), None)]);
    assert_eq!(noticed(None, [64, 64, 16]).await, [("m".into(), None)], "only the third is asked for");
    assert_eq!(noticed(Some(CoordinationMode::Mirror), [64, 64, 64]).await, []);
}

#[tokio::test]
async fn an_answer_that_is_too_short_counts_as_nothing() {
    let pool = pool_of([Load::default(); 3]);
    let got = hits(&Store::holding(&[1]), &KvCacheAwareArgs::default(), &request(), &pool, 16).await.unwrap();
    assert_eq!(got, [found(16, 16), found(0, 16), found(0, 16)]);
}

proptest! {
    /// Whatever the prompt and the arguments: the hashes are those of a prefix of whole blocks, and no hit is longer than
    /// what was looked at.
    #[test]
    fn only_whole_blocks_of_the_prompt_count(
        ids in prop::collection::vec(any::<u32>(), 0..300),
        size in 1..70_u32,
        max in prop::option::of(1..40_u32),
        held in prop::collection::vec(0..400_u32, 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Store::holding(&held);
        let args = KvCacheAwareArgs { block_size_to_hash: size, max_blocks_to_match: max, ..KvCacheAwareArgs::default() };
        let (producer, _) = producer(&store, &args, Some(CoordinationMode::Query));
        let (request, pool) = (request(), pool_of([Load::default(); 3]));
        let mut cycle = CycleState::new(&request);
        cycle.tokens = TokenSlot::Ready(Tokenized {
            ids: ids.clone().into(),
            source: TokenSource::Given,
            took: Duration::ZERO,
            whole: true,
        });
        runtime.block_on(producer.produce(&request, &pool, &mut cycle)).unwrap();
        let blocks = (ids.len() / size as usize).min(max.unwrap_or(128) as usize);
        let expected: Vec<u64> =
            (0..blocks).map(|block| kthena_block_hash(&ids[block * size as usize..][..size as usize])).collect();
        let asked = store.asked.lock().pop();
        prop_assert_eq!(asked.map_or_else(Vec::new, |asked| asked.hashes), expected);
        for (index, hit) in cycle.hits.iter().enumerate() {
            let held = held.get(index).copied().unwrap_or(0).min(blocks as u32);
            prop_assert_eq!(hit.tokens, held * size);
        }
    }
}
