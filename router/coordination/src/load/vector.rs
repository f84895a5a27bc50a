//! One replica's load as bytes: the schema, then 24 bytes for each endpoint, named by the hash of its name.

use kvasir_core::{EndpointId, SharedLoad};

use crate::key;

/// Endpoints in one vector. 4096 are 96 KiB; a fleet that large keeps its busiest.
pub(super) const MOST_ENDPOINTS: usize = 4096;
/// Bytes of one endpoint: name's hash, prefill tokens, requests in flight, requests decoding.
const ENTRY: usize = 24;

/// One endpoint's load under its name's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) endpoint: u64,
    pub(super) load: SharedLoad,
}

/// What stands for an endpoint in a vector. 64 bits: among 4096 endpoints two that meet are one in a trillion.
pub(super) fn hash_of(endpoint: &EndpointId) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key::owner(endpoint).as_bytes())
}

/// The bytes of a vector. Of too many endpoints those with the most in flight are kept.
pub(super) fn write(loads: &[(EndpointId, SharedLoad)]) -> Vec<u8> {
    let mut loads: Vec<&(EndpointId, SharedLoad)> = loads.iter().collect();
    if loads.len() > MOST_ENDPOINTS {
        loads.sort_by_key(|(_, load)| std::cmp::Reverse((load.in_flight, load.prefill_tokens)));
        loads.truncate(MOST_ENDPOINTS);
    }
    let mut bytes = Vec::with_capacity(4 + loads.len() * ENTRY);
    bytes.extend(key::SCHEMA.to_le_bytes());
    for (endpoint, load) in loads {
        bytes.extend(hash_of(endpoint).to_le_bytes());
        bytes.extend(load.prefill_tokens.to_le_bytes());
        bytes.extend(load.in_flight.to_le_bytes());
        bytes.extend(load.decoding.to_le_bytes());
    }
    bytes
}

/// The entries of a vector; `None` for another schema, or bytes that are no vector.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (schema, entries) = bytes.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    if u32::from_le_bytes(*schema) != key::SCHEMA || !rest.is_empty() || entries.len() > MOST_ENDPOINTS {
        return None;
    }
    entries.iter().map(|entry| read_entry(entry)).collect()
}

fn read_entry(entry: &[u8]) -> Option<Entry> {
    let (endpoint, rest) = entry.split_first_chunk()?;
    let (prefill_tokens, rest) = rest.split_first_chunk()?;
    let (in_flight, rest) = rest.split_first_chunk()?;
    let (decoding, _) = rest.split_first_chunk()?;
    Some(Entry {
        endpoint: u64::from_le_bytes(*endpoint),
        load: SharedLoad {
            in_flight: u32::from_le_bytes(*in_flight),
            prefill_tokens: u64::from_le_bytes(*prefill_tokens),
            decoding: u32::from_le_bytes(*decoding),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(number: usize) -> EndpointId {
        EndpointId::new("ns", format!("pod{number}"), 8000, 0)
    }

    fn load(in_flight: u32) -> SharedLoad {
        SharedLoad { in_flight, prefill_tokens: u64::from(in_flight) * 1000, decoding: in_flight / 2 }
    }

    #[test]
    fn too_many_endpoints_keep_the_busiest() {
        let loads: Vec<_> = (0..5000).map(|number| (endpoint(number), load(number as u32))).collect();
        let entries = read(&write(&loads)).unwrap();
        assert_eq!(entries.len(), MOST_ENDPOINTS);
        assert!(entries.iter().all(|entry| entry.load.in_flight >= 904));
    }

    #[test]
    fn another_schema_is_not_read() {
        let mut bytes = write(&[(endpoint(1), load(3))]);
        assert_eq!(read(&bytes).unwrap().len(), 1);
        bytes[0] = 2;
        assert_eq!(read(&bytes), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(loads in prop::collection::vec((0_usize..9999, any::<(u32, u64, u32)>()), 0..50)) {
            let loads: Vec<_> = loads
                .into_iter()
                .map(|(number, (in_flight, prefill_tokens, decoding))| {
                    (endpoint(number), SharedLoad { in_flight, prefill_tokens, decoding })
                })
                .collect();
            let entries = read(&write(&loads)).unwrap();
            let wanted: Vec<Entry> =
                loads.iter().map(|(endpoint, load)| Entry { endpoint: hash_of(endpoint), load: *load }).collect();
            prop_assert_eq!(entries, wanted);
        }

        #[test]
        fn garbage_is_refused_or_harmless(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(entries) = read(&bytes) {
                prop_assert_eq!(4 + entries.len() * ENTRY, bytes.len());
            }
        }
    }
}
