//! Gateways and HTTPRoutes to listeners and routes, with their status.
//!
//! A class says which Gateways are ours, a Gateway which listeners there are, a listener which routes it takes. What
//! cannot be served is refused: in the status, with the field and what to change, and where requests would come by it
//! also in the plan.

mod attachment;
mod backends;
mod classes;
mod filters;
mod gateways;
mod grants;
mod hostnames;
mod http_routes;
mod listeners;
mod matches;
mod pools;
mod reasons;
mod rules;
mod selector;

#[cfg(test)]
mod tests;

use super::{Options, Translation};
use crate::objects::Objects;
pub(in crate::translate) use classes::OurClass;
use gateways::Gateways;

pub(super) fn translate(objects: &Objects, options: &Options, translation: &mut Translation) {
    let class = OurClass::of(objects, options);
    class.tell(options, translation);
    let mut gateways = Gateways::of(objects, options, &class, translation);
    if options.inference_extension {
        let naming = http_routes::translate(objects, &mut gateways, translation);
        pools::tell(objects, &naming, translation);
    }
    gateways.finish(translation);
}
