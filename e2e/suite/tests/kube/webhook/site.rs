//! One webhook's surroundings in a cluster: its Service, its configuration, its Secret, routers that serve it, and an
//! author who writes objects.

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::client::Body;
use kube::{Client, Resource as _};
use kvasir_settings::kubernetes::WebhookSettings;
use kvasir_suite::cluster::{Cluster, apply};
use kvasir_suite::router::Router;
use serde_json::{Value, json};

use crate::dropin::deployment::{SECRET, SERVICE, webhook_objects};
use crate::process::{json_at, until};
use crate::routers::{free_port, watching};

pub struct Site {
    pub client: Client,
    pub space: String,
    cluster: &'static Cluster,
    configuration: String,
}

/// What an API server says about an object that was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Said {
    pub status: StatusCode,
    /// Why it is refused, if it is.
    pub message: Option<String>,
    pub warnings: Vec<String>,
}

impl Site {
    /// A namespace of its own, and no webhook in it yet.
    pub async fn new(cluster: &'static Cluster) -> Self {
        let client = cluster.client().await.unwrap();
        let space = cluster.namespace("webhook").await.unwrap();
        let configuration = format!("kthena-router-{space}");
        Self { client, space, cluster, configuration }
    }

    /// API servers ask at this port from now on.
    pub async fn ask_at(&self, port: u16) {
        for object in webhook_objects(&self.space, &self.configuration, SERVICE, port) {
            apply(&self.client, &self.space, &object.to_string()).await.unwrap();
        }
    }

    /// A router whose webhook is at this port.
    pub async fn router(&self, name: &str, port: u16) -> Router {
        let mut settings = watching(self.cluster.kubeconfig(), &self.space);
        settings.replica_name = Some(format!("{name}-of-{}", self.space));
        settings.listen.set_port(free_port());
        let missing = self.cluster.folder().join("no-such-file");
        if let Some(kubernetes) = &mut settings.kubernetes {
            kubernetes.webhook = Some(WebhookSettings {
                port,
                cert_file: missing.clone(),
                key_file: missing,
                secret_name: SECRET.to_owned(),
                service_name: SERVICE.to_owned(),
                configuration_name: self.configuration.clone(),
                manage_certificate: true,
            });
        }
        Router::start(settings).await.unwrap()
    }

    /// The name by which API servers call the webhook.
    pub fn name(&self) -> String {
        format!("{SERVICE}.{}.svc", self.space)
    }

    pub async fn secret(&self) -> Option<Secret> {
        self.secrets().get_opt(SECRET).await.unwrap()
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.space)
    }

    /// Whom the configuration trusts, if every hook trusts the same.
    pub async fn trusted(&self) -> Option<ByteString> {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let configuration = configurations.get(&self.configuration).await.unwrap();
        let hooks = configuration.webhooks.unwrap();
        assert_eq!(hooks.len(), 3, "no hook is lost");
        let first = hooks[0].client_config.ca_bundle.clone();
        hooks.iter().all(|hook| hook.client_config.ca_bundle == first).then_some(first).flatten()
    }

    /// Waits until API servers ask, and believe the answers.
    pub async fn is_asked(&self) {
        let bad = route(json!({"modelName": "m", "rules": [
            {"targetModels": [{"modelServerName": "s", "weight": 0}]}]}));
        until("a bad route is refused by the webhook", async || {
            self.write(&bad).await.message.is_some_and(|message| message.contains("denied the request"))
        })
        .await;
    }

    /// Writes an object, of which nothing is kept.
    pub async fn write(&self, object: &Value) -> Said {
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let space = &self.space;
        let path =
            format!("/apis/networking.serving.volcano.sh/v1alpha1/namespaces/{space}/{plural}?dryRun=All");
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(serde_json::to_vec(object).unwrap()))
            .unwrap();
        let (head, body) = self.client.send(request).await.unwrap().into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        let message = (!head.status.is_success()).then(|| body["message"].as_str().unwrap().to_owned());
        let warnings = head.headers.get_all("warning").iter().map(|value| text_of(value.to_str().unwrap()));
        Said { status: head.status, message, warnings: warnings.collect() }
    }
}

/// The webhook, as a router describes it.
pub async fn described(router: &Router) -> Value {
    json_at(router.admin.port(), "/debug/kubernetes").await["webhook"].clone()
}

/// What is in a Secret under this name.
pub fn part(secret: &Secret, name: &str) -> Vec<u8> {
    secret.data.as_ref().and_then(|data| data.get(name)).map(|bytes| bytes.0.clone()).unwrap_or_default()
}

/// The version of an object.
pub fn version(secret: &Secret) -> String {
    secret.meta().resource_version.clone().unwrap()
}

pub fn route(spec: Value) -> Value {
    object("ModelRoute", spec)
}

pub fn object(kind: &str, spec: Value) -> Value {
    json!({"apiVersion": "networking.serving.volcano.sh/v1alpha1", "kind": kind, "metadata": {"name": "case"},
        "spec": spec})
}

/// The text of a header `299 - "text"`.
fn text_of(warning: &str) -> String {
    let quoted = warning.strip_prefix("299 - ").unwrap();
    quoted.strip_prefix('"').unwrap().strip_suffix('"').unwrap().replace("\\\"", "\"")
}
