//! What a route is asked, and what it answers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use kvasir_core::AdapterName;

use crate::plan::{HeaderChanges, PathChange, TargetKind};
use crate::routes::Listener;
use crate::target::Target;

/// What of a request decides its route.
#[derive(Clone, Copy)]
pub struct RouteQuery<'a> {
    /// The port that the request came in by; in Gateway mode it decides the listener, with the host.
    pub port: u16,
    /// `Host` or `:authority` as the client wrote it, a port included.
    pub host: &'a str,
    /// Method.
    pub method: &'a Method,
    /// Path as it came, without the query.
    pub path: &'a str,
    /// Query as it came.
    pub query: Option<&'a str>,
    /// Headers.
    pub headers: &'a HeaderMap,
    /// The model that the body asks for; `None` for a body without one, and before the body is here.
    pub model: Option<&'a str>,
}

impl fmt::Debug for RouteQuery<'_> {
    /// Without headers and query, which may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteQuery")
            .field("port", &self.port)
            .field("host", &self.host)
            .field("method", &self.method)
            .field("path", &self.path)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum Routed {
    /// To one of a target's endpoints.
    To(Resolved),
    /// The client is sent elsewhere.
    Elsewhere(Redirect),
}

/// What a request needs of its route. All of it is of one moment: a later swap changes nothing in it.
#[derive(Clone, Debug)]
pub struct Resolved {
    destination: Arc<Destination>,
    /// The adapter, when the client asked for one.
    pub adapter: Option<AdapterName>,
    /// The path that is sent, where the route changes it.
    pub path: Option<String>,
    /// The listener, in Gateway mode.
    pub listener: Option<Arc<Listener>>,
    renames: bool,
    /// The swap that it was resolved under.
    pub(crate) generation: u64,
}

impl Resolved {
    /// A request for `name` that goes to `destination`.
    pub(crate) fn new(
        destination: &Arc<Destination>,
        name: Option<&str>,
        adapter: Option<AdapterName>,
    ) -> Self {
        let served = destination.target.served.as_ref().filter(|_| adapter.is_none());
        let renames = served.is_some_and(|served| name.is_some_and(|name| name != served.as_str()));
        let destination = Arc::clone(destination);
        Self { destination, adapter, path: None, listener: None, renames, generation: 0 }
    }

    /// The same route for a request that turns out to ask for `name`.
    pub fn asked_for(mut self, name: &str) -> Self {
        self.adapter = self.target.adapter(name);
        self.renames = self.adapter.is_none()
            && self.target.served.as_ref().is_some_and(|served| served.as_str() != name);
        self
    }

    /// What to write into the body's `model`; `None` when the client already wrote what the engine knows. An adapter is
    /// asked for by its own name.
    pub fn rewrite(&self) -> Option<&str> {
        self.target.served.as_ref().filter(|_| self.renames).map(kvasir_core::ModelName::as_str)
    }

    /// Whether a route claims the name that the client asked for. Else the name is the client's alone, and no label.
    pub fn by_model(&self) -> bool {
        matches!(self.route, RouteName::Model(_))
    }
}

impl Deref for Resolved {
    type Target = Destination;

    fn deref(&self) -> &Destination {
        &self.destination
    }
}

/// What a request needs of its route whoever sent it.
#[derive(Debug)]
pub struct Destination {
    /// Who can be chosen.
    pub target: Arc<Target>,
    /// The route.
    pub route: RouteName,
    /// Limit of one attempt up to the answer's header: the target's or the route's, whichever is shorter.
    pub timeout: Option<Duration>,
    /// Limit of all attempts together.
    pub deadline: Option<Duration>,
    /// What is changed on the way.
    pub edits: Option<Edits>,
}

/// What is changed on the way; the path is told by [`Resolved::path`].
#[derive(Debug, Default)]
pub struct Edits {
    /// The `Host` that is sent.
    pub host: Option<HeaderValue>,
    /// Changes to the request's headers: the rule's, then the backend's.
    pub request: Vec<HeaderChanges>,
    /// Changes to the answer's headers: the rule's, then the backend's.
    pub response: Vec<HeaderChanges>,
    pub(crate) path: Option<PathChange>,
}

/// A route's kind and its `namespace/name`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteName {
    /// A ModelRoute, or a model of the settings.
    Model(Arc<str>),
    /// An HTTPRoute.
    Http(Arc<str>),
}

/// An answer that sends the client elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// Absolute URL.
    pub location: String,
    /// Who said so.
    pub route: RouteName,
}

/// Why a request goes nowhere.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoRoute {
    /// Gateway mode: no listener of the port takes the host.
    #[error("no listener takes this host")]
    NoListener,
    /// No route matches.
    #[error("no route matches")]
    NoMatch,
    /// A route matches and asks for what cannot be done.
    #[error("{what} is not available")]
    Refused {
        /// The route.
        route: RouteName,
        /// What it asks for.
        what: &'static str,
    },
    /// The target that was chosen does not exist.
    #[error("the target of the matched route does not exist")]
    NoTarget {
        /// The route.
        route: RouteName,
        /// What it should be.
        kind: TargetKind,
    },
    /// The HTTPRoute that matched has no backend with a weight.
    #[error("the matched route has no backend")]
    NoBackend {
        /// The route.
        route: RouteName,
    },
}

impl NoRoute {
    /// The route that matched, if one did.
    pub fn route(&self) -> Option<&RouteName> {
        match self {
            Self::NoListener | Self::NoMatch => None,
            Self::Refused { route, .. } | Self::NoTarget { route, .. } | Self::NoBackend { route } => {
                Some(route)
            }
        }
    }
}
