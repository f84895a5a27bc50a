//! The ledger against tables, captures of real engines, and a model that counts the long way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use kvasir_kvcache::event::{decode_batch, parse_live};
use proptest::prelude::*;

use super::*;

/// kthena's hash of the token ids 0 to 15.
const FIRST_SIXTEEN: u64 = 6_473_494_984_593_326_032;

fn name(bits: u64) -> EngineHash {
    EngineHash::Int { bits, negative: false }
}

/// A store of blocks of 16 tokens whose ids start at `from`, named 100, 101 and so on from `first`.
fn stored(group: u32, first: u64, from: u32, blocks: u32) -> Stored {
    Stored {
        hashes: (0..u64::from(blocks)).map(|number| name(first + number)).collect(),
        token_ids: (from..from + blocks * 16).collect(),
        block_size: 16,
        group,
        ..Stored::default()
    }
}

fn removed(group: u32, names: &[u64]) -> KvEvent {
    KvEvent::Removed { hashes: names.iter().copied().map(name).collect(), group, medium: Medium::Gpu }
}

#[derive(Default)]
struct Bench {
    ledger: KthenaLedger,
    seq: u64,
}

impl Bench {
    fn play(&mut self, rank: u32, event: KvEvent) -> KthenaDelta {
        self.seq += 1;
        self.ledger.apply(rank, &Batch { seq: self.seq, events: vec![event], ..Batch::default() });
        self.ledger.take_delta()
    }

    fn store(&mut self, rank: u32, stored: Stored) -> KthenaDelta {
        self.play(rank, KvEvent::Stored(stored))
    }
}

fn hashes(blocks: &[KthenaBlock]) -> BTreeSet<u64> {
    blocks.iter().map(|block| block.hash).collect()
}

#[test]
fn a_block_is_known_by_kthenas_hash_of_its_tokens() {
    let mut bench = Bench::default();
    let delta = bench.store(0, stored(0, 100, 0, 2));
    assert_eq!(hashes(&delta.gained), BTreeSet::from([FIRST_SIXTEEN, 3_036_027_678_049_585_822]));
    let named: BTreeMap<_, _> = delta.named.into_iter().collect();
    assert_eq!(named.get(&name(100)), Some(&FIRST_SIXTEEN));
    assert!(delta.lost.is_empty() && delta.unnamed.is_empty());
    let delta = bench.play(0, removed(0, &[100]));
    assert_eq!((hashes(&delta.lost), delta.unnamed), (BTreeSet::from([FIRST_SIXTEEN]), vec![name(100)]));
    assert_eq!((bench.ledger.owned(), bench.ledger.entries()), (1, 1));
}

#[test]
fn one_of_two_equal_blocks_removed_leaves_the_other() {
    // The same tokens: on another rank, in another group, under another name, and as a second copy.
    type Second = (u32, Stored, KvEvent);
    let seconds: [(&str, Second); 4] = [
        ("rank", (1, stored(0, 100, 0, 1), removed(0, &[100]))),
        ("group", (0, stored(1, 100, 0, 1), removed(1, &[100]))),
        ("name", (0, stored(0, 500, 0, 1), removed(0, &[500]))),
        ("copy", (0, stored(0, 100, 0, 1), removed(0, &[100]))),
    ];
    for (what, (rank, store, remove)) in seconds {
        let mut bench = Bench::default();
        assert_eq!(bench.store(0, stored(0, 100, 0, 1)).gained.len(), 1, "{what}");
        assert!(bench.store(rank, store).gained.is_empty(), "{what}");
        assert!(bench.play(rank, remove).lost.is_empty(), "{what}");
        assert_eq!(
            hashes(&bench.play(0, removed(0, &[100])).lost),
            BTreeSet::from([FIRST_SIXTEEN]),
            "{what}"
        );
        assert_eq!((bench.ledger.owned(), bench.ledger.entries()), (0, 0), "{what}");
        assert_eq!(bench.ledger.noticed(), KthenaNoticed::default(), "{what}");
    }
}

#[test]
fn a_name_stays_while_any_rank_knows_it() {
    let mut bench = Bench::default();
    bench.store(0, stored(0, 100, 0, 1));
    bench.store(1, stored(0, 100, 0, 1));
    assert!(bench.play(0, removed(0, &[100])).unnamed.is_empty());
    assert_eq!(bench.play(1, removed(0, &[100])).unnamed, [name(100)]);
}

#[test]
fn a_clear_and_a_restart_are_of_one_rank() {
    for restart in [false, true] {
        let mut bench = Bench::default();
        bench.store(0, stored(0, 100, 0, 2));
        bench.store(1, stored(0, 100, 0, 1));
        let delta = if restart {
            bench.ledger.reset(0);
            bench.ledger.take_delta()
        } else {
            bench.play(0, KvEvent::AllCleared)
        };
        assert_eq!(
            hashes(&delta.lost),
            BTreeSet::from([3_036_027_678_049_585_822]),
            "the other rank has the first"
        );
        assert_eq!(delta.unnamed, [name(101)]);
        assert_eq!(bench.ledger.owned(), 1);
    }
}

#[test]
fn numbers_start_anew_with_the_engine_and_repeated_batches_change_nothing() {
    let mut ledger = KthenaLedger::default();
    let batch = |seq| Batch { seq, events: vec![KvEvent::Stored(stored(0, 100, 0, 1))], ..Batch::default() };
    for _ in 0..3 {
        ledger.apply(0, &batch(7));
    }
    ledger.apply(0, &Batch { seq: 8, events: vec![removed(0, &[100])], ..Batch::default() });
    assert_eq!(ledger.owned(), 0, "three times the same batch is one copy");
    ledger.reset(0);
    ledger.apply(0, &batch(0));
    assert_eq!(ledger.owned(), 1);
}

#[test]
fn unknown_removals_are_counted_and_cost_nothing() {
    let mut bench = Bench::default();
    for number in 0..10_000 {
        assert!(bench.play(0, removed(0, &[number])).is_empty());
    }
    assert_eq!((bench.ledger.noticed().unknown_removals, bench.ledger.entries()), (10_000, 0));
    bench.store(0, stored(0, 100, 0, 1));
    assert!(bench.play(1, removed(0, &[100])).is_empty(), "of a rank that never stored it");
    assert_eq!(bench.ledger.owned(), 1);
}

#[test]
fn what_tokens_alone_do_not_decide_is_not_owned() {
    let mut bench = Bench::default();
    let salted = Stored { extra_keys: vec![Some(vec!["salt".into()]), None], ..stored(0, 100, 0, 2) };
    assert!(bench.store(0, salted).gained.is_empty(), "the block after the salt depends on it too");
    let child = Stored { parent: Some(name(101)), ..stored(0, 102, 32, 1) };
    assert!(bench.store(0, child).gained.is_empty(), "and so do later stores");
    assert_eq!(bench.ledger.noticed().not_by_tokens, 3);
    bench.play(0, removed(0, &[100, 101, 102]));
    assert_eq!((bench.ledger.entries(), bench.ledger.noticed().unknown_removals), (0, 0));
    let image_later = Stored { extra_keys: vec![None, Some(vec!["image".into()])], ..stored(0, 200, 0, 2) };
    assert_eq!(hashes(&bench.store(0, image_later).gained), BTreeSet::from([FIRST_SIXTEEN]));
    assert!(
        bench.store(0, Stored { medium: Medium::Other("CPU".into()), ..stored(0, 300, 64, 1) }).is_empty()
    );
    assert_eq!(bench.ledger.noticed().other_tiers, 1);
}

#[test]
fn an_adapters_blocks_are_the_adapters() {
    let mut bench = Bench::default();
    let sql: Arc<str> = "sql".into();
    let of_adapter = |first| Stored {
        adapter: Some("sql".into()),
        extra_keys: vec![Some(vec!["sql".into()])],
        ..stored(0, first, 0, 1)
    };
    let block = KthenaBlock { adapter: Some(Arc::clone(&sql)), hash: FIRST_SIXTEEN };
    assert_eq!(bench.store(0, of_adapter(100)).gained, std::slice::from_ref(&block));
    let base = KthenaBlock { adapter: None, hash: FIRST_SIXTEEN };
    assert_eq!(bench.store(0, stored(0, 200, 0, 1)).gained, [base]);
    assert_eq!(bench.play(0, removed(0, &[100])).lost, [block]);
    // A salt that is spelled like the adapter is still a salt.
    let salted = Stored { extra_keys: vec![Some(vec!["sql".into(), "sql".into()])], ..of_adapter(300) };
    assert!(bench.store(0, salted).gained.is_empty());
}

#[test]
fn groups_without_whole_prefixes_are_left_out() {
    let mut bench = Bench::default();
    let window = |first| Stored { spec_kind: Some("sliding_window".into()), ..stored(0, first, 0, 1) };
    let full = |first| Stored { spec_kind: Some("full_attention".into()), ..stored(1, first, 0, 1) };
    assert!(bench.store(0, window(100)).gained.is_empty());
    assert_eq!(bench.store(0, full(100)).gained.len(), 1);
    assert!(bench.play(0, removed(0, &[100])).lost.is_empty(), "the window moved on");
    assert_eq!(bench.play(0, removed(1, &[100])).lost.len(), 1);
    // Without a kind, a group that lists fewer hashes than blocks gives itself away; what it gave is forgotten.
    let mut bench = Bench::default();
    assert_eq!(bench.store(0, stored(2, 100, 0, 2)).gained.len(), 2);
    let fewer = Stored { hashes: vec![name(300)], ..stored(2, 300, 32, 2) };
    assert_eq!(bench.store(0, fewer).lost.len(), 2);
    assert!(bench.store(0, stored(2, 400, 0, 2)).is_empty());
    assert_eq!(bench.ledger.noticed().other_groups, 2);
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut bench = Bench::default();
    for wrong in [
        Stored { token_ids: (0..31).collect(), ..stored(0, 100, 0, 2) },
        Stored { block_size: 0, ..stored(0, 100, 0, 2) },
        Stored { token_ids: Vec::new(), ..stored(0, 100, 0, 2) },
        Stored { spec_kind: Some("full_attention".into()), hashes: vec![name(1)], ..stored(0, 100, 0, 2) },
    ] {
        assert!(bench.store(0, wrong).is_empty());
    }
    assert_eq!((bench.ledger.noticed().malformed, bench.ledger.entries()), (4, 0));
    assert!(
        bench.store(0, Stored { hashes: Vec::new(), token_ids: Vec::new(), ..stored(0, 1, 0, 0) }).is_empty()
    );
}

#[test]
fn memory_is_bounded() {
    let mut bench = Bench { ledger: KthenaLedger::with_limit(100), seq: 0 };
    for number in 0..50u32 {
        bench.store(0, stored(0, 1000 + u64::from(number) * 10, number * 160, 10));
        assert!(bench.ledger.entries() <= 110, "{}", bench.ledger.entries());
    }
    let noticed = bench.ledger.noticed();
    assert_eq!(bench.ledger.entries() as u64 + noticed.over_limit, 500);
    assert_eq!(bench.ledger.owned(), bench.ledger.entries());
}

#[test]
fn what_came_and_went_between_two_questions_is_no_change() {
    let mut ledger = KthenaLedger::default();
    let mut seq = 0;
    let mut play = |ledger: &mut KthenaLedger, event| {
        seq += 1;
        ledger.apply(0, &Batch { seq, events: vec![event], ..Batch::default() });
    };
    play(&mut ledger, KvEvent::Stored(stored(0, 100, 0, 1)));
    play(&mut ledger, removed(0, &[100]));
    assert!(ledger.take_delta().is_empty());
    play(&mut ledger, KvEvent::Stored(stored(0, 100, 0, 1)));
    assert_eq!(ledger.take_delta().gained.len(), 1);
    play(&mut ledger, removed(0, &[100]));
    play(&mut ledger, KvEvent::Stored(stored(0, 100, 0, 1)));
    assert!(ledger.take_delta().is_empty());
}

fn capture(file: &str) -> Vec<Batch> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kvcache/tests/data").join(file);
    let unhex = |text: &str| -> Bytes {
        let pairs = text.as_bytes().chunks(2);
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    };
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let frames = line["frames_hex"].as_array().unwrap();
            let frames: Vec<Bytes> = frames.iter().map(|frame| unhex(frame.as_str().unwrap())).collect();
            let received = parse_live(&frames).unwrap();
            decode_batch(received.seq, &received.payload).unwrap()
        })
        .collect()
}

#[test]
fn captured_runs_end_with_the_prompt_after_the_last_clear() {
    for file in [
        "vllm-0.18-array-events-bs16.jsonl",
        "vllm-0.32-bytes-hash-lora-bs16.jsonl",
        "vllm-0.32-hybrid-sliding-window-bs32.jsonl",
        "vllm-0.32-int-hash-bs32.jsonl",
    ] {
        let mut ledger = KthenaLedger::default();
        let batches = capture(file);
        let mut mirrored = BTreeSet::new();
        for batch in &batches {
            ledger.apply(0, batch);
            let delta = ledger.take_delta();
            for lost in delta.lost {
                assert!(mirrored.remove(&lost), "{file}");
            }
            mirrored.extend(delta.gained);
        }
        let last = batches.last().unwrap();
        let prompt = last.events.iter().find_map(|event| match event {
            KvEvent::Stored(stored) if stored.spec_kind.as_deref() != Some("sliding_window") => Some(stored),
            _ => None,
        });
        let prompt = prompt.unwrap();
        let size = prompt.block_size as usize;
        let expected: BTreeSet<u64> = prompt.token_ids.chunks_exact(size).map(kthena_block_hash).collect();
        assert_eq!(mirrored.iter().map(|block| block.hash).collect::<BTreeSet<_>>(), expected, "{file}");
        assert_eq!(ledger.noticed().malformed, 0, "{file}");
    }
}

#[test]
fn a_saved_rank_goes_on_as_if_nothing_had_happened() {
    let mut bench = Bench::default();
    let byte_name = EngineHash::Bytes(vec![7; 32].into());
    let negative = EngineHash::Int { bits: 5, negative: true };
    bench.store(1, Stored { adapter: Some("other".into()), ..stored(0, 900, 0, 1) });
    bench.store(0, stored(0, 100, 0, 3));
    bench.store(0, stored(0, 100, 0, 1));
    bench.store(0, Stored { hashes: vec![byte_name.clone()], ..stored(1, 0, 64, 1) });
    bench.store(0, Stored { hashes: vec![negative], adapter: Some("sql".into()), ..stored(0, 0, 0, 1) });
    bench.store(0, Stored { extra_keys: vec![Some(vec!["salt".into()])], ..stored(0, 200, 0, 1) });
    bench.store(0, Stored { spec_kind: Some("sliding_window".into()), ..stored(2, 300, 0, 1) });
    let saved = bench.ledger.save(0).unwrap();
    assert_eq!((saved.seq(), saved.blocks()), (7, 6));
    let bytes = saved.to_bytes();
    assert_eq!(SavedLedger::from_bytes(&bytes).as_ref(), Ok(&saved));

    let mut other = Bench { ledger: KthenaLedger::default(), seq: 7 };
    other.store(1, Stored { adapter: Some("third".into()), ..stored(0, 900, 0, 1) });
    other.ledger.restore(0, &saved);
    other.ledger.take_delta();
    bench.store(1, stored(0, 901, 0, 0));
    let all = |ledger: &KthenaLedger| ledger.blocks().collect::<BTreeSet<_>>();
    let of_one = KthenaBlock { adapter: Some("third".into()), hash: FIRST_SIXTEEN };
    let of_other = KthenaBlock { adapter: Some("other".into()), hash: FIRST_SIXTEEN };
    let rest = |ledger: &KthenaLedger, but: &KthenaBlock| {
        all(ledger).into_iter().filter(|block| block != but).collect::<Vec<_>>()
    };
    assert_eq!(rest(&other.ledger, &of_one), rest(&bench.ledger, &of_other));
    for event in [
        removed(0, &[100]),
        removed(2, &[300]),
        KvEvent::Stored(Stored { parent: Some(name(200)), ..stored(0, 201, 16, 1) }),
        KvEvent::Removed { hashes: vec![byte_name], group: 1, medium: Medium::Gpu },
        removed(0, &[100, 101]),
    ] {
        let (one, same) = (bench.play(0, event.clone()), other.play(0, event));
        assert_eq!((hashes(&one.gained), hashes(&one.lost)), (hashes(&same.gained), hashes(&same.lost)));
    }
    assert_eq!(other.ledger.noticed().unknown_removals, 0);
    for cut in 0..bytes.len() {
        // A run that ends early may be whole by chance only where the next group would begin.
        if let Ok(part) = SavedLedger::from_bytes(&bytes[..cut]) {
            assert!(part.blocks() < saved.blocks(), "{cut}");
        }
    }
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0xff;
        let _ = SavedLedger::from_bytes(&wrong);
    }
    assert!(bench.ledger.save(9).is_none());
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Blocks with these contents, named from the number on.
    Store {
        rank: u32,
        group: u32,
        first: u64,
        contents: Vec<u32>,
    },
    Remove {
        rank: u32,
        group: u32,
        names: Vec<u64>,
    },
    Clear {
        rank: u32,
    },
    Restart {
        rank: u32,
    },
    Ask,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0..3u32, 0..2u32);
    let store = (place.clone(), 0..6u64, prop::collection::vec(0..4u32, 1..4))
        .prop_map(|((rank, group), first, contents)| Step::Store { rank, group, first, contents });
    let remove = (place, prop::collection::vec(0..9u64, 1..3))
        .prop_map(|((rank, group), names)| Step::Remove { rank, group, names });
    let step = prop_oneof![
        8 => store,
        6 => remove,
        1 => (0..3u32).prop_map(|rank| Step::Clear { rank }),
        1 => (0..3u32).prop_map(|rank| Step::Restart { rank }),
        4 => Just(Step::Ask),
    ];
    prop::collection::vec(step, 0..60)
}

/// A copy of a block: rank, group, name, content.
type Copy = (u32, u32, u64, u32);

/// The same history, counted the long way: a list with one line for each copy.
#[derive(Default)]
struct Naive(Vec<Copy>);

impl Naive {
    fn play(&mut self, step: &Step) {
        match step {
            Step::Store { rank, group, first, contents } => {
                for (name, content) in (*first..).zip(contents) {
                    self.0.retain(|(r, g, n, c)| (r, g, n) != (rank, group, &name) || c == content);
                    self.0.push((*rank, *group, name, *content));
                }
            }
            Step::Remove { rank, group, names } => {
                for name in names {
                    let at = self.0.iter().position(|(r, g, n, _)| (r, g, n) == (rank, group, name));
                    at.map(|at| self.0.remove(at));
                }
            }
            Step::Clear { rank } | Step::Restart { rank } => self.0.retain(|(r, ..)| r != rank),
            Step::Ask => {}
        }
    }

    fn owned(&self) -> BTreeSet<u64> {
        self.0.iter().map(|(_, _, _, content)| kthena_block_hash(&[*content])).collect()
    }

    fn names(&self) -> BTreeSet<u64> {
        self.0.iter().map(|(_, _, name, _)| *name).collect()
    }
}

fn event(step: &Step) -> Option<(u32, KvEvent)> {
    match step {
        Step::Store { rank, group, first, contents } => {
            let stored = Stored {
                hashes: (*first..).take(contents.len()).map(name).collect(),
                token_ids: contents.clone(),
                block_size: 1,
                group: *group,
                ..Stored::default()
            };
            Some((*rank, KvEvent::Stored(stored)))
        }
        Step::Remove { rank, group, names } => Some((*rank, removed(*group, names))),
        Step::Clear { rank } => Some((*rank, KvEvent::AllCleared)),
        Step::Restart { .. } | Step::Ask => None,
    }
}

proptest! {
    #[test]
    fn any_history_is_counted_as_by_hand(steps in steps()) {
        let mut ledger = KthenaLedger::default();
        let mut naive = Naive::default();
        let mut owned = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (number, step) in steps.iter().chain([&Step::Ask]).enumerate() {
            naive.play(step);
            match (event(step), step) {
                (Some((rank, event)), _) => {
                    ledger.apply(rank, &Batch { seq: number as u64, events: vec![event], ..Batch::default() });
                }
                (None, Step::Restart { rank }) => ledger.reset(*rank),
                (None, _) => {
                    let delta = ledger.take_delta();
                    for block in &delta.lost {
                        prop_assert!(owned.remove(&block.hash), "lost what was not owned");
                    }
                    for block in &delta.gained {
                        prop_assert!(owned.insert(block.hash), "gained what was owned");
                    }
                    for name in &delta.unnamed {
                        prop_assert!(names.remove(name), "a name went that was not there");
                    }
                    names.extend(delta.named.into_iter().map(|(name, _)| name));
                    prop_assert_eq!(&owned, &naive.owned());
                    let expected: BTreeSet<EngineHash> = naive.names().into_iter().map(name).collect();
                    prop_assert_eq!(&names, &expected);
                    let all: BTreeSet<u64> = ledger.blocks().map(|block| block.hash).collect();
                    prop_assert_eq!(&all, &owned);
                    let kept: BTreeSet<EngineHash> = ledger.names().map(|(name, _)| name.clone()).collect();
                    prop_assert_eq!(&kept, &expected);
                }
            }
        }
    }
}
