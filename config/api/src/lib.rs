//! Kubernetes objects as they are written: what users and the API server say, before it means anything.
//!
//! kthena's three kinds ([`ModelRoute`], [`ModelServer`], [`ExternalModelProvider`]) come with their
//! CustomResourceDefinitions ([`crds`]) and the rules of its admission webhook ([`validate`], [`review`]). The kinds
//! of Gateway API ([`gateway`]) and of its inference extension ([`inference_pool`]) are typed as far as a router
//! reads and writes them. Nothing here talks to a cluster.
//!
//! An object is read field by field where it came from: [`read_object`] and [`Read`] name the field that does not fit.

pub mod conditions;
pub mod crds;
pub mod duration;
pub mod external_model_provider;
pub mod field_error;
pub mod gateway;
pub mod inference_pool;
pub mod model_route;
pub mod model_server;
pub mod parent_reference;
pub mod re2;
pub mod review;
pub mod validate;

mod read;
mod wire_schema;

pub use conditions::{Condition, ObjectStatus};
pub use duration::DurationText;
pub use external_model_provider::{ExternalModelProvider, ExternalModelProviderSpec};
pub use field_error::{FieldError, FieldErrorKind};
pub use inference_pool::{InferencePool, InferencePoolSpec};
pub use model_route::{ModelRoute, ModelRouteSpec};
pub use model_server::{ModelServer, ModelServerSpec};
pub use parent_reference::ParentReference;
pub use read::{Read, ReadError, Unreadable, read_object};
pub use review::{ReviewedKind, review};
pub use validate::{validate_external_model_provider, validate_model_route, validate_model_server};

/// The API group of kthena's networking kinds.
pub const GROUP: &str = "networking.serving.volcano.sh";
/// The one version of that group.
pub const VERSION: &str = "v1alpha1";
