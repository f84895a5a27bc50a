//! What objects should say in their status.

use kvasir_api::ParentReference;
use kvasir_api::gateway::{GatewayAddress, RouteGroupKind};
use kvasir_state::plan::ObjectName;

/// The kinds whose status is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StatusKind {
    /// kthena's route.
    ModelRoute,
    /// kthena's model server.
    ModelServer,
    /// kthena's provider.
    ExternalModelProvider,
    /// A class of Gateways.
    GatewayClass,
    /// A Gateway.
    Gateway,
    /// A route of Gateway API.
    HttpRoute,
    /// A pool of the inference extension.
    InferencePool,
}

/// What one object should say.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// Its kind.
    pub kind: StatusKind,
    /// Its name.
    pub name: ObjectName,
    /// The `metadata.generation` that was looked at.
    pub generation: Option<i64>,
    /// What it should say.
    pub said: Said,
}

/// The shapes that a status has.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    /// A list of conditions: kthena's kinds.
    Conditions(Vec<Verdict>),
    /// A class of Gateways.
    GatewayClass {
        /// Of the class.
        conditions: Vec<Verdict>,
        /// What its Gateways can do, by the names of Gateway API's conformance suite, in ascending order.
        features: Vec<&'static str>,
    },
    /// A Gateway's own conditions, its addresses and its listeners.
    Gateway {
        /// Of the Gateway.
        conditions: Vec<Verdict>,
        /// Where it can be reached.
        addresses: Vec<GatewayAddress>,
        /// Of each listener, in the spec's order.
        listeners: Vec<ListenerSaid>,
    },
    /// What we say at each parent: HTTPRoute and InferencePool. Parents of other controllers are theirs; an empty list
    /// takes ours away.
    Parents(Vec<ParentSaid>),
}

/// What one listener of a Gateway should say.
#[derive(Clone, PartialEq, Debug)]
pub struct ListenerSaid {
    /// Its name.
    pub name: String,
    /// The kinds of routes that may attach, of those that we know.
    pub supported_kinds: Vec<RouteGroupKind>,
    /// How many routes are attached.
    pub attached_routes: i32,
    /// Its conditions.
    pub conditions: Vec<Verdict>,
}

/// What is said at one parent.
#[derive(Clone, PartialEq, Debug)]
pub struct ParentSaid {
    /// The parent, as the object names it.
    pub parent: ParentReference,
    /// The conditions there.
    pub conditions: Vec<Verdict>,
}

/// One condition: everything but when it last changed, which whoever writes it finds out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Its type, one of [`kvasir_api::conditions::types`].
    pub kind: &'static str,
    /// One of [`kvasir_api::conditions::values`].
    pub value: &'static str,
    /// One CamelCase word for programs.
    pub reason: &'static str,
    /// For people: what is so, and what to do.
    pub message: String,
}

impl Verdict {
    /// A condition that holds.
    pub fn holds(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, value: kvasir_api::conditions::values::TRUE, reason, message: message.into() }
    }

    /// A condition that does not hold.
    pub fn fails(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, value: kvasir_api::conditions::values::FALSE, reason, message: message.into() }
    }
}
