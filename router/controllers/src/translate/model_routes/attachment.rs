//! Which Gateways a ModelRoute serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_api::ParentReference;
use kvasir_api::gateway::{GatewaySpec, Listener};
use kvasir_state::plan::{ObjectName, PlanParent};

use crate::objects::Objects;
use crate::translate::Options;
use crate::translate::gateway_api::OurClass;
use crate::translate::verdicts::{Problem, list, reasons};

/// The protocol of the listeners that are served.
const HTTP: &str = "HTTP";

/// The Gateways that could be named.
#[derive(Debug)]
pub(super) struct Gateways<'a> {
    /// Those of our class, if it is served; `None` where requests come in by the one door.
    ours: Option<BTreeMap<&'a ObjectName, &'a GatewaySpec>>,
    objects: &'a Objects,
    class: &'a str,
}

/// What the references of a route come to.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    /// As the plan wants them.
    pub(super) parents: Option<Vec<PlanParent>>,
    /// Why the route serves no Gateway.
    pub(super) problem: Option<Problem>,
    /// What is wrong with some references, where others are good.
    pub(super) note: Option<String>,
}

impl<'a> Gateways<'a> {
    pub(super) fn of(objects: &'a Objects, options: &'a Options) -> Self {
        let class = OurClass::of(objects, options);
        let is_ours = |spec: &GatewaySpec| class.serves(&spec.gateway_class_name);
        let readable = objects.gateways.iter().filter_map(|(name, read)| Some((name, read.0.as_ref().ok()?)));
        let ours = || readable.map(|(name, gateway)| (name, &gateway.spec)).filter(|(_, spec)| is_ours(spec));
        Self { ours: options.gateway_api.then(|| ours().collect()), objects, class: &options.gateway_class }
    }

    /// The parents of a route. Without references it serves the Gateways of its namespace; a route that has some, and a
    /// router without Gateways, do not go together.
    pub(super) fn attach(&self, route: &ObjectName, references: &[ParentReference]) -> Attachment {
        let nowhere = |text: String| Some(Problem::new(reasons::NO_MATCHING_PARENT, text));
        match &self.ours {
            None if references.is_empty() => Attachment::default(),
            None => Attachment {
                parents: Some(parents(route, references).collect()),
                problem: nowhere(
                    "The router runs without Gateway API, where a route with parentRefs takes no request. Start it \
                     with --enable-gateway-api, or remove spec.parentRefs."
                        .to_owned(),
                ),
                note: None,
            },
            Some(ours) if references.is_empty() => {
                let near = ours.keys().any(|gateway| gateway.namespace == route.namespace);
                let text = || {
                    format!(
                        "A route without parentRefs serves the Gateways of its namespace, and {} has none of class \
                         {}. Create one, or name one of another namespace in spec.parentRefs.",
                        route.namespace, self.class
                    )
                };
                let problem = if near { None } else { nowhere(text()) };
                Attachment { problem, ..Attachment::default() }
            }
            Some(ours) => {
                let mut planned = Vec::new();
                let mut wrong = Vec::new();
                for (place, reference) in references.iter().enumerate() {
                    match self.resolve(ours, route, reference) {
                        Ok(parent) => planned.push(parent),
                        Err(why) => wrong.push(format!("spec.parentRefs[{place}] {why}")),
                    }
                }
                let served = !planned.is_empty();
                let wrong = (!wrong.is_empty()).then(|| list(&wrong));
                let note = wrong.as_ref().filter(|_| served).map(|wrong| format!("Without effect: {wrong}."));
                let problem = wrong.filter(|_| !served).and_then(|wrong| {
                    nowhere(format!("The route takes no request: {wrong}. Name a listener that there is."))
                });
                Attachment { parents: Some(planned), problem, note }
            }
        }
    }

    /// What one reference means, or why that is no listener.
    fn resolve(
        &self,
        ours: &BTreeMap<&'a ObjectName, &'a GatewaySpec>,
        route: &ObjectName,
        reference: &ParentReference,
    ) -> Result<PlanParent, String> {
        if !reference.names_a_gateway() {
            return Err("is no Gateway".to_owned());
        }
        let gateway = gateway_of(route, reference);
        let Some(spec) = ours.get(&gateway) else {
            let what = match self.objects.gateways.get(&gateway).map(|read| read.0.as_ref()) {
                None => "does not exist".to_owned(),
                Some(Ok(other)) if other.spec.gateway_class_name == self.class => {
                    format!("is of class {}, which is not served: see its GatewayClass", self.class)
                }
                Some(_) => format!("is none of class {}", self.class),
            };
            return Err(format!("({gateway}) {what}"));
        };
        let meant = |listener: &Listener| {
            listener.protocol == HTTP
                && reference.section_name.as_ref().is_none_or(|name| *name == listener.name)
                && reference.port.is_none_or(|port| port == listener.port)
        };
        if !spec.listeners.iter().any(meant) {
            let name = reference.section_name.as_ref().map(|name| format!(" of name {name:?}"));
            let port = reference.port.map(|port| format!(" on port {port}"));
            let (name, port) = (name.unwrap_or_default(), port.unwrap_or_default());
            return Err(format!("({gateway}) has no listener for HTTP{name}{port}"));
        }
        Ok(parent(route, reference))
    }
}

/// The Gateways that are named, whether they exist or not.
fn parents<'a>(
    route: &'a ObjectName,
    references: &'a [ParentReference],
) -> impl Iterator<Item = PlanParent> + 'a {
    let named = references.iter().filter(|reference| reference.names_a_gateway());
    named.map(|reference| parent(route, reference))
}

fn parent(route: &ObjectName, reference: &ParentReference) -> PlanParent {
    PlanParent {
        gateway: gateway_of(route, reference),
        section: reference.section_name.as_deref().map(Into::into),
        port: reference.port,
    }
}

fn gateway_of(route: &ObjectName, reference: &ParentReference) -> ObjectName {
    let namespace = reference.namespace.as_deref().map_or_else(|| Arc::clone(&route.namespace), Into::into);
    ObjectName::new(namespace, reference.name.as_str())
}
