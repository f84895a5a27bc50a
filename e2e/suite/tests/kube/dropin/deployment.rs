//! What kthena's chart gives its router: how it is called, in which environment, and what it may do.

use kvasir_suite::cluster::{Account, Cluster, Grant, apply};
use serde_json::{Value, json};

use crate::process::Ports;

pub const NAME: &str = "kthena-router";
pub const SECRET: &str = "kthena-router-webhook-certs";
pub const SERVICE: &str = "kthena-router-webhook";
pub const CONFIGURATION: &str = "kthena-router-validating-webhook";

/// The values that change how the router is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values {
    /// Names its objects in these tests.
    pub name: &'static str,
    /// `gatewayAPI.enabled`
    pub gateway: bool,
    /// `gatewayAPI.inferenceExtension`
    pub inference: bool,
    /// `webhook.enabled`
    pub webhook: bool,
    /// `kubeAPIQPS` and `kubeAPIBurst`
    pub limits: Option<(u32, u32)>,
    /// `metrics.exposeOnRouterPort`
    pub metrics_on_router_port: bool,
}

impl Values {
    /// The container's arguments in the chart's order, after the name of its entrypoint.
    pub fn arguments(&self, ports: &Ports) -> Vec<String> {
        let Ports { router, metrics, debug, webhook } = ports;
        let mut arguments = vec![
            format!("/{NAME}"),
            format!("--port={router}"),
            format!("--metrics-port={metrics}"),
            format!("--expose-metrics-on-router-port={}", self.metrics_on_router_port),
            format!("--debug-port={debug}"),
            format!("--enable-webhook={}", self.webhook),
            format!("--enable-gateway-api={}", self.gateway),
        ];
        if self.gateway {
            arguments.push(format!("--enable-gateway-api-inference-extension={}", self.inference));
        }
        if self.webhook {
            arguments.extend([
                format!("--webhook-port={webhook}"),
                "--webhook-tls-cert-file=/etc/tls/tls.crt".to_owned(),
                "--webhook-tls-private-key-file=/etc/tls/tls.key".to_owned(),
                format!("--cert-secret-name={SECRET}"),
                format!("--webhook-service-name={SERVICE}"),
            ]);
        }
        if let Some((qps, burst)) = self.limits {
            arguments.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={burst}")]);
        }
        arguments
    }

    /// The container's environment: the chart's, with nothing from the optional objects about Redis; and what a kubelet
    /// adds, which tells of every Service of the namespace too. One of ours may be among them.
    pub fn environment(&self, namespace: &str) -> Vec<(&'static str, String)> {
        [
            ("POD_NAMESPACE", namespace),
            ("ACCESS_LOG_ENABLED", "true"),
            ("ACCESS_LOG_FORMAT", "text"),
            ("ACCESS_LOG_OUTPUT", "stdout"),
            ("DRAIN_TIMEOUT", "5m"),
            ("ENABLE_FAIRNESS_SCHEDULING", "false"),
            ("ENABLE_SESSION_BOOST", "false"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
            ("HOME", "/"),
            ("HOSTNAME", "kthena-router-7d9c5b8f6b-x2x7k"),
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KTHENA_ROUTER_SERVICE_HOST", "10.0.0.7"),
            ("KTHENA_ROUTER_PORT", "tcp://10.0.0.7:80"),
            ("KVASIR_SERVICE_HOST", "10.0.0.8"),
            ("KVASIR_PORT", "tcp://10.0.0.8:80"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into()
    }

    /// The service account in its namespace, with the roles that the chart gives it and no others.
    pub async fn account(&self, cluster: &Cluster, namespace: &str) -> Account {
        let client = cluster.client().await.unwrap();
        let name = format!("{NAME}-{}", self.name);
        let cluster_role = role("ClusterRole", &name, &self.cluster_rules());
        let own_rules = json!([
            rule("", &["secrets"], &["create"]),
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"]},
        ]);
        apply(&client, namespace, &cluster_role.to_string()).await.unwrap();
        apply(&client, namespace, &role("Role", NAME, &own_rules).to_string()).await.unwrap();
        let grants = [Grant::ClusterRole(&name), Grant::Role(NAME)];
        cluster.account(namespace, NAME, &grants).await.unwrap()
    }

    fn cluster_rules(&self) -> Value {
        const ALL: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
        const SEE: [&str; 3] = ["get", "list", "watch"];
        const STATUS: [&str; 3] = ["get", "patch", "update"];
        let mut rules = vec![
            rule(
                "networking.serving.volcano.sh",
                &["modelroutes", "externalmodelproviders", "modelservers"],
                &ALL,
            ),
            rule(
                "networking.serving.volcano.sh",
                &["modelroutes/status", "externalmodelproviders/status", "modelservers/status"],
                &STATUS,
            ),
            rule("", &["pods"], &SEE),
            rule("", &["secrets"], &["list", "watch"]),
            rule("", &["services", "services/status"], &ALL),
            rule(
                "admissionregistration.k8s.io",
                &["validatingwebhookconfigurations"],
                &["get", "update", "patch"],
            ),
        ];
        if self.gateway {
            const GROUP: &str = "gateway.networking.k8s.io";
            rules.push(rule(GROUP, &["gatewayclasses", "gateways", "httproutes"], &ALL));
            let statuses = ["gatewayclasses/status", "gateways/status", "httproutes/status"];
            rules.push(rule(GROUP, &statuses, &STATUS));
        }
        if self.inference {
            rules.push(rule("", &["namespaces"], &SEE));
            rules.push(rule("inference.networking.k8s.io", &["inferencepools"], &SEE));
            rules.push(rule("inference.networking.k8s.io", &["inferencepools/status"], &STATUS));
        }
        Value::Array(rules)
    }
}

/// The Service of the webhook, which leads to this machine, and the chart's ValidatingWebhookConfiguration, whose
/// certificate nobody has written yet.
pub fn webhook_objects(namespace: &str, configuration: &str, service: &str, port: u16) -> [Value; 2] {
    let kinds = ["modelroute", "modelserver", "externalmodelprovider"];
    let hooks = kinds.map(|kind| {
        json!({
            "name": format!("validate-{kind}.volcano.sh"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
            "clientConfig": {"service": {
                "name": service, "namespace": namespace, "path": format!("/validate/{kind}"), "port": port,
            }},
            "rules": [{
                "apiGroups": ["networking.serving.volcano.sh"],
                "apiVersions": ["v1alpha1"],
                "resources": [format!("{kind}s")],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }],
            // Others use this cluster, too.
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        })
    });
    [
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"name": "webhook", "port": port}]},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": configuration},
            "webhooks": hooks,
        }),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(kind: &str, name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": rules,
    })
}
