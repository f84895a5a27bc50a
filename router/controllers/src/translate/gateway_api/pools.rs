//! What InferencePools say at each Gateway.
//!
//! A pool belongs to the Gateways at which an accepted HTTPRoute names it, and says nothing elsewhere. Its endpoint
//! picker is never asked, since the router picks itself: that the Service exists is not looked at (kthena's examples
//! name one that does not), only whether the reference could be one.

use std::collections::BTreeMap;

use kvasir_api::conditions::types;
use kvasir_api::gateway::GATEWAY_GROUP;
use kvasir_api::inference_pool::EndpointPickerRef;
use kvasir_api::{InferencePool, ParentReference, Read};
use kvasir_state::plan::{ObjectName, TargetKind};

use super::classes::generation;
use super::http_routes::Naming;
use super::reasons;
use crate::objects::Objects;
use crate::status::{ParentSaid, Said, Status, StatusKind, Verdict};
use crate::translate::Translation;

/// The most parents that a pool's status has room for.
const MOST_PARENTS: usize = 32;

pub(super) fn tell(objects: &Objects, naming: &Naming, translation: &mut Translation) {
    let pools = translation.plan.targets.iter().filter(|target| target.id.kind == TargetKind::InferencePool);
    let refused: BTreeMap<&ObjectName, &'static str> =
        pools.filter_map(|target| Some((&target.id.name, target.refused?))).collect();
    let mut statuses = Vec::with_capacity(objects.inference_pools.len());
    for (name, read) in &objects.inference_pools {
        let conditions = conditions(read, refused.get(name).copied());
        let gateways = naming.get(name).into_iter().flatten().take(MOST_PARENTS);
        let parents = gateways
            .map(|gateway| ParentSaid { parent: reference(gateway), conditions: conditions.clone() })
            .collect();
        statuses.push(Status {
            kind: StatusKind::InferencePool,
            name: name.clone(),
            generation: generation(read.as_ref()),
            said: Said::Parents(parents),
        });
    }
    translation.statuses.append(&mut statuses);
}

/// A pool's way to name a Gateway.
fn reference(gateway: &ObjectName) -> ParentReference {
    ParentReference {
        group: Some(GATEWAY_GROUP.to_owned()),
        kind: Some("Gateway".to_owned()),
        namespace: Some(gateway.namespace.to_string()),
        name: gateway.name.to_string(),
        section_name: None,
        port: None,
    }
}

fn conditions(read: &Read<InferencePool>, refused: Option<&'static str>) -> Vec<Verdict> {
    let pool = match &read.0 {
        Ok(pool) => pool,
        Err(unreadable) => {
            return vec![Verdict::fails(types::ACCEPTED, reasons::INVALID, unreadable.error.to_string())];
        }
    };
    let accepted = match refused {
        None => Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "the pool is used"),
        Some(what) => {
            let message = format!("{what} is not available");
            Verdict::fails(types::ACCEPTED, reasons::NOT_SUPPORTED_BY_PARENT, message)
        }
    };
    let strange = pool.spec.endpoint_picker_ref.as_ref().filter(|picker| !could_be_a_picker(picker));
    let resolved = match strange {
        None => {
            let message = "the router picks endpoints itself; an endpointPickerRef is not asked";
            Verdict::holds(types::RESOLVED_REFS, reasons::RESOLVED_REFS, message)
        }
        Some(picker) => {
            let message = format!(
                "spec.endpointPickerRef: {} of the group {:?} cannot be an endpoint picker; name a Service, or \
                 nothing. The router picks endpoints itself all the same",
                picker.kind.as_deref().unwrap_or("Service"),
                picker.group.as_deref().unwrap_or_default()
            );
            Verdict::fails(types::RESOLVED_REFS, reasons::INVALID_EXTENSION_REF, message)
        }
    };
    vec![accepted, resolved]
}

fn could_be_a_picker(picker: &EndpointPickerRef) -> bool {
    picker.group.as_deref().unwrap_or_default().is_empty()
        && picker.kind.as_deref().unwrap_or("Service") == "Service"
}
