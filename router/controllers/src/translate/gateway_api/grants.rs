//! What a route may name of other namespaces.

use std::sync::Arc;

use kvasir_api::gateway::{GATEWAY_GROUP, ReferenceGrantFrom};
use kvasir_api::inference_pool::INFERENCE_GROUP;
use kvasir_state::plan::ObjectName;

use crate::objects::Objects;

/// The kind of a pool.
pub(super) const POOL_KIND: &str = "InferencePool";

/// Whether an HTTPRoute of the namespace `from` may name the pool: its own namespace's always, another's where a
/// ReferenceGrant of that namespace says so. A grant that cannot be read grants nothing.
pub(super) fn may_name(objects: &Objects, from: &Arc<str>, pool: &ObjectName) -> bool {
    if *from == pool.namespace {
        return true;
    }
    let who = ReferenceGrantFrom {
        group: GATEWAY_GROUP.to_owned(),
        kind: "HTTPRoute".to_owned(),
        namespace: from.to_string(),
    };
    objects
        .reference_grants
        .range(ObjectName::new(Arc::clone(&pool.namespace), "")..)
        .take_while(|(name, _)| name.namespace == pool.namespace)
        .filter_map(|(_, read)| read.0.as_ref().ok())
        .any(|grant| grant.spec.allows(&who, (INFERENCE_GROUP, POOL_KIND, &pool.name)))
}
