//! Which of two objects goes first.

use kube::Resource;
use kvasir_api::Read;
use kvasir_state::plan::ObjectName;

use crate::objects::Kind;

/// Every object of a kind, the oldest first; of equal age by namespace, then by name. One that does not say when it was
/// created is older than all that do.
pub(super) fn oldest_first<K: Resource<DynamicType = ()>>(kind: &Kind<K>) -> Vec<(&ObjectName, &Read<K>)> {
    let mut all: Vec<(&ObjectName, &Read<K>)> =
        kind.iter().map(|(name, object)| (name, object.as_ref())).collect();
    // Stable, and what it starts from is in the order of names.
    all.sort_by_key(|(_, object)| object.meta().creation_timestamp.as_ref().map(|created| created.0));
    all
}
