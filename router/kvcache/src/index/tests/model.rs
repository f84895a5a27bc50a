//! Random events against a naive model of the same rules.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const SIZE: usize = 16;

/// What an engine of the model does.
#[derive(Clone, Debug)]
enum Step {
    /// Caches `length` blocks of prompt `prompt`, publishing those that it lacks, or all when `again`.
    Store {
        owner: usize,
        prompt: usize,
        length: usize,
        again: bool,
    },
    /// Evicts the block `block` of prompt `prompt`.
    Remove {
        owner: usize,
        prompt: usize,
        block: usize,
    },
    Clear {
        owner: usize,
    },
    Reset {
        owner: usize,
    },
}

/// Prompts that share beginnings: prompt `p` follows prompt 0 for `p % 4` blocks.
fn tokens(prompt: usize, blocks: usize) -> Vec<u32> {
    (0..blocks)
        .flat_map(|block| {
            let own = if block < prompt % 4 { 0 } else { prompt };
            (0..SIZE).map(move |at| (own * 10_000 + block * 100 + at) as u32)
        })
        .collect()
}

/// The engine hash of a block: by content, another one for each owner.
fn engine_hash(owner: usize, prompt: usize, block: usize) -> u64 {
    let prefix = tokens(prompt, block + 1);
    let seed = owner as u64 * 0x1234_5678_9abc;
    prefix
        .iter()
        .fold(seed + 1, |hash, id| hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*id) + 1))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3usize, 0..8usize, 1..6usize, any::<bool>())
            .prop_map(|(owner, prompt, length, again)| Step::Store { owner, prompt, length, again }),
        5 => (0..3usize, 0..8usize, 0..6usize).prop_map(|(owner, prompt, block)| Step::Remove { owner, prompt, block }),
        1 => (0..3usize).prop_map(|owner| Step::Clear { owner }),
        1 => (0..3usize).prop_map(|owner| Step::Reset { owner }),
    ];
    proptest::collection::vec(step, 0..80)
}

/// Copies held by engine hash.
type Held = HashMap<u64, u32>;

fn run(index: &Index, held: &mut [Held; 3], step: &Step) {
    match *step {
        Step::Store { owner, prompt, length, again } => {
            let mut known = 0;
            while !again && known < length && held[owner].contains_key(&engine_hash(owner, prompt, known)) {
                known += 1;
            }
            let hashes: Vec<u64> = (known..length).map(|block| engine_hash(owner, prompt, block)).collect();
            for hash in &hashes {
                *held[owner].entry(*hash).or_default() += 1;
            }
            if !hashes.is_empty() {
                let parent = known.checked_sub(1).map(|block| engine_hash(owner, prompt, block));
                store(
                    index,
                    owner as u32,
                    &hashes,
                    parent,
                    &tokens(prompt, length)[known * SIZE..],
                    SIZE as u32,
                );
            }
        }
        Step::Remove { owner, prompt, block } => {
            let hash = engine_hash(owner, prompt, block);
            apply(index, owner as u32, vec![removed(&[hash])]);
            if let Some(copies) = held[owner].get_mut(&hash) {
                *copies -= 1;
                if *copies == 0 {
                    held[owner].remove(&hash);
                }
            }
        }
        Step::Clear { owner } => {
            apply(index, owner as u32, vec![KvEvent::AllCleared]);
            held[owner].clear();
        }
        Step::Reset { owner } => {
            index.reset(OwnerSlot(owner as u32));
            held[owner].clear();
        }
    }
}

proptest! {
    #[test]
    fn the_index_holds_what_the_model_holds(steps in steps()) {
        let index = index(3);
        let mut held: [Held; 3] = Default::default();
        for step in &steps {
            run(&index, &mut held, step);
        }
        for prompt in 0..8 {
            let found = tokens_held(&index, &tokens(prompt, 6), 3);
            for (owner, held) in held.iter().enumerate() {
                let run = (0..6).take_while(|block| held.contains_key(&engine_hash(owner, prompt, *block)));
                prop_assert_eq!(found[owner] as usize, run.count() * SIZE, "prompt {} owner {}", prompt, owner);
            }
        }
        for (owner, held) in held.iter().enumerate() {
            prop_assert_eq!(stats(&index, owner as u32).blocks, held.len());
        }
        // The map holds no block that no owner holds.
        let mut blocks = HashSet::new();
        for (owner, held) in held.iter().enumerate() {
            for prompt in 0..8 {
                for block in 0..6 {
                    if held.contains_key(&engine_hash(owner, prompt, block)) {
                        blocks.insert(tokens(prompt, block + 1));
                    }
                }
            }
        }
        prop_assert_eq!(index.size().blocks, blocks.len());
    }
}
