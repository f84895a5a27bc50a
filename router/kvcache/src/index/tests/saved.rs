//! A content that is left behind and taken in again.

use kvasir_core::OwnerJournal;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::script::{Step, credits, held, play, steps};
use super::*;

const SLOT: OwnerSlot = OwnerSlot(0);

/// Through bytes and back.
fn carried(saved: &SavedOwner) -> SavedOwner {
    let read = SavedOwner::from_bytes(&saved.to_bytes()).unwrap();
    assert_eq!(&read, saved);
    read
}

/// An index of its own whose owner 0 goes on from `saved`.
fn restored(saved: &SavedOwner) -> Index {
    let index = Index::default();
    index.register(SLOT, &model(), "anew").unwrap();
    index.restore(SLOT, &carried(saved)).unwrap();
    index
}

proptest! {
    /// Whoever goes on from a saved state ends as if it had been there all along.
    #[test]
    fn going_on_is_like_having_been_there(before in steps(false), after in steps(false)) {
        let index = index(1);
        before.iter().for_each(|step| play(&index, 0, step));
        let Some(saved) = index.save(SLOT) else { return Ok(()) };
        let anew = restored(&saved);
        let unknown = stats(&index, 0).unknown_removals;
        prop_assert_eq!(held(&anew), held(&index));
        prop_assert_eq!(anew.progress(SLOT), index.progress(SLOT));
        for step in &after {
            play(&index, 0, step);
            play(&anew, 0, step);
            prop_assert_eq!(credits(&anew), credits(&index));
        }
        prop_assert_eq!(held(&anew), held(&index));
        prop_assert_eq!(anew.size().blocks, index.size().blocks);
        prop_assert_eq!(stats(&anew, 0).unknown_removals, stats(&index, 0).unknown_removals - unknown);
    }

    /// With a history full of holes, what waits for its parent is left behind: less may be known, never more.
    #[test]
    fn what_waits_is_left_behind(before in steps(true), after in steps(true)) {
        let index = index(1);
        before.iter().for_each(|step| play(&index, 0, step));
        let Some(saved) = index.save(SLOT) else { return Ok(()) };
        let anew = restored(&saved);
        prop_assert_eq!(held(&anew), held(&index));
        for step in &after {
            play(&index, 0, step);
            play(&anew, 0, step);
        }
        let (all, known) = (held(&index), held(&anew));
        prop_assert!(known.gpu.iter().all(|block| all.gpu.contains(block)));
        prop_assert!(known.other_tiers.iter().all(|block| all.other_tiers.contains(block)));
    }

    #[test]
    fn no_bytes_bring_it_down(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), sealed: bool) {
        if sealed && bytes.len() >= 30 {
            let genuine = sample().to_bytes();
            bytes[..22].copy_from_slice(&genuine[..22]);
            seal(&mut bytes);
        }
        let _ = SavedOwner::from_bytes(&bytes);
    }

    #[test]
    fn changed_parts_are_read_or_refused(at in 22usize..2000, with: u8) {
        let mut bytes = sample().to_bytes();
        let at = 22 + at % (bytes.len() - 30);
        bytes[at] = with;
        seal(&mut bytes);
        if let Ok(saved) = SavedOwner::from_bytes(&bytes) {
            let index = Index::default();
            index.register(SLOT, saved.model(), "").unwrap();
            index.restore(SLOT, &saved).unwrap();
        }
    }
}

/// Sets length and checksum to what they should be.
fn seal(bytes: &mut [u8]) {
    let length = bytes.len() as u64;
    bytes[6..14].copy_from_slice(&length.to_le_bytes());
    let body = bytes.len() - 8;
    let checksum = xxh3_64(&bytes[..body]);
    bytes[body..].copy_from_slice(&checksum.to_le_bytes());
}

/// A state with everything in it: copies, aliases, tiers.
fn sample() -> SavedOwner {
    let index = index(1);
    for step in [
        Step::Store { prompt: 0, from: 0, to: 3, alias: false },
        Step::Store { prompt: 0, from: 0, to: 2, alias: false },
        Step::Store { prompt: 0, from: 0, to: 2, alias: true },
        Step::Offload { tier: 0, prompt: 0, to: 2, bare: true },
        Step::Offload { tier: 1, prompt: 1, to: 2, bare: false },
    ] {
        play(&index, 0, &step);
    }
    index.save(SLOT).unwrap()
}

#[test]
fn damage_is_named() {
    let bytes = sample().to_bytes();
    let read = |bytes: &[u8]| SavedOwner::from_bytes(bytes).unwrap_err();
    for length in 0..bytes.len() {
        let expected = if length < 14 {
            DamagedState::Foreign
        } else {
            DamagedState::Truncated { missing: (bytes.len() - length) as u64 }
        };
        assert_eq!(read(&bytes[..length]), expected, "{length}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let found = read(&damaged);
        let expected = match at {
            0..4 => matches!(found, DamagedState::Foreign),
            4..6 => matches!(found, DamagedState::Version(_)),
            6..14 => matches!(found, DamagedState::Truncated { .. } | DamagedState::Trailing(_)),
            _ => found == DamagedState::Checksum,
        };
        assert!(expected, "{at}: {found:?}");
    }
    assert_eq!(read(&[&bytes[..], &[0, 0]].concat()), DamagedState::Trailing(2));
    let mut other = bytes.clone();
    other[14] ^= 1;
    seal(&mut other);
    assert_eq!(read(&other), DamagedState::Definition);
    // A count that claims more than there is takes no memory.
    let mut huge = bytes.clone();
    let page_and_groups = 22 + 2 + 1 + 1 + 2 * 25;
    let gpu = page_and_groups + 4 + 5 + 8;
    huge[gpu..gpu + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    seal(&mut huge);
    assert_eq!(read(&huge), DamagedState::Value("count"));
    assert_eq!(read(b"something else, long enough to have a length"), DamagedState::Foreign);
}

/// Small pages: one unit, and four pages that end none.
fn with_tails() -> Index {
    let index = index(1);
    let hashes: Vec<u64> = (1..=20).collect();
    let events = vec![KvEvent::Stored(stored(&hashes, None, &range(1, 20), 1))];
    let batch = Batch { events, ..Batch::default() };
    assert!(index.apply_digested(SLOT, &batch, Some(7)));
    index
}

#[test]
fn small_pages_go_on_in_the_middle_of_a_unit() {
    let more: Vec<u64> = (21..=32).collect();
    let saved = with_tails().save(SLOT).unwrap();
    let anew = restored(&saved);
    assert_eq!(stats(&anew, 0).pages, 19);
    store(&anew, 0, &more, Some(20), &range(21, 32), 1);
    assert_eq!((tokens_held(&anew, &range(1, 32), 1), stats(&anew, 0).orphans), (vec![32], 0));
    assert!(!format!("{saved:?}").contains("tokens"));
    // Without the tails what follows them waits for ever, and the owner says so.
    let anew = restored(&saved.without_tails());
    assert_eq!((stats(&anew, 0).completeness, stats(&anew, 0).pages), (Completeness::Partial, 0));
    store(&anew, 0, &more, Some(20), &range(21, 32), 1);
    assert_eq!((tokens_held(&anew, &range(1, 32), 1), stats(&anew, 0).orphans), (vec![16], 12));
}

#[test]
fn a_state_is_of_one_owner_and_of_batches_that_are_known() {
    let index = index(1);
    assert!(index.save(SLOT).is_none(), "nothing was applied");
    store(&index, 0, &[1], None, &range(1, 16), 16);
    assert!(index.save(SLOT).is_none(), "the batch came without a digest");
    let saved = sample();
    assert_eq!(index.restore(OwnerSlot(5), &saved), Err(RestoreError::UnknownOwner));
    index.register(OwnerSlot(1), &ModelName::from("other"), "").unwrap();
    assert_eq!(index.restore(OwnerSlot(1), &saved), Err(RestoreError::OtherModel));
    // It replaces what is there, and who records the owner hears of a new life.
    index.record(SLOT, 100);
    let before = index.content(SLOT).unwrap();
    index.restore(SLOT, &saved).unwrap();
    let changes = index.take_changes(SLOT).unwrap();
    assert!(changes.life > before.life && changes.changes.iter().all(|change| change.held));
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [0]);
    // Batches that are in it are not applied again.
    let last = saved.last_batch().seq;
    assert!(!index.apply(SLOT, &Batch { seq: last, ..Batch::default() }));
    assert!(index.apply(SLOT, &Batch { seq: last + 1, ..Batch::default() }));
}
