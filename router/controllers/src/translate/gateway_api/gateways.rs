//! Gateways: which are ours, which are served, and what their status says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kvasir_api::ParentReference;
use kvasir_api::conditions::types;
use kvasir_api::gateway::{Gateway, GatewayAddress};
use kvasir_state::plan::{ObjectName, PlanGateway};

use super::classes::{OurClass, generation};
use super::listeners::{self, Claims, OurListener};
use super::reasons::{self, Refusal};
use crate::objects::Objects;
use crate::status::{Said, Status, StatusKind, Verdict};
use crate::translate::precedence::oldest_first;
use crate::translate::{Options, Translation};

/// The type of an address that says none.
const IP_ADDRESS: &str = "IPAddress";
const HOSTNAME: &str = "Hostname";

/// The Gateways of our class, the older before the younger.
#[derive(Debug)]
pub(super) struct Gateways<'a> {
    all: Vec<OurGateway<'a>>,
    by_name: BTreeMap<&'a ObjectName, usize>,
}

/// A Gateway of ours.
#[derive(Debug)]
pub(super) struct OurGateway<'a> {
    pub(super) name: &'a ObjectName,
    pub(super) listeners: Vec<OurListener<'a>>,
    generation: Option<i64>,
    /// Why it is not accepted, its listeners apart.
    refusal: Option<Refusal>,
    /// Why it is accepted and not served.
    unusable: Option<Refusal>,
    addresses: Vec<GatewayAddress>,
}

impl<'a> Gateways<'a> {
    /// Every Gateway whose class is ours now; one whose class has changed away is left to whoever has it. Whose an
    /// unreadable one is cannot be known: it is passed over, and its status is nobody's to write.
    pub(super) fn of(
        objects: &'a Objects,
        options: &Options,
        class: &OurClass<'_>,
        translation: &mut Translation,
    ) -> Self {
        let mut gateways = Self { all: Vec::new(), by_name: BTreeMap::new() };
        let mut claims = Claims::default();
        for (name, read) in oldest_first(&objects.gateways) {
            let gateway = match &read.0 {
                Ok(gateway) => gateway,
                Err(unreadable) => {
                    let sentence = format!("the Gateway cannot be read: {unreadable}");
                    translation.skipped.push((name.clone(), sentence));
                    continue;
                }
            };
            let Some(standing) = class.standing(&gateway.spec.gateway_class_name) else { continue };
            let mut ours = OurGateway::new(name, gateway, standing.err(), options);
            for listener in ours.listeners.iter_mut().filter(|listener| listener.is_served()) {
                claims.enter(name, listener);
            }
            gateways.by_name.insert(name, gateways.all.len());
            gateways.all.push(ours);
        }
        gateways
    }

    /// The Gateway that a route of `namespace` names, if it is ours, with its number.
    pub(super) fn named_by(
        &self,
        parent: &ParentReference,
        namespace: &str,
    ) -> Option<(usize, &OurGateway<'a>)> {
        if !parent.names_a_gateway() {
            return None;
        }
        let name = ObjectName::new(parent.namespace.as_deref().unwrap_or(namespace), parent.name.as_str());
        let number = *self.by_name.get(&name)?;
        Some((number, self.all.get(number)?))
    }

    /// Counts one more route at a listener.
    pub(super) fn count_route(&mut self, gateway: usize, listener: usize) {
        let listener = self.all.get_mut(gateway).and_then(|gateway| gateway.listeners.get_mut(listener));
        if let Some(listener) = listener {
            listener.attached = listener.attached.saturating_add(1);
        }
    }

    /// Plans what is served, and says what is to be said, once all routes are counted.
    pub(super) fn finish(self, translation: &mut Translation) {
        translation.statuses.extend(self.all.iter().map(OurGateway::status));
        translation.plan.gateways = Some(self.all.iter().filter_map(OurGateway::plan).collect());
    }
}

impl<'a> OurGateway<'a> {
    fn new(name: &'a ObjectName, gateway: &'a Gateway, class: Option<Refusal>, options: &Options) -> Self {
        let parameters = gateway.spec.infrastructure.as_ref().and_then(|made| made.parameters_ref.as_ref());
        let refusal = class
            .or_else(|| parameters.map(|_| no_parameters()))
            .or_else(|| unsupported_address(&gateway.spec.addresses));
        let (addresses, unusable) = addresses(&gateway.spec.addresses, &options.addresses);
        let mut listeners = listeners::of(gateway, options);
        for listener in &mut listeners {
            listener.withheld = refusal.is_some() || unusable.is_some();
        }
        Self { name, listeners, generation: generation(gateway), refusal, unusable, addresses }
    }

    /// Why none of it is accepted; `None` where a listener is.
    fn refused(&self) -> Option<Refusal> {
        let sound = self.listeners.iter().any(OurListener::is_sound);
        self.refusal.clone().or_else(|| (!sound).then(|| self.bad_listeners()))
    }

    fn bad_listeners(&self) -> Refusal {
        let names = |sound: bool| {
            let those = self.listeners.iter().filter(|listener| listener.is_sound() == sound);
            let names: Vec<&str> = those.map(|listener| listener.spec.name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let message = format!(
            "listeners that are not accepted: {}; accepted: {}. Their own conditions say why",
            names(false),
            names(true)
        );
        Refusal::new(reasons::LISTENERS_NOT_VALID, message)
    }

    fn plan(&self) -> Option<PlanGateway> {
        let served = self.listeners.iter().filter(|listener| listener.is_served());
        let listeners: Vec<_> = served.map(OurListener::plan).collect();
        (!listeners.is_empty()).then(|| PlanGateway { id: self.name.clone(), listeners })
    }

    fn status(&self) -> Status {
        Status {
            kind: StatusKind::Gateway,
            name: self.name.clone(),
            generation: self.generation,
            said: Said::Gateway {
                conditions: vec![self.accepted(), self.programmed()],
                addresses: self.addresses.clone(),
                listeners: self.listeners.iter().map(OurListener::said).collect(),
            },
        }
    }

    fn accepted(&self) -> Verdict {
        if let Some(refusal) = self.refused() {
            return Verdict::fails(types::ACCEPTED, refusal.reason, refusal.message);
        }
        if self.listeners.iter().all(OurListener::is_sound) {
            return Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "every listener is accepted");
        }
        let some = self.bad_listeners();
        Verdict::holds(types::ACCEPTED, some.reason, some.message)
    }

    fn programmed(&self) -> Verdict {
        if self.refused().is_some() {
            return Verdict::fails(types::PROGRAMMED, reasons::INVALID, "the Gateway is not accepted");
        }
        match &self.unusable {
            Some(refusal) => Verdict::fails(types::PROGRAMMED, refusal.reason, refusal.message.clone()),
            None => match self.listeners.iter().find_map(OurListener::closed) {
                Some(closed) => Verdict::fails(types::PROGRAMMED, reasons::PENDING, closed),
                None => Verdict::holds(types::PROGRAMMED, reasons::PROGRAMMED, "requests are taken in"),
            },
        }
    }
}

fn no_parameters() -> Refusal {
    let message = "spec.infrastructure.parametersRef: the router takes no parameters from an object; remove it, and \
                   set the router by its flags and its ConfigMap";
    Refusal::new(reasons::INVALID_PARAMETERS, message)
}

fn kind_of(address: &GatewayAddress) -> &str {
    address.kind.as_deref().unwrap_or(IP_ADDRESS)
}

fn unsupported_address(wanted: &[GatewayAddress]) -> Option<Refusal> {
    let strange = wanted.iter().map(kind_of).find(|kind| ![IP_ADDRESS, HOSTNAME].contains(kind))?;
    let message = format!(
        "spec.addresses: addresses of the type {strange:?} cannot be given; use {IP_ADDRESS} or {HOSTNAME}, or none"
    );
    Some(Refusal::new(reasons::UNSUPPORTED_ADDRESS, message))
}

/// The addresses to tell, and what stands against those that are wanted. The router has the addresses that its Service
/// gives it, the same for all Gateways: it can say them, not choose them.
fn addresses(wanted: &[GatewayAddress], known: &[String]) -> (Vec<GatewayAddress>, Option<Refusal>) {
    let known: Vec<GatewayAddress> = known.iter().map(|value| address(value)).collect();
    if wanted.is_empty() {
        return (known, None);
    }
    let fits = |wanted: &GatewayAddress, known: &GatewayAddress| {
        let value = wanted.value.as_deref().filter(|value| !value.is_empty());
        kind_of(wanted) == kind_of(known) && value.is_none_or(|value| known.value.as_deref() == Some(value))
    };
    let missing = wanted.iter().find(|wanted| !known.iter().any(|known| fits(wanted, known)));
    let refusal = missing.map(|missing| {
        let message = format!(
            "spec.addresses: {} {} is none of the router's addresses; leave spec.addresses out, or give the \
             address to the router's Service and tell the router",
            kind_of(missing),
            missing.value.as_deref().unwrap_or("(any)")
        );
        Refusal::new(reasons::ADDRESS_NOT_USABLE, message)
    });
    let given = known.into_iter().filter(|known| wanted.iter().any(|wanted| fits(wanted, known)));
    (given.collect(), refusal)
}

fn address(value: &str) -> GatewayAddress {
    let kind = if value.parse::<IpAddr>().is_ok() { IP_ADDRESS } else { HOSTNAME };
    GatewayAddress { kind: Some(kind.to_owned()), value: Some(value.to_owned()) }
}
