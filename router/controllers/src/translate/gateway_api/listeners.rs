//! Listeners: whether each can be served, which routes it takes, and what its status says.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_api::conditions::types;
use kvasir_api::gateway::{GATEWAY_GROUP, Gateway, Listener, NamespacesFrom, RouteGroupKind};
use kvasir_state::plan::{ObjectName, PlanListener};

use super::reasons::{self, Refusal};
use super::selector::selects;
use crate::objects::Objects;
use crate::status::{ListenerSaid, Verdict};
use crate::translate::Options;

/// The one protocol that is spoken.
const HTTP: &str = "HTTP";
/// Protocols that want a port for themselves as HTTP does. What speaks TCP is not among them: Gateway API wants it
/// refused for itself where it is not spoken.
const ENCRYPTED: &[&str] = &["HTTPS", "TLS"];
/// The kind of routes that listeners take.
const ROUTE_KIND: &str = "HTTPRoute";

/// A port and a host: what one listener has for itself.
type Claim = (u16, Option<Arc<str>>);

/// One listener of a Gateway of ours.
#[derive(Debug)]
pub(super) struct OurListener<'a> {
    pub(super) spec: &'a Listener,
    /// In lower case; `None` takes any host.
    pub(super) hostname: Option<Arc<str>>,
    /// Routes that are attached and accepted.
    pub(super) attached: i32,
    /// What stands against it in its own fields.
    problem: Option<Refusal>,
    /// Another listener that claims the same.
    pub(super) conflict: Option<Refusal>,
    /// Whether its Gateway is not served at all.
    pub(super) withheld: bool,
    /// Of the kinds of routes that its spec allows, those that it takes.
    kinds: Vec<RouteGroupKind>,
    /// And those that nobody knows here.
    unknown_kinds: Vec<String>,
    /// Why its port cannot be opened now.
    closed: Option<String>,
}

/// The listeners of one Gateway, in the order of its spec. Of those that are not distinct none is served: Gateway API
/// forbids to pick one.
pub(super) fn of<'a>(gateway: &'a Gateway, options: &Options) -> Vec<OurListener<'a>> {
    let specs = &gateway.spec.listeners;
    let mut listeners: Vec<OurListener<'a>> =
        specs.iter().map(|listener| OurListener::new(listener, options)).collect();
    let mut claims: BTreeMap<Claim, usize> = BTreeMap::new();
    for listener in listeners.iter().filter(|listener| listener.spec.protocol == HTTP) {
        *claims.entry(listener.claim()).or_default() += 1;
    }
    for listener in &mut listeners {
        let protocol = listener.spec.protocol.as_str();
        let shared = claims.get(&listener.claim()).is_some_and(|count| *count > 1);
        let encrypted = ENCRYPTED.contains(&protocol);
        let other = specs.iter().find(|other| {
            let differs = if encrypted { other.protocol == HTTP } else { is_encrypted(other) };
            other.port == listener.spec.port && differs
        });
        if let Some(other) = other.filter(|_| encrypted || protocol == HTTP) {
            let message = format!(
                "listener {:?} speaks {} on the same port {}; give one of them another port",
                other.name, other.protocol, other.port
            );
            listener.conflict = Some(Refusal::new(reasons::PROTOCOL_CONFLICT, message));
        } else if shared && protocol == HTTP {
            let message = format!(
                "the Gateway has another listener for the port {} and {}; give them different ones",
                listener.spec.port,
                listener.host()
            );
            listener.conflict = Some(Refusal::new(reasons::HOSTNAME_CONFLICT, message));
        }
    }
    listeners
}

fn is_encrypted(listener: &Listener) -> bool {
    ENCRYPTED.contains(&listener.protocol.as_str())
}

impl<'a> OurListener<'a> {
    fn new(spec: &'a Listener, options: &Options) -> Self {
        let hostname = spec.hostname.as_deref().filter(|hostname| !hostname.is_empty());
        let (mut kinds, unknown_kinds) = kinds(spec, options);
        if spec.protocol != HTTP {
            kinds.clear();
        }
        Self {
            spec,
            hostname: hostname.map(|hostname| hostname.to_ascii_lowercase().into()),
            attached: 0,
            problem: problem(spec, options),
            conflict: None,
            withheld: false,
            closed: options.failed_ports.get(&spec.port).cloned(),
            kinds,
            unknown_kinds,
        }
    }

    /// Whether it can be served, as far as it alone is concerned.
    pub(super) fn is_sound(&self) -> bool {
        self.problem.is_none() && self.conflict.is_none()
    }

    /// Whether requests come in by it.
    pub(super) fn is_served(&self) -> bool {
        self.is_sound() && !self.withheld
    }

    /// What no other listener may have.
    pub(super) fn claim(&self) -> Claim {
        (self.spec.port, self.hostname.clone())
    }

    /// Its host, for a sentence.
    pub(super) fn host(&self) -> String {
        self.hostname.as_ref().map_or_else(|| "any host".to_owned(), |host| format!("the host {host}"))
    }

    /// Whether it takes an HTTPRoute of this namespace; `home` is its Gateway's.
    pub(super) fn takes(&self, namespace: &str, home: &str, objects: &Objects) -> bool {
        self.kinds.iter().any(|kind| kind.kind == ROUTE_KIND)
            && takes_from(self.spec, namespace, home, objects)
    }

    /// As the state is told.
    pub(super) fn plan(&self) -> PlanListener {
        PlanListener {
            name: self.spec.name.as_str().into(),
            port: self.spec.port,
            hostname: self.hostname.clone(),
        }
    }

    /// What its status should say.
    pub(super) fn said(&self) -> ListenerSaid {
        ListenerSaid {
            name: self.spec.name.clone(),
            supported_kinds: self.kinds.clone(),
            attached_routes: self.attached,
            conditions: vec![self.accepted(), self.programmed(), self.resolved_refs(), self.conflicted()],
        }
    }

    fn accepted(&self) -> Verdict {
        match self.problem.as_ref().or(self.conflict.as_ref()) {
            None => Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "the listener can be served"),
            Some(refusal) => Verdict::fails(types::ACCEPTED, refusal.reason, refusal.message.clone()),
        }
    }

    /// Why no request comes in by it although it is served.
    pub(super) fn closed(&self) -> Option<String> {
        let reason = self.closed.as_deref().filter(|_| self.is_served())?;
        Some(format!("the port {} cannot be opened and is tried again: {reason}", self.spec.port))
    }

    fn programmed(&self) -> Verdict {
        if let Some(closed) = self.closed() {
            return Verdict::fails(types::PROGRAMMED, reasons::PENDING, closed);
        }
        if self.is_served() {
            return Verdict::holds(types::PROGRAMMED, reasons::PROGRAMMED, "requests are taken in");
        }
        let message =
            if self.is_sound() { "the Gateway is not served" } else { "the listener is not accepted" };
        Verdict::fails(types::PROGRAMMED, reasons::INVALID, message)
    }

    fn resolved_refs(&self) -> Verdict {
        if self.unknown_kinds.is_empty() {
            return Verdict::holds(
                types::RESOLVED_REFS,
                reasons::RESOLVED_REFS,
                "every kind of route is known",
            );
        }
        let message = format!(
            "allowedRoutes.kinds: routes of these kinds are not served: {}",
            self.unknown_kinds.join(", ")
        );
        Verdict::fails(types::RESOLVED_REFS, reasons::INVALID_ROUTE_KINDS, message)
    }

    fn conflicted(&self) -> Verdict {
        match &self.conflict {
            None => {
                let message = "no other listener claims the same";
                Verdict::fails(types::CONFLICTED, reasons::NO_CONFLICTS, message)
            }
            Some(refusal) => Verdict::holds(types::CONFLICTED, refusal.reason, refusal.message.clone()),
        }
    }
}

fn problem(spec: &Listener, options: &Options) -> Option<Refusal> {
    if spec.protocol != HTTP {
        let message = format!(
            "protocol: {:?} is not spoken; only {HTTP} is. Let a proxy before the router end TLS",
            spec.protocol
        );
        return Some(Refusal::new(reasons::UNSUPPORTED_PROTOCOL, message));
    }
    if spec.tls.is_some() {
        let message = format!("tls: a listener that speaks {HTTP} has none; remove it");
        return Some(Refusal::new(reasons::UNSUPPORTED_VALUE, message));
    }
    if spec.port == 0 || options.taken_ports.contains(&spec.port) {
        let message = format!("port: {} is used by the router itself; choose another one", spec.port);
        return Some(Refusal::new(reasons::PORT_UNAVAILABLE, message));
    }
    None
}

/// The kinds of routes that a listener may have attached, and those among them that nobody knows here. kthena's own
/// routes attach without asking, so their kind is known, and does nothing.
fn kinds(spec: &Listener, options: &Options) -> (Vec<RouteGroupKind>, Vec<String>) {
    let kind =
        |group: &str, kind: &str| RouteGroupKind { group: Some(group.to_owned()), kind: kind.to_owned() };
    let http_route = options.inference_extension.then(|| kind(GATEWAY_GROUP, ROUTE_KIND));
    let allowed = spec.allowed_routes.as_ref().map(|allowed| allowed.kinds.as_slice()).unwrap_or_default();
    if allowed.is_empty() {
        return (http_route.into_iter().collect(), Vec::new());
    }
    let known: Vec<RouteGroupKind> =
        http_route.into_iter().chain([kind(kvasir_api::GROUP, "ModelRoute")]).collect();
    let (mut taken, mut unknown) = (Vec::new(), Vec::new());
    for asked in allowed {
        let asked = kind(asked.group.as_deref().unwrap_or(GATEWAY_GROUP), &asked.kind);
        if !known.contains(&asked) {
            unknown.push(format!("{}/{}", asked.group.unwrap_or_default(), asked.kind));
        } else if !taken.contains(&asked) {
            taken.push(asked);
        }
    }
    (taken, unknown)
}

/// Whether routes of a namespace may attach. A word that is not known opens nothing, nor does a selector that is not
/// there; the labels of a namespace that is not known are none at all.
fn takes_from(spec: &Listener, namespace: &str, home: &str, objects: &Objects) -> bool {
    let namespaces = spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let from = namespaces.and_then(|namespaces| namespaces.from.as_ref());
    match from.unwrap_or(&NamespacesFrom::Same) {
        NamespacesFrom::All => true,
        NamespacesFrom::Same => namespace == home,
        NamespacesFrom::Selector => {
            let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
            let labels = objects.namespaces.get(namespace);
            selector.zip(labels).is_some_and(|(selector, labels)| selects(selector, labels))
        }
        NamespacesFrom::Other(_) => false,
    }
}

/// What is claimed, in the order of calls: of the listeners of several Gateways, that of the older one has the port and
/// host. The younger Gateway comes from another owner, perhaps, who must not be able to take the older one down.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Claim, (ObjectName, String)>);

impl Claims {
    pub(super) fn enter(&mut self, gateway: &ObjectName, listener: &mut OurListener<'_>) {
        let claim = listener.claim();
        if let Some((holder, name)) = self.0.get(&claim) {
            let message = format!(
                "listener {name:?} of the older Gateway {holder} has the port {} and {}; choose another port \
                 or host",
                claim.0,
                listener.host()
            );
            listener.conflict = Some(Refusal::new(reasons::HOSTNAME_CONFLICT, message));
        } else {
            self.0.insert(claim, (gateway.clone(), listener.spec.name.clone()));
        }
    }
}
