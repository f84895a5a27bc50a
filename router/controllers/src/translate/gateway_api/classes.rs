//! Which class of Gateways is ours, and what its status says.

use kvasir_api::Read;
use kvasir_api::conditions::types;
use kvasir_api::gateway::GatewayClass;
use kvasir_state::plan::ObjectName;

use super::reasons::{self, Refusal};
use crate::objects::Objects;
use crate::status::{Said, Status, StatusKind, Verdict};
use crate::translate::{Options, Translation};

/// What Gateways can do whatever is switched on, by its name in Gateway API's conformance suite.
const OF_GATEWAYS: &[&str] = &["Gateway", "GatewayHTTPListenerIsolation", "GatewayPort8080"];

/// What is added where HTTPRoutes and InferencePools count. The last name is the inference extension's. `HTTPRoute` and
/// `ReferenceGrant` are not among them: both are about Services as backends, and ask for 500 where a backend is not there.
const OF_ROUTES: &[&str] = &[
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
    "SupportInferencePool",
];

/// The class that is ours: the one that the options name, whatever else carries our controller's name. Two routers of
/// one cluster share that name and differ by their class; each leaves the other's alone.
#[derive(Debug)]
pub(in crate::translate) struct OurClass<'a> {
    name: &'a str,
    /// Its object. kthena never looks for it, so it needs not exist.
    object: Option<(&'a ObjectName, &'a Read<GatewayClass>)>,
    /// What stands against it; `None`: another controller has it.
    standing: Option<Result<(), Refusal>>,
}

impl<'a> OurClass<'a> {
    pub(in crate::translate) fn of(objects: &'a Objects, options: &'a Options) -> Self {
        let object = objects.gateway_classes.iter().find(|(name, _)| *name.name == options.gateway_class);
        let object = object.map(|(name, read)| (name, read.as_ref()));
        let standing = match object.map(|(_, read)| &read.0) {
            None => Some(Ok(())),
            Some(Ok(class)) => (class.spec.controller_name == options.controller_name)
                .then(|| class.spec.parameters_ref.as_ref().map_or(Ok(()), |_| Err(no_parameters()))),
            // Whose it is cannot be told, but for its name.
            Some(Err(unreadable)) => Some(Err(Refusal::new(reasons::INVALID, unreadable.error.to_string()))),
        };
        Self { name: &options.gateway_class, object, standing }
    }

    /// Whether Gateways of this class are served.
    pub(in crate::translate) fn serves(&self, class: &str) -> bool {
        self.name == class && matches!(self.standing, Some(Ok(())))
    }

    /// Whether the class of this name is ours, and what stands against its Gateways.
    pub(super) fn standing(&self, class: &str) -> Option<Result<(), Refusal>> {
        let standing = self.standing.as_ref().filter(|_| self.name == class)?;
        Some(standing.as_ref().copied().map_err(|refusal| {
            let message = format!("the GatewayClass {class} is not accepted: {}", refusal.message);
            Refusal::new(reasons::INVALID, message)
        }))
    }

    /// What it says.
    pub(super) fn tell(&self, options: &Options, translation: &mut Translation) {
        let (Some((name, read)), Some(standing)) = (self.object, &self.standing) else { return };
        if let Err(unreadable) = &read.0 {
            let sentence = format!("the GatewayClass cannot be read: {unreadable}");
            translation.skipped.push((name.clone(), sentence));
        }
        let verdict = match standing {
            Ok(()) => Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "its Gateways are served"),
            Err(refusal) => Verdict::fails(types::ACCEPTED, refusal.reason, refusal.message.clone()),
        };
        translation.statuses.push(Status {
            kind: StatusKind::GatewayClass,
            name: name.clone(),
            generation: generation(read),
            said: Said::GatewayClass { conditions: vec![verdict], features: features(options) },
        });
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
