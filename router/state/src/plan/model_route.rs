//! ModelRoutes: which names of models mean which targets.

use std::sync::Arc;

use kvasir_core::{AdapterName, ModelName};

use super::{ObjectName, TargetId};
use crate::string_test::StringTest;

/// One ModelRoute.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanRoute {
    /// Its name.
    pub id: ObjectName,
    /// The name clients use.
    pub model: Option<ModelName>,
    /// Adapters that clients may ask for by name. A name that is any route's `model` is never looked up here.
    pub adapters: Vec<AdapterName>,
    /// The Gateways it is attached to. `None`: nothing was said, so it serves the Gateways of its own namespace, and the
    /// one door where there are no Gateways.
    pub parents: Option<Vec<PlanParent>>,
    /// In order; the first that matches is used.
    pub rules: Vec<PlanRule>,
    /// What it asks for that cannot be done: requests that it matches are refused with this.
    pub refused: Option<&'static str>,
}

/// A Gateway that a ModelRoute is attached to, or some of its listeners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanParent {
    /// The Gateway.
    pub gateway: ObjectName,
    /// The only listener that counts, by name.
    pub section: Option<Arc<str>>,
    /// The only port whose listeners count.
    pub port: Option<u16>,
}

/// One rule. All conditions must hold.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanRule {
    /// Tests on headers by name. An absent header is tested as the empty text, of a repeated one the first value counts,
    /// and `Host` is never seen.
    pub headers: Vec<(Arc<str>, StringTest)>,
    /// A test on the decoded path.
    pub uri: Option<StringTest>,
    /// The exact model name asked for.
    pub body_model: Option<Arc<str>>,
    /// Where requests go, by weight. Without any weight, the rule passes the request on to the next route.
    pub to: Vec<(PlanTo, u32)>,
}

/// Where a rule sends requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanTo {
    /// To this target, which may be missing.
    Target(TargetId),
    /// Nowhere: what it names cannot be served.
    Refused(&'static str),
}
