//! Random histories of one engine, for tests that compare two indexes.

use proptest::prelude::*;

use kvasir_core::OwnerJournal;

use super::*;

pub(super) const SIZE: u32 = 16;
pub(super) const PROMPTS: usize = 6;
pub(super) const BLOCKS: usize = 6;

/// What an engine does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Stores the blocks `from..to` of a prompt, whatever it has of them. `alias` gives them other engine hashes.
    Store { prompt: usize, from: usize, to: usize, alias: bool },
    /// The same for a slower tier, with tokens or with hashes only.
    Offload { tier: usize, prompt: usize, to: usize, bare: bool },
    /// Evicts a block.
    Remove { prompt: usize, block: usize, alias: bool },
    /// Evicts a block from a slower tier.
    RemoveFromTier { tier: usize, prompt: usize, block: usize },
    /// A sliding-window store proves the followed group to be a partial one.
    Depose,
    /// The whole cache is emptied.
    Clear,
    /// The engine restarts.
    Restart,
}

/// Histories. With `holes`, stores may follow blocks that were never told, and groups may be deposed.
pub(super) fn steps(holes: bool) -> impl Strategy<Value = Vec<Step>> {
    let block = || (0..PROMPTS, 0..BLOCKS, any::<bool>());
    let odd = u32::from(holes);
    let step = prop_oneof![
        8 => (block(), 1..BLOCKS).prop_map(move |((prompt, from, alias), length)| {
            let from = if holes { from } else { 0 };
            Step::Store { prompt, from, to: (from + length).min(BLOCKS), alias }
        }),
        3 => (0..2usize, block()).prop_map(|(tier, (prompt, block, bare))| Step::Offload {
            tier, prompt, to: block + 1, bare
        }),
        6 => block().prop_map(|(prompt, block, alias)| Step::Remove { prompt, block, alias }),
        3 => (0..2usize, block()).prop_map(|(tier, (prompt, block, _))| Step::RemoveFromTier { tier, prompt, block }),
        odd => Just(Step::Depose),
        1 => Just(Step::Clear),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 0..60)
}

/// Prompts that share beginnings: prompt `p` follows prompt 0 for `p % 4` blocks.
pub(super) fn tokens(prompt: usize, blocks: usize) -> Vec<u32> {
    (0..blocks)
        .flat_map(|block| {
            let own = if block < prompt % 4 { 0 } else { prompt };
            (0..SIZE as usize).map(move |at| (own * 10_000 + block * 100 + at) as u32)
        })
        .collect()
}

fn engine_hash(prompt: usize, block: usize, alias: bool) -> u64 {
    let prefix = tokens(prompt, block + 1);
    prefix.iter().fold(1 + u64::from(alias), |hash, id| {
        hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*id) + 1)
    })
}

fn run_of(prompt: usize, from: usize, to: usize, alias: bool) -> Stored {
    let hashes: Vec<u64> = (from..to).map(|block| engine_hash(prompt, block, alias)).collect();
    let parent = from.checked_sub(1).map(|block| engine_hash(prompt, block, alias));
    stored(&hashes, parent, &tokens(prompt, to)[from * SIZE as usize..], SIZE)
}

fn tier_name(tier: usize) -> Medium {
    Medium::Other(["CPU", "DISK"][tier].into())
}

/// Plays one step to an owner, as its next batch.
pub(super) fn play(index: &Index, slot: u32, step: &Step) {
    let event = match *step {
        Step::Store { prompt, from, to, alias } => KvEvent::Stored(run_of(prompt, from, to, alias)),
        Step::Offload { tier, prompt, to, bare } => {
            let run = run_of(prompt, 0, to, false);
            let token_ids = if bare { Vec::new() } else { run.token_ids.clone() };
            KvEvent::Stored(Stored { medium: tier_name(tier), token_ids, ..run })
        }
        Step::Remove { prompt, block, alias } => removed(&[engine_hash(prompt, block, alias)]),
        Step::RemoveFromTier { tier, prompt, block } => KvEvent::Removed {
            hashes: vec![int(engine_hash(prompt, block, false))],
            group: 0,
            medium: tier_name(tier),
        },
        Step::Depose => {
            KvEvent::Stored(Stored { spec_kind: Some("sliding_window".into()), ..run_of(0, 0, 1, false) })
        }
        Step::Clear => KvEvent::AllCleared,
        Step::Restart => {
            index.reset(OwnerSlot(slot));
            index.set_completeness(OwnerSlot(slot), Completeness::Exact);
            return;
        }
    };
    let seq = stats(index, slot).last_seq.map_or(0, |last| last + 1);
    let batch = Batch { seq, ts: 1.5, events: vec![event], ..Batch::default() };
    assert!(index.apply_digested(OwnerSlot(slot), &batch, Some(seq ^ 0xd1)));
}

/// What owner 0 is credited with for each prompt.
pub(super) fn credits(index: &Index) -> Vec<PrefixHit> {
    (0..PROMPTS).map(|prompt| hits(index, &CacheScope::default(), &tokens(prompt, BLOCKS), 1)[0]).collect()
}

/// What owner 0 holds, in a fixed order and without its life.
pub(super) fn held(index: &Index) -> OwnerContent {
    let mut content = index.content(OwnerSlot(0)).unwrap();
    content.gpu.sort_unstable();
    content.other_tiers.sort_unstable();
    content.life = 0;
    content
}
