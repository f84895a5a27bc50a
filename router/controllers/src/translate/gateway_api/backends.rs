//! The backends of an HTTPRoute's rule: pools, and what is no pool.

use std::sync::Arc;

use kvasir_api::gateway::HttpBackendRef;
use kvasir_api::inference_pool::INFERENCE_GROUP;
use kvasir_state::plan::{ObjectName, PlanBackend, PlanTo, TargetId};

use super::filters;
use super::grants::{POOL_KIND, may_name};
use super::reasons::{self, Refusal};
use super::rules::Problem;
use crate::objects::Objects;

/// What a reference leads to.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) to: PlanTo,
    /// Why it leads nowhere.
    pub(super) unresolved: Option<Refusal>,
    /// The pool that it names, and may name, there or not.
    pub(super) pool: Option<ObjectName>,
}

/// Follows a reference of a route of `namespace`. The group and the kind of a pool must both be said: what Gateway API
/// means without them is a Service. A `port` says nothing, since a pool has its own.
pub(super) fn resolve(at: &str, backend: &HttpBackendRef, namespace: &Arc<str>, objects: &Objects) -> Named {
    let nowhere = |what: &'static str, reason: &'static str, message: String| {
        let unresolved = Some(Refusal::new(reason, format!("{at}: {message}")));
        Named { to: PlanTo::Refused(what), unresolved, pool: None }
    };
    let group = backend.group.as_deref().unwrap_or_default();
    let kind = backend.kind.as_deref().unwrap_or("Service");
    if (group, kind) != (INFERENCE_GROUP, POOL_KIND) {
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind} of the group {group}") };
        let message = format!(
            "a {shown} cannot be a backend here; name an {POOL_KIND} of the group {INFERENCE_GROUP}, \
             or use a ModelRoute"
        );
        return nowhere("a backend other than an InferencePool", reasons::INVALID_KIND, message);
    }
    let home = backend.namespace.as_deref().filter(|home| !home.is_empty());
    let home = home.map_or_else(|| Arc::clone(namespace), Into::into);
    let pool = ObjectName::new(home, backend.name.as_str());
    if !may_name(objects, namespace, &pool) {
        let message = format!(
            "no ReferenceGrant in the namespace {} lets HTTPRoutes of {namespace} name the {POOL_KIND} {}",
            pool.namespace, pool.name
        );
        let what = "a backend of another namespace without a ReferenceGrant";
        return nowhere(what, reasons::REF_NOT_PERMITTED, message);
    }
    let problem = match objects.inference_pools.get(&pool).map(|read| &read.0) {
        Some(Ok(_)) => None,
        Some(Err(unreadable)) => Some(format!("the {POOL_KIND} {pool} cannot be read: {unreadable}")),
        None => Some(format!("the {POOL_KIND} {pool} does not exist")),
    };
    let unresolved =
        problem.map(|problem| Refusal::new(reasons::BACKEND_NOT_FOUND, format!("{at}: {problem}")));
    let to = PlanTo::Target(TargetId::inference_pool(Arc::clone(&pool.namespace), Arc::clone(&pool.name)));
    Named { to, unresolved, pool: Some(pool) }
}

/// The backend as the state is told.
pub(super) fn plan(
    at: &str,
    backend: &HttpBackendRef,
    to: PlanTo,
    problems: &mut Vec<Problem>,
) -> PlanBackend {
    let weight = u32::try_from(backend.weight.unwrap_or(1)).unwrap_or(0);
    let (request_headers, response_headers) = filters::of_backend(at, backend, problems);
    PlanBackend { to, weight, request_headers, response_headers }
}
