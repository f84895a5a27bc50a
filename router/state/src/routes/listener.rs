//! Listeners of Gateways: which one a request came in by.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::hosts::HostTable;
use super::http_table::HttpTable;
use crate::plan::{ObjectName, PlanGateway};

/// A listener of a Gateway.
#[derive(Debug)]
pub struct Listener {
    /// Its Gateway.
    pub gateway: ObjectName,
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// The HTTPRoutes that it accepted.
    pub(super) routes: Arc<HttpTable>,
}

/// Every listener, by port and host.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    ports: HashMap<u16, HostTable<Arc<Listener>>>,
}

impl Listeners {
    /// The listeners of `gateways`. Of two that claim one host of a port, the first has it.
    pub(super) fn build(
        gateways: &[PlanGateway],
        mut routes_of: impl FnMut(&ObjectName, &str, u16) -> Arc<HttpTable>,
        conflicts: &mut Vec<String>,
    ) -> Self {
        let mut built = Self::default();
        for gateway in gateways {
            for planned in &gateway.listeners {
                let mut first = false;
                let port = built.ports.entry(planned.port).or_default();
                let taken = port.get_or_insert_with(planned.hostname.as_deref(), || {
                    first = true;
                    Arc::new(Listener {
                        gateway: gateway.id.clone(),
                        name: Arc::clone(&planned.name),
                        port: planned.port,
                        routes: routes_of(&gateway.id, &planned.name, planned.port),
                    })
                });
                if !first {
                    conflicts.push(format!(
                        "listener {:?} of Gateway {} wants the host {:?} of port {}, which listener {:?} of {} has",
                        planned.name,
                        gateway.id,
                        planned.hostname.as_deref().unwrap_or("*"),
                        planned.port,
                        taken.name,
                        taken.gateway
                    ));
                }
            }
        }
        built
    }

    /// The listener of a port that takes `host`: exact names before wildcards, long wildcards before short ones, those
    /// without a hostname last.
    pub(super) fn find(&self, port: u16, host: &str) -> Option<&Arc<Listener>> {
        self.ports.get(&port)?.matching(host).next()
    }

    /// Every port.
    pub(super) fn ports(&self) -> BTreeSet<u16> {
        self.ports.keys().copied().collect()
    }
}
