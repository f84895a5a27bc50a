//! The calls about statuses.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use kvasir_api::gateway::{Gateway, GatewayClass, HttpRoute};
use kvasir_api::{ExternalModelProvider, InferencePool, ModelRoute, ModelServer};
use kvasir_state::plan::ObjectName;
use serde_json::Value;

use crate::status::StatusKind;
use crate::watch::causes;

/// Who wrote it, as the API server keeps it with the object.
const FIELD_MANAGER: &str = "kvasir-router";

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    /// There is no such object, or its kind has no status of its own.
    Missing,
    /// The object changed in between.
    Conflict,
    /// The router may not do that.
    Forbidden(String),
    /// The API server does not take what was written.
    Refused(String),
    /// The API server was not reached, or had a problem of its own.
    Unavailable(String),
}

/// Where statuses are. Objects come as they are, so that nothing of them is lost on the way back.
pub(crate) trait StatusApi: Send + Sync {
    /// The object.
    fn get(&self, kind: StatusKind, name: &ObjectName)
    -> impl Future<Output = Result<Value, Problem>> + Send;
    /// Merges into the object's status. Gives the object as it is afterwards.
    fn patch(
        &self,
        kind: StatusKind,
        name: &ObjectName,
        patch: &Value,
    ) -> impl Future<Output = Result<Value, Problem>> + Send;
}

/// Statuses in a cluster.
#[derive(Clone)]
pub(crate) struct ClusterStatus(pub(crate) Client);

impl ClusterStatus {
    fn api(&self, kind: StatusKind, name: &ObjectName) -> Api<DynamicObject> {
        let resource = resource(kind);
        if name.namespace.is_empty() {
            Api::all_with(self.0.clone(), &resource)
        } else {
            Api::namespaced_with(self.0.clone(), &name.namespace, &resource)
        }
    }
}

impl StatusApi for ClusterStatus {
    async fn get(&self, kind: StatusKind, name: &ObjectName) -> Result<Value, Problem> {
        plain(self.api(kind, name).get(&name.name).await)
    }

    async fn patch(&self, kind: StatusKind, name: &ObjectName, patch: &Value) -> Result<Value, Problem> {
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        plain(self.api(kind, name).patch_status(&name.name, &how, &Patch::Merge(patch)).await)
    }
}

fn plain(answer: kube::Result<DynamicObject>) -> Result<Value, Problem> {
    let object = answer.map_err(|error| sorted(&error))?;
    serde_json::to_value(object).map_err(|error| Problem::Unavailable(error.to_string()))
}

fn sorted(error: &kube::Error) -> Problem {
    let kube::Error::Api(status) = error else { return Problem::Unavailable(causes(error)) };
    let message = status.message.clone();
    match status.code {
        403 => Problem::Forbidden(message),
        404 => Problem::Missing,
        409 => Problem::Conflict,
        // 401 and 429 pass.
        400 | 402 | 405..=428 | 430..=499 => Problem::Refused(message),
        _ => Problem::Unavailable(causes(error)),
    }
}

fn resource(kind: StatusKind) -> ApiResource {
    match kind {
        StatusKind::ModelRoute => ApiResource::erase::<ModelRoute>(&()),
        StatusKind::ModelServer => ApiResource::erase::<ModelServer>(&()),
        StatusKind::ExternalModelProvider => ApiResource::erase::<ExternalModelProvider>(&()),
        StatusKind::GatewayClass => ApiResource::erase::<GatewayClass>(&()),
        StatusKind::Gateway => ApiResource::erase::<Gateway>(&()),
        StatusKind::HttpRoute => ApiResource::erase::<HttpRoute>(&()),
        StatusKind::InferencePool => ApiResource::erase::<InferencePool>(&()),
    }
}
