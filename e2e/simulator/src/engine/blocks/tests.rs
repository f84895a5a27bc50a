use super::*;
use proptest::prelude::*;

fn hash(content: u64) -> BlockHash {
    BlockHash(content + 1)
}

/// A pool and sequences over it, kept the slow and plain way.
#[derive(Default)]
struct Plain {
    /// Of each sequence its blocks.
    sequences: Vec<Vec<u32>>,
    /// Blocks without users, the longest unused first.
    idle: Vec<u32>,
    content: HashMap<u32, u64>,
}

impl Plain {
    fn users(&self, block: u32) -> usize {
        self.sequences.iter().flatten().filter(|used| **used == block).count()
    }
}

#[test]
fn the_longest_unused_leaves_first_and_of_one_sequence_its_end() {
    let mut pool = BlockPool::new(4);
    let fill = |pool: &mut BlockPool, contents: &[u64]| -> Vec<u32> {
        contents
            .iter()
            .map(|content| {
                let (block, _) = pool.take().unwrap();
                pool.fill(block, hash(*content));
                block
            })
            .collect()
    };
    let first = fill(&mut pool, &[1, 2]);
    let second = fill(&mut pool, &[3, 4]);
    assert!(pool.take().is_none(), "all are in use");
    pool.release(&second);
    pool.release(&first);
    let evicted: Vec<_> = (0..4).map(|_| pool.take().unwrap().1).collect();
    assert_eq!(evicted, [4, 3, 2, 1].map(|content| Some(hash(content))));
}

#[test]
fn a_shared_block_stays_until_its_last_user_leaves() {
    let mut pool = BlockPool::new(1);
    let (block, _) = pool.take().unwrap();
    pool.fill(block, hash(7));
    assert_eq!(pool.share(hash(7)), Some(block));
    pool.release(&[block]);
    assert_eq!((pool.used(), pool.take()), (1, None));
    pool.release(&[block]);
    assert_eq!((pool.used(), pool.cached_blocks(&[hash(7), hash(8)])), (0, 1));
    assert_eq!(pool.take(), Some((block, Some(hash(7)))));
    assert_eq!(pool.cached_blocks(&[hash(7)]), 0);
}

#[test]
fn content_that_is_there_twice_is_cached_until_both_are_gone() {
    let mut pool = BlockPool::new(2);
    let blocks: Vec<u32> = (0..2).map(|_| pool.take().unwrap().0).collect();
    blocks.iter().for_each(|block| pool.fill(*block, hash(1)));
    pool.release(&blocks);
    assert_eq!(pool.take().unwrap().1, Some(hash(1)));
    assert_eq!(pool.cached_blocks(&[hash(1)]), 1);
    assert_eq!(pool.take().unwrap().1, Some(hash(1)));
    assert_eq!(pool.cached_blocks(&[hash(1)]), 0);
}

/// Begin a sequence over these contents, or end one.
#[derive(Clone, Debug)]
enum Move {
    Begin(Vec<u64>),
    End(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        proptest::collection::vec(0..12_u64, 1..6).prop_map(Move::Begin),
        (0..8_usize).prop_map(Move::End),
    ];
    proptest::collection::vec(one, 1..80)
}

proptest! {
    #[test]
    fn a_pool_behaves_like_the_plain_one(moves in moves(), capacity in 6..20_u32) {
        let mut pool = BlockPool::new(capacity);
        let mut plain = Plain::default();
        for one in moves {
            match one {
                Move::Begin(contents) => {
                    let mut blocks = Vec::new();
                    for content in contents {
                        let shared = pool.share(hash(content));
                        if let Some(block) = shared {
                            prop_assert_eq!(plain.content.get(&block), Some(&content));
                            plain.idle.retain(|idle| *idle != block);
                            blocks.push(block);
                            plain.sequences.push(vec![block]);
                            continue;
                        }
                        let Some((block, evicted)) = pool.take() else {
                            prop_assert!(plain.idle.is_empty(), "nothing is free");
                            break;
                        };
                        let expected = match evicted {
                            Some(_) => {
                                // Never-used memory first, then the longest unused.
                                prop_assert_eq!(plain.idle.remove(0), block);
                                plain.content.remove(&block)
                            }
                            None => None,
                        };
                        prop_assert_eq!(evicted, expected.map(hash));
                        pool.fill(block, hash(content));
                        plain.content.insert(block, content);
                        plain.sequences.push(vec![block]);
                        blocks.push(block);
                    }
                    // The single uses are one sequence's.
                    plain.sequences.truncate(plain.sequences.len() - blocks.len());
                    plain.sequences.push(blocks);
                }
                Move::End(at) if at < plain.sequences.len() => {
                    let blocks = plain.sequences.remove(at);
                    pool.release(&blocks);
                    for (place, block) in blocks.iter().enumerate().rev() {
                        if plain.users(*block) + blocks[..place].iter().filter(|other| *other == block).count() == 0 {
                            plain.idle.push(*block);
                        }
                    }
                }
                Move::End(_) => {}
            }
            let mut used: Vec<u32> = plain.sequences.iter().flatten().copied().collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(pool.used() as usize, used.len());
            prop_assert!(pool.used() <= pool.capacity());
        }
    }
}
