//! What objects say in their status, as the watches saw it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use kube::core::object::HasStatus;
use kvasir_api::gateway::{Gateway, GatewayClass, HttpRoute};
use kvasir_api::{ExternalModelProvider, InferencePool, ModelRoute, ModelServer};
use kvasir_state::plan::ObjectName;
use serde::Serialize;
use serde_json::Value;

use super::outbox::StatusKey;
use super::wording::{says, wording};
use crate::objects::Objects;
use crate::status::{Status, StatusKind};
use crate::watch::Placed;

/// A status that an object does not say yet, as far as is known.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Wanted {
    /// What it should say.
    pub(crate) status: Arc<Status>,
    /// Whose status it is; an object made anew under the same name is another one.
    pub(crate) uid: Option<String>,
    /// Whether what it says was seen. Of an object that cannot be read only the metadata is.
    pub(crate) seen: bool,
}

/// An object that may have a status.
struct Found {
    uid: Option<String>,
    generation: Option<i64>,
    /// `None`: it cannot be read.
    says: Option<Value>,
}

/// The status to write, if there is one to write: `None` if the object is gone, says it already, or changed since the
/// status was made up, so that another one is coming.
pub(crate) fn wanted(
    objects: &Objects,
    status: &Arc<Status>,
    controller: &str,
    now: Timestamp,
) -> Option<Wanted> {
    let found = find(objects, status.kind, &status.name)?;
    if found.generation != status.generation {
        return None;
    }
    let done = found.says.as_ref().is_some_and(|found| says(found, &wording(found, status, controller, now)));
    (!done).then(|| Wanted { status: Arc::clone(status), uid: found.uid, seen: found.says.is_some() })
}

/// The version of an object, which changes with everything about it.
pub(super) fn version<'a>(objects: &'a Objects, (kind, name): &StatusKey) -> Option<&'a String> {
    fn of<'a, K: Placed>(objects: &'a Objects, name: &ObjectName) -> Option<&'a String> {
        K::place(objects).get(name)?.meta().resource_version.as_ref()
    }
    match kind {
        StatusKind::ModelRoute => of::<ModelRoute>(objects, name),
        StatusKind::ModelServer => of::<ModelServer>(objects, name),
        StatusKind::ExternalModelProvider => of::<ExternalModelProvider>(objects, name),
        StatusKind::GatewayClass => of::<GatewayClass>(objects, name),
        StatusKind::Gateway => of::<Gateway>(objects, name),
        StatusKind::HttpRoute => of::<HttpRoute>(objects, name),
        StatusKind::InferencePool => of::<InferencePool>(objects, name),
    }
}

fn find(objects: &Objects, kind: StatusKind, name: &ObjectName) -> Option<Found> {
    match kind {
        StatusKind::ModelRoute => look::<ModelRoute>(objects, name),
        StatusKind::ModelServer => look::<ModelServer>(objects, name),
        StatusKind::ExternalModelProvider => look::<ExternalModelProvider>(objects, name),
        StatusKind::GatewayClass => look::<GatewayClass>(objects, name),
        StatusKind::Gateway => look::<Gateway>(objects, name),
        StatusKind::HttpRoute => look::<HttpRoute>(objects, name),
        StatusKind::InferencePool => look::<InferencePool>(objects, name),
    }
}

fn look<K: Placed + HasStatus<Status: Serialize>>(objects: &Objects, name: &ObjectName) -> Option<Found> {
    let object = K::place(objects).get(name)?;
    let (meta, says) = match &object.0 {
        Ok(object) => (object.meta(), Some(serde_json::to_value(object.status()).unwrap_or_default())),
        Err(unreadable) => (&unreadable.metadata, None),
    };
    Some(Found { uid: meta.uid.clone(), generation: meta.generation, says })
}
