//! The rules of kthena's admission webhook, one function per kind.
//!
//! They say what a schema cannot. The texts are those that kthena's users know; a test holds each. An object that
//! was read from a cluster must pass them too before it is used: the webhook may have been off.

mod base_url;
mod external_model_provider;
mod labels;
mod model_route;
mod model_server;

pub use external_model_provider::validate_external_model_provider;
pub use model_route::validate_model_route;
pub use model_server::validate_model_server;

pub(crate) use model_route::{rule_is_null, target_is_null};

#[cfg(test)]
mod tests;
