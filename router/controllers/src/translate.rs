//! From objects to a plan and statuses: pure, so that every rule can be tested with plain values.

mod endpoints;
mod gateway_api;
mod inference_pools;
mod model_routes;
mod model_servers;
mod pods;
mod precedence;
pub(crate) mod providers;
mod verdicts;

#[cfg(test)]
mod testing;

use std::collections::BTreeMap;

use kvasir_state::Plan;
use kvasir_state::plan::ObjectName;

use crate::objects::Objects;
use crate::status::Status;
use pods::PodIndex;

/// What decides about the translation beside the objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether requests come in by listeners of Gateways.
    pub gateway_api: bool,
    /// Whether HTTPRoutes and InferencePools count.
    pub inference_extension: bool,
    /// The class whose Gateways are ours.
    pub gateway_class: String,
    /// How controllers of that class are called.
    pub controller_name: String,
    /// Ports that listeners must not take: metrics, admin, webhook.
    pub taken_ports: Vec<u16>,
    /// Ports of listeners that cannot be opened now, with the reason. They are tried again; their status says so.
    pub failed_ports: BTreeMap<u16, String>,
    /// Where clients reach the router, for the status of Gateways; may be empty.
    pub addresses: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gateway_api: false,
            inference_extension: false,
            gateway_class: GATEWAY_CLASS.to_owned(),
            controller_name: CONTROLLER_NAME.to_owned(),
            taken_ports: Vec::new(),
            failed_ports: BTreeMap::new(),
            addresses: Vec::new(),
        }
    }
}

/// kthena's class of Gateways.
pub const GATEWAY_CLASS: &str = "kthena-router";
/// kthena's name for the controller of that class.
pub const CONTROLLER_NAME: &str = "volcano.sh/kthena-router";

/// Everything that follows from the objects.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Routes, targets, endpoints.
    pub plan: Plan,
    /// What objects should say; an object without an entry is not written.
    pub statuses: Vec<Status>,
    /// Objects that were passed over, with the reason in one sentence, for the log.
    pub skipped: Vec<(ObjectName, String)>,
}

/// Translates everything. Never fails: an object that cannot be used costs itself alone.
pub fn translate(objects: &Objects, options: &Options) -> Translation {
    let mut translation = Translation::default();
    let pods = PodIndex::of(&objects.pods);
    model_servers::translate(objects, &pods, &mut translation);
    providers::translate(objects, &mut translation);
    model_routes::translate(objects, options, &mut translation);
    if options.gateway_api {
        if options.inference_extension {
            inference_pools::translate(objects, &pods, &mut translation);
        }
        gateway_api::translate(objects, options, &mut translation);
    }
    translation
}
