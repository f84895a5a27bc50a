//! What the webhook asks of the API server, and how a refusal is told.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use kvasir_state::plan::ObjectName;
use serde_json::Value;

use crate::watch::causes;

/// How we call ourselves to the API server, for its `managedFields`.
const MANAGER: &str = "kvasir";

/// Status of a write that another one came before.
const CONFLICT: u16 = 409;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;

/// The two objects in the cluster.
#[derive(Clone)]
pub struct Cluster {
    secrets: Api<Secret>,
    secret: ObjectName,
    configurations: Api<ValidatingWebhookConfiguration>,
    configuration: String,
}

/// Why a write did not happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unwritten {
    /// Another replica was there first; read again.
    Overtaken,
    /// This is why, in one sentence.
    Refused(String),
}

impl Cluster {
    /// The objects with these names.
    pub fn new(client: Client, secret: ObjectName, configuration: String) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &secret.namespace),
            secret,
            configurations: Api::all(client),
            configuration,
        }
    }

    /// The Secret, if it exists.
    ///
    /// # Errors
    /// One sentence.
    pub async fn secret(&self) -> Result<Option<Secret>, String> {
        self.secrets
            .get_opt(&self.secret.name)
            .await
            .map_err(|error| told(&error, "get", &format!("Secret {}", self.secret)))
    }

    /// Writes the Secret: for the first time, or in place of the one that it was made from.
    ///
    /// # Errors
    /// See [`Unwritten`].
    pub async fn write_secret(&self, secret: &Secret) -> Result<(), Unwritten> {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let (verb, written) = if secret.metadata.resource_version.is_some() {
            ("update", self.secrets.replace(&self.secret.name, &params, secret).await)
        } else {
            ("create", self.secrets.create(&params, secret).await)
        };
        match written {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == CONFLICT => Err(Unwritten::Overtaken),
            Err(error) => Err(Unwritten::Refused(told(&error, verb, &format!("Secret {}", self.secret)))),
        }
    }

    /// The webhook configuration, if it exists.
    ///
    /// # Errors
    /// One sentence.
    pub async fn configuration(&self) -> Result<Option<ValidatingWebhookConfiguration>, String> {
        self.configurations.get_opt(&self.configuration).await.map_err(|error| self.untold(&error, "get"))
    }

    /// Patches the webhook configuration. Gives whether it was still there.
    ///
    /// # Errors
    /// One sentence.
    pub async fn patch_configuration(&self, patch: &Value) -> Result<bool, String> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match self.configurations.patch(&self.configuration, &params, &Patch::Strategic(patch)).await {
            Ok(_) => Ok(true),
            Err(Error::Api(status)) if status.code == NOT_FOUND => Ok(false),
            Err(error) => Err(self.untold(&error, "patch")),
        }
    }

    fn untold(&self, error: &Error, verb: &str) -> String {
        told(error, verb, &format!("ValidatingWebhookConfiguration {}", self.configuration))
    }
}

/// A failed call in one sentence, the same each time it fails alike.
fn told(error: &Error, verb: &str, object: &str) -> String {
    match error {
        Error::Api(status) if status.code == FORBIDDEN => {
            format!("may not {verb} {object}: the router's role lacks the verb {verb}")
        }
        Error::Api(status) => format!("cannot {verb} {object}: {}", status.message),
        other => format!("cannot {verb} {object}: {}", causes(other)),
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("secret", &self.secret).finish_non_exhaustive()
    }
}
