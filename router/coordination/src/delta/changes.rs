//! Changes as bytes: one byte for how far the owner's content is known, then nine for each change.
//!
//! A change is a byte (bit 0: held from now on; bit 1: on a slower tier) and the block's hash, little-endian.

use kvasir_core::{BlockChange, BlockHash, Completeness, HeldOn};

use crate::snapshot::{completeness_code, completeness_of_code};

/// The most changes in one delta: 4.6 kB, so that no entry holds the server up.
pub const MOST_CHANGES: usize = 512;

const CHANGE: usize = 9;
const HELD: u8 = 1;
const OTHER_TIER: u8 = 2;

/// Why bytes are no changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeltaError {
    /// The length is none that a writer writes.
    #[error("the delta's length is wrong")]
    Length,
    /// A byte has a meaning that is not known here.
    #[error("the delta has an unknown mark")]
    Mark,
}

/// The bytes of at most [`MOST_CHANGES`] changes; what is above that is left out.
pub fn encode_changes(completeness: Completeness, changes: &[BlockChange]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + CHANGE * changes.len().min(MOST_CHANGES));
    bytes.push(completeness_code(completeness));
    for change in changes.iter().take(MOST_CHANGES) {
        let tier = match change.on {
            HeldOn::Gpu => 0,
            HeldOn::OtherTier => OTHER_TIER,
        };
        bytes.push(tier | if change.held { HELD } else { 0 });
        bytes.extend_from_slice(&change.block.0.to_le_bytes());
    }
    bytes
}

/// Reads changes, and how far the content is known after them.
///
/// # Errors
/// The bytes are something else.
pub fn decode_changes(bytes: &[u8]) -> Result<(Completeness, Vec<BlockChange>), DeltaError> {
    let (code, packed) = bytes.split_first().ok_or(DeltaError::Length)?;
    let completeness = completeness_of_code(*code).ok_or(DeltaError::Mark)?;
    if packed.len() % CHANGE != 0 || packed.len() > CHANGE * MOST_CHANGES {
        return Err(DeltaError::Length);
    }
    let changes = packed.chunks_exact(CHANGE).map(|packed| {
        let (mark, hash) = packed.split_first().ok_or(DeltaError::Length)?;
        if mark & !(HELD | OTHER_TIER) != 0 {
            return Err(DeltaError::Mark);
        }
        Ok(BlockChange {
            block: BlockHash(hash.try_into().map_or(0, u64::from_le_bytes)),
            on: if mark & OTHER_TIER == 0 { HeldOn::Gpu } else { HeldOn::OtherTier },
            held: mark & HELD != 0,
        })
    });
    Ok((completeness, changes.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(most: usize) -> impl Strategy<Value = Vec<BlockChange>> {
        let change = (any::<u64>(), any::<bool>(), any::<bool>()).prop_map(|(hash, gpu, held)| BlockChange {
            block: BlockHash(hash),
            on: if gpu { HeldOn::Gpu } else { HeldOn::OtherTier },
            held,
        });
        proptest::collection::vec(change, 0..most)
    }

    #[test]
    fn other_bytes_are_refused() {
        for (bytes, error) in [
            (vec![], DeltaError::Length),
            (vec![3], DeltaError::Mark),
            (vec![0, 1], DeltaError::Length),
            (vec![0, 4, 0, 0, 0, 0, 0, 0, 0, 0], DeltaError::Mark),
            (vec![0; 1 + CHANGE * (MOST_CHANGES + 1)], DeltaError::Length),
        ] {
            assert_eq!(decode_changes(&bytes), Err(error), "{bytes:?}");
        }
        assert_eq!(decode_changes(&[1]), Ok((Completeness::Partial, Vec::new())));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(changes in changes(MOST_CHANGES + 1)) {
            let bytes = encode_changes(Completeness::Approximate, &changes);
            prop_assert_eq!(decode_changes(&bytes), Ok((Completeness::Approximate, changes)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((completeness, changes)) = decode_changes(&bytes) {
                prop_assert_eq!(encode_changes(completeness, &changes), bytes);
            }
        }
    }
}
