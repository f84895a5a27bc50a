//! YAML texts into a cluster and out again, as `kubectl apply --server-side` and `kubectl delete` do it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use serde_json::Value;
use tokio::time::Instant;

use crate::GUARD;

const MANAGER: &str = "kvasir-suite";
const POLL: Duration = Duration::from_millis(20);

/// The documents of a YAML text, empty ones left out.
///
/// # Errors
/// The text is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies every document of a YAML text in their order. Objects that name no namespace go into `namespace`.
///
/// # Errors
/// The first document that the API refuses, with the API's words; those before it are applied.
pub async fn apply(client: &Client, namespace: &str, text: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(text)? {
        applied.push(apply_document(client, namespace, &document, &forced()).await?);
    }
    Ok(applied)
}

/// As [`apply`], with `namespace` in place of any that the text names.
///
/// # Errors
/// As [`apply`].
pub async fn apply_into(client: &Client, namespace: &str, text: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for mut document in documents(text)? {
        if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("namespace");
        }
        applied.push(apply_document(client, namespace, &document, &forced()).await?);
    }
    Ok(applied)
}

/// As [`apply`] for one document, of which nothing is kept.
///
/// # Errors
/// The API refuses it.
pub async fn dry_run(client: &Client, namespace: &str, document: &Value) -> Result<()> {
    let params = PatchParams { dry_run: true, ..forced() };
    apply_document(client, namespace, document, &params).await.map(drop)
}

/// The object that a document names, if there is one.
///
/// # Errors
/// The API does not know the kind, or does not answer.
pub async fn find(client: &Client, namespace: &str, document: &Value) -> Result<Option<DynamicObject>> {
    let object = Named::of(document)?;
    Ok(object.api(client, namespace).await?.get_opt(&object.name).await?)
}

/// Deletes the objects of a YAML text, the last one first, and waits until they are gone. One that is not there is fine.
///
/// # Errors
/// The API refuses, or an object stays: something holds it.
pub async fn delete(client: &Client, namespace: &str, text: &str) -> Result<()> {
    for document in documents(text)?.into_iter().rev() {
        let object = Named::of(&document)?;
        let api = match object.api(client, namespace).await {
            Ok(api) => api,
            // Its definition is gone, and all objects with it.
            Err(error) if is_not_found(&error) => continue,
            Err(error) => return Err(error),
        };
        match api.delete(&object.name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            done => done.with_context(|| format!("cannot delete {object}"))?,
        };
        let deadline = Instant::now() + GUARD;
        while api.get_opt(&object.name).await?.is_some() {
            if Instant::now() > deadline {
                bail!("{object} is still there");
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

fn forced() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

async fn apply_document(
    client: &Client,
    namespace: &str,
    document: &Value,
    params: &PatchParams,
) -> Result<DynamicObject> {
    let object = Named::of(document)?;
    let api = object.api(client, namespace).await?;
    api.patch(&object.name, params, &Patch::Apply(document))
        .await
        .with_context(|| format!("cannot apply {object}"))
}

/// What a document says it is.
struct Named {
    kind: GroupVersionKind,
    namespace: Option<String>,
    name: String,
}

impl Named {
    fn of(document: &Value) -> Result<Self> {
        let text = |path: &str| {
            let value = document.pointer(path).and_then(Value::as_str);
            value.map(str::to_owned).with_context(|| format!("a document has no {path}: {document}"))
        };
        let version = text("/apiVersion")?;
        let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
        Ok(Self {
            kind: GroupVersionKind::gvk(group, version, &text("/kind")?),
            namespace: text("/metadata/namespace").ok(),
            name: text("/metadata/name")?,
        })
    }

    async fn api(&self, client: &Client, namespace: &str) -> Result<Api<DynamicObject>> {
        let (resource, capabilities) = discovery::pinned_kind(client, &self.kind)
            .await
            .with_context(|| format!("the API does not know the kind of {self}"))?;
        let resource: ApiResource = resource;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = self.namespace.as_deref().unwrap_or(namespace);
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
        })
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.kind.kind, self.name)
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => status.code == 404,
        Some(kube::Error::Discovery(_)) => true,
        _ => false,
    }
}
