//! Which listeners of a Gateway a route is attached to.

use std::sync::Arc;

use kvasir_api::ParentReference;
use kvasir_state::plan::ObjectName;

use super::gateways::OurGateway;
use super::hostnames::in_common;
use super::listeners::OurListener;
use super::reasons::{self, Refusal};
use crate::objects::Objects;

/// A listener that takes a route.
#[derive(Debug)]
pub(super) struct Attached<'g> {
    /// Its number in its Gateway.
    pub(super) number: usize,
    pub(super) listener: &'g OurListener<'g>,
    /// The hosts that they have in common; empty means any.
    pub(super) hostnames: Vec<Arc<str>>,
}

/// The listeners that `parent` means and that take the route `name`. At least one of them is served; those that are not
/// count the route all the same, as Gateway API wants it.
///
/// # Errors
/// Why no listener that is served takes it: the last question that none of them passed.
pub(super) fn attach<'g>(
    parent: &ParentReference,
    name: &ObjectName,
    hostnames: &[String],
    gateway: &'g OurGateway<'_>,
    objects: &Objects,
) -> Result<Vec<Attached<'g>>, Refusal> {
    let section = parent.section_name.as_deref().filter(|section| !section.is_empty());
    let mut meant: Vec<(usize, &OurListener<'_>)> = gateway.listeners.iter().enumerate().collect();
    meant.retain(|(_, listener)| {
        section.is_none_or(|section| section == listener.spec.name)
            && parent.port.is_none_or(|port| port == listener.spec.port)
    });
    if meant.is_empty() {
        return Err(Refusal::new(reasons::NO_MATCHING_PARENT, no_such_listener(parent, gateway)));
    }
    let served = |(_, listener): &(usize, &OurListener<'_>)| listener.is_served();
    if !meant.iter().any(served) {
        let message = format!("the Gateway {} serves none of the listeners that are meant", gateway.name);
        return Err(Refusal::new(reasons::NO_MATCHING_PARENT, message));
    }
    meant.retain(|(_, listener)| listener.takes(&name.namespace, &gateway.name.namespace, objects));
    if !meant.iter().any(served) {
        let message = format!(
            "no listener of the Gateway {} takes HTTPRoutes of the namespace {}; see allowedRoutes there",
            gateway.name, name.namespace
        );
        return Err(Refusal::new(reasons::NOT_ALLOWED_BY_LISTENERS, message));
    }
    let shared = meant.into_iter().filter_map(|(number, listener)| {
        let hostnames = in_common(listener.hostname.as_deref(), hostnames)?;
        Some(Attached { number, listener, hostnames })
    });
    let attached: Vec<Attached<'_>> = shared.collect();
    if !attached.iter().any(|attached| attached.listener.is_served()) {
        let message = format!("spec.hostnames: no listener of the Gateway {} has one of them", gateway.name);
        return Err(Refusal::new(reasons::NO_MATCHING_LISTENER_HOSTNAME, message));
    }
    Ok(attached)
}

fn no_such_listener(parent: &ParentReference, gateway: &OurGateway<'_>) -> String {
    let section = parent.section_name.as_ref().map(|section| format!(" of the name {section:?}"));
    let port = parent.port.map(|port| format!(" on the port {port}"));
    format!(
        "the Gateway {} has no listener{}{}",
        gateway.name,
        section.unwrap_or_default(),
        port.unwrap_or_default()
    )
}
