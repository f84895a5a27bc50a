//! Which classes of Gateways are ours, and what their status says.

use std::collections::BTreeMap;

use kvasir_api::conditions::types;
use kvasir_state::plan::ObjectName;

use super::reasons::{self, Refusal};
use crate::objects::Objects;
use crate::status::{Said, Status, StatusKind, Verdict};
use crate::translate::{Options, Translation};

/// What Gateways can do whatever is switched on, by its name in Gateway API's conformance suite.
const OF_GATEWAYS: &[&str] = &["Gateway", "GatewayHTTPListenerIsolation", "GatewayPort8080"];

/// What is added where HTTPRoutes and InferencePools count. The last name is the inference extension's.
const OF_ROUTES: &[&str] = &[
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
    "SupportInferencePool",
];

/// The classes that are ours.
#[derive(Debug)]
pub(super) struct Classes<'a> {
    /// Those that exist: what stands against each, if anything does.
    ours: BTreeMap<&'a ObjectName, Option<Refusal>>,
    /// The name of the class that is ours before it exists.
    unborn: Option<&'a str>,
}

impl<'a> Classes<'a> {
    /// Every class that names our controller is ours. The class that the options name needs not exist (kthena never
    /// looks for it), unless another controller has it.
    pub(super) fn of(objects: &'a Objects, options: &'a Options) -> Self {
        let mut ours = BTreeMap::new();
        for (name, read) in &objects.gateway_classes {
            match &read.0 {
                Ok(class) if class.spec.controller_name == options.controller_name => {
                    let parameters = class.spec.parameters_ref.as_ref();
                    ours.insert(name, parameters.map(|_| no_parameters()));
                }
                Ok(_) => {}
                // Nobody can tell whose an unreadable class is, but for its name.
                Err(unreadable) if *name.name == options.gateway_class => {
                    ours.insert(name, Some(Refusal::new(reasons::INVALID, unreadable.error.to_string())));
                }
                Err(_) => {}
            }
        }
        let exists = objects.gateway_classes.keys().any(|name| *name.name == options.gateway_class);
        Self { ours, unborn: (!exists).then_some(&options.gateway_class) }
    }

    /// Whether the class of this name is ours, and what stands against its Gateways.
    pub(super) fn standing(&self, class: &str) -> Option<Result<(), Refusal>> {
        if self.unborn == Some(class) {
            return Some(Ok(()));
        }
        let refusal =
            self.ours.iter().find_map(|(name, refusal)| (*name.name == *class).then_some(refusal))?;
        Some(refusal.as_ref().map_or(Ok(()), |refusal| {
            let message = format!("the GatewayClass {class} is not accepted: {}", refusal.message);
            Err(Refusal::new(reasons::INVALID, message))
        }))
    }

    /// What each of them says, and which classes were passed over.
    pub(super) fn tell(&self, objects: &Objects, options: &Options, translation: &mut Translation) {
        for (name, read) in &objects.gateway_classes {
            if let Err(unreadable) = &read.0 {
                let sentence = format!("the GatewayClass cannot be read: {unreadable}");
                translation.skipped.push((name.clone(), sentence));
            }
            let Some(refusal) = self.ours.get(name) else { continue };
            let verdict = match refusal {
                None => Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "its Gateways are served"),
                Some(refusal) => Verdict::fails(types::ACCEPTED, refusal.reason, refusal.message.clone()),
            };
            translation.statuses.push(Status {
                kind: StatusKind::GatewayClass,
                name: name.clone(),
                generation: generation(read.as_ref()),
                said: Said::GatewayClass { conditions: vec![verdict], features: features(options) },
            });
        }
    }
}

/// The generation of an object, readable or not.
pub(super) fn generation<K: kube::Resource>(object: &K) -> Option<i64> {
    object.meta().generation
}

/// What our Gateways can do, in ascending order.
fn features(options: &Options) -> Vec<&'static str> {
    let of_routes = if options.inference_extension { OF_ROUTES } else { &[] };
    let mut features = [OF_GATEWAYS, of_routes].concat();
    features.sort_unstable();
    features
}

fn no_parameters() -> Refusal {
    let message = "spec.parametersRef: the router takes no parameters from an object; remove it, and set the router \
                   by its flags and its ConfigMap";
    Refusal::new(reasons::INVALID_PARAMETERS, message)
}
