//! How fast events enter the index and prompts are looked up, with many resident blocks over 64 owners.
//!
//! `cargo bench -p kvasir-kvcache` uses 256 thousand blocks; the constants below make it 4 million. Bytes per block
//! and owner are asserted, since a regression there shows in no timing.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kvasir_core::{
    BlockChain, BlockIndex, BlockSize, CacheScope, Completeness, EngineHash, KvEvent, Medium, ModelName,
    OwnerSlot, PrefixHit, Stored,
};
use kvasir_kvcache::event::{Batch, decode_batch};
use kvasir_kvcache::{Index, chain};

const OWNERS: u32 = 64;
/// Blocks of each owner.
const BLOCKS: u32 = 4096;
/// Blocks of one prompt.
const PROMPT: u32 = 64;

fn main_model() -> ModelName {
    ModelName::from("m")
}

/// Prompt `number` of an owner.
fn tokens(owner: u32, number: u32) -> Vec<u32> {
    (0..PROMPT * 16).map(|at| owner << 24 ^ number << 12 ^ at).collect()
}

fn stored(owner: u32, number: u32) -> KvEvent {
    let first = u64::from(number * PROMPT) + 1;
    KvEvent::Stored(Stored {
        hashes: (first..first + u64::from(PROMPT))
            .map(|hash| EngineHash::Int { bits: hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), negative: false })
            .collect(),
        token_ids: tokens(owner, number),
        block_size: 16,
        ..Stored::default()
    })
}

fn removed(number: u32) -> KvEvent {
    let first = u64::from(number * PROMPT) + 1;
    KvEvent::Removed {
        hashes: (first..first + u64::from(PROMPT))
            .rev()
            .map(|hash| EngineHash::Int { bits: hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), negative: false })
            .collect(),
        group: 0,
        medium: Medium::Gpu,
    }
}

/// An index where every owner holds `blocks` blocks of its own.
fn filled(blocks: u32) -> Index {
    let index = Index::default();
    for owner in 0..OWNERS {
        let slot = OwnerSlot(owner);
        let _ = index.register(slot, &main_model(), "bench");
        index.set_completeness(slot, Completeness::Exact);
        index.set_capacity(slot, 1 << 20, BlockSize::DEFAULT);
        for number in 0..blocks / PROMPT {
            let batch =
                Batch { seq: u64::from(number), events: vec![stored(owner, number)], ..Batch::default() };
            index.apply(slot, &batch);
        }
    }
    index
}

fn apply_events(criterion: &mut Criterion) {
    let index = filled(BLOCKS);
    let size = index.size();
    assert!(size.bytes <= 64 * size.blocks, "{} bytes for {} blocks", size.bytes, size.blocks);
    let mut group = criterion.benchmark_group("apply");
    group.throughput(Throughput::Elements(u64::from(2 * PROMPT)));
    let mut seq = 1_000_000u64;
    group.bench_function("store and remove 64 blocks", |bencher| {
        bencher.iter_batched(
            || {
                seq += 1;
                let owner = (seq % u64::from(OWNERS)) as u32;
                let events = vec![stored(owner, 100_000), removed(100_000)];
                (OwnerSlot(owner), Batch { seq, events, ..Batch::default() })
            },
            |(slot, batch)| assert!(index.apply(slot, &batch)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn walk(criterion: &mut Criterion) {
    let index = filled(BLOCKS);
    let slots: Vec<OwnerSlot> = (0..OWNERS).map(OwnerSlot).collect();
    let chains: Vec<BlockChain> = (0..OWNERS)
        .map(|owner| {
            let prompt = tokens(owner, owner % (BLOCKS / PROMPT));
            chain(&CacheScope::default(), BlockSize::DEFAULT, &prompt, None)
        })
        .collect();
    let mut hits = vec![PrefixHit::default(); slots.len()];
    let mut group = criterion.benchmark_group("walk");
    group.throughput(Throughput::Elements(u64::from(PROMPT)));
    let mut turn = 0;
    group.bench_function("64 blocks held by one of 64 owners", |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % chains.len();
            index.walk(&main_model(), &chains[turn..=turn], &slots, &mut hits);
            black_box(&hits);
        });
    });
    group.finish();
}

fn hash(criterion: &mut Criterion) {
    let ids: Vec<u32> = (0..20_000).collect();
    let mut group = criterion.benchmark_group("hash");
    group.throughput(Throughput::Elements(1250));
    group.bench_function("20,000 tokens in blocks of 16", |bencher| {
        bencher.iter(|| chain(&CacheScope::default(), BlockSize::DEFAULT, black_box(&ids), None));
    });
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let event =
        ("BlockStored", (1..=64u64).collect::<Vec<_>>(), None::<u64>, tokens(1, 1), 16, None::<u64>, "GPU");
    let Ok(payload) = rmp_serde::to_vec(&(1.5, [event], 0)) else { return };
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(64));
    group.bench_function("a batch of 64 blocks", |bencher| {
        bencher.iter(|| decode_batch(0, black_box(&payload)))
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = apply_events, walk, hash, decode
}
criterion_main!(benches);
