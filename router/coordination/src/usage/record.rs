//! Use as bytes: a replica's head, and lists of what users used.

use std::time::Duration;

use kvasir_core::{UsageKey, UsageShare};

use crate::key;

/// Users in one list. With 20 bytes each it is 80 KiB; of more those with the most are kept.
pub(super) const MOST_USERS: usize = 4096;
/// Segments that a head can tell of.
pub(super) const MOST_SEGMENTS: u64 = 64;
const ENTRY: usize = 20;
const HEAD: usize = 32;

/// What is told of a replica's segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// How long a segment is.
    pub(super) segment: Duration,
    /// The number of the one under way.
    pub(super) current: u64,
    /// Rises whenever a segment is written.
    pub(super) revision: u64,
    /// Which have something in them: bit `i` is the one `i` before the current.
    pub(super) filled: u64,
}

impl Head {
    pub(super) fn write(&self) -> Vec<u8> {
        let segment = u64::try_from(self.segment.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = Vec::with_capacity(4 + HEAD);
        bytes.extend(key::SCHEMA.to_le_bytes());
        for number in [segment, self.current, self.revision, self.filled] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// `None` for another schema, or bytes that are no head.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (schema, numbers) = bytes.split_first_chunk::<4>()?;
        let (numbers, rest) = numbers.as_chunks::<8>();
        let [segment, current, revision, filled] = numbers else { return None };
        if u32::from_le_bytes(*schema) != key::SCHEMA || !rest.is_empty() {
            return None;
        }
        Some(Self {
            segment: Duration::from_millis(u64::from_le_bytes(*segment)),
            current: u64::from_le_bytes(*current),
            revision: u64::from_le_bytes(*revision),
            filled: u64::from_le_bytes(*filled),
        })
    }

    /// The numbers of the segments that have something in them, the latest first.
    pub(super) fn filled(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { current, filled, .. } = *self;
        (0..MOST_SEGMENTS)
            .filter(move |before| filled & (1 << before) != 0)
            .filter_map(move |before| current.checked_sub(before))
    }
}

/// The bytes of a list. How many users were left out.
pub(super) fn write(mut shares: Vec<UsageShare>) -> (Vec<u8>, usize) {
    let left_out = shares.len().saturating_sub(MOST_USERS);
    if left_out > 0 {
        shares.sort_unstable_by_key(|share| std::cmp::Reverse((share.cost, share.requests, share.key)));
        shares.truncate(MOST_USERS);
    }
    let mut bytes = Vec::with_capacity(4 + shares.len() * ENTRY);
    bytes.extend(key::SCHEMA.to_le_bytes());
    for share in shares {
        bytes.extend(share.key.0.to_le_bytes());
        bytes.extend(share.cost.to_le_bytes());
        bytes.extend(share.requests.to_le_bytes());
    }
    (bytes, left_out)
}

/// The users of a list; `None` for another schema, or bytes that are no list.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<UsageShare>> {
    let (schema, entries) = bytes.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    if u32::from_le_bytes(*schema) != key::SCHEMA || !rest.is_empty() || entries.len() > MOST_USERS {
        return None;
    }
    entries.iter().map(|entry| read_entry(entry)).collect()
}

fn read_entry(entry: &[u8]) -> Option<UsageShare> {
    let (key, rest) = entry.split_first_chunk()?;
    let (cost, rest) = rest.split_first_chunk()?;
    let (requests, _) = rest.split_first_chunk()?;
    Some(UsageShare {
        key: UsageKey(u64::from_le_bytes(*key)),
        cost: u64::from_le_bytes(*cost),
        requests: u32::from_le_bytes(*requests),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_many_users_keep_those_with_the_most() {
        let shares = (0..5000).map(|number| UsageShare { key: UsageKey(number), cost: number, requests: 1 });
        let (bytes, left_out) = write(shares.collect());
        let kept = read(&bytes).unwrap();
        assert_eq!((kept.len(), left_out), (MOST_USERS, 904));
        assert!(kept.iter().all(|share| share.cost >= 904));
    }

    #[test]
    fn a_head_names_its_segments() {
        let head =
            Head { segment: Duration::from_secs(5), current: 9, revision: 1, filled: 0b1000_0000_0101 };
        assert_eq!(head.filled().collect::<Vec<_>>(), [9, 7], "there are none before the first");
        let mut bytes = head.write();
        bytes[0] = 2;
        assert_eq!(Head::read(&bytes), None, "another schema");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            shares in prop::collection::vec(any::<(u64, u64, u32)>(), 0..50),
            (millis, current, revision, filled) in any::<(u64, u64, u64, u64)>(),
        ) {
            let shares: Vec<UsageShare> = shares
                .into_iter()
                .map(|(key, cost, requests)| UsageShare { key: UsageKey(key), cost, requests })
                .collect();
            prop_assert_eq!(read(&write(shares.clone()).0), Some(shares));
            let head = Head { segment: Duration::from_millis(millis), current, revision, filled };
            prop_assert_eq!(Head::read(&head.write()), Some(head));
        }

        #[test]
        fn garbage_is_refused_or_harmless(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(shares) = read(&bytes) {
                prop_assert_eq!(4 + shares.len() * ENTRY, bytes.len());
            }
            if let Some(head) = Head::read(&bytes) {
                prop_assert!(head.filled().count() <= 64);
            }
        }
    }
}
