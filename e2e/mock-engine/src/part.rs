//! The part an engine plays where prefill and decode are apart, and what it insists on.

mod rules;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{ConnectorKind, Role};

use crate::fabric::Fabric;

pub(crate) use turn::{Received, Turn};

/// How long the two sides of a room wait for each other unless told otherwise. SGLang waits minutes; a test wants to see
/// the end of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// An engine's part in a group. A body, an order or an overlap in time that real engines of this kind could not serve is
/// answered 400 with the field's name.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it does. [`Role::Both`] does what a request says, whole requests included.
    pub role: Role,
    /// How the prompt's KV cache goes from one to the other.
    pub connector: ConnectorKind,
    /// The group: shared by all engines of it in this process.
    pub fabric: Arc<Fabric>,
    /// How long the sides of a room wait for each other.
    pub patience: Duration,
    /// Whether a decode engine serves requests that no other engine has prefilled, as real vLLM does. Otherwise it
    /// refuses them.
    pub serves_whole: bool,
}

impl Part {
    /// A strict part.
    pub fn new(role: Role, connector: ConnectorKind, fabric: &Arc<Fabric>) -> Self {
        Self { role, connector, fabric: Arc::clone(fabric), patience: PATIENCE, serves_whole: false }
    }
}
