//! The parts of a release name each other: what one calls by name is there, and is what it takes it for.

use std::path::Path;

use kvasir_agent::AgentArgs;
use kvasir_settings::Settings;
use kvasir_suite::cluster::Cluster;
use kvasir_tokenizer_service::TokenizerArgs;
use serde_json::Value;

use super::container::{container, environment, settings, variables_of};
use super::helm::{Release, combinations, named, of_kind};

const SPACE: &str = "kvasir-system";

#[test]
fn the_router_understands_its_container_and_finds_what_it_names() {
    for (name, file) in combinations() {
        let objects = Release::new("kvasir", SPACE).values(&file).objects();
        for deployment in of_kind(&objects, "Deployment").filter(|deployment| is_router(deployment)) {
            let settings = settings(&objects, deployment, SPACE, None);
            let release = Parts { combination: &name, objects: &objects, deployment, settings: &settings };
            release.ports_are_open();
            release.webhook_is_found();
            release.document_is_followed();
            release.redis_is_found();
            release.account_is_bound();
        }
    }
}

#[tokio::test]
async fn a_service_knows_every_variable_of_its_container() {
    let known = |args: clap::Command, container: &Value, of_the_system: &[&str]| {
        let variables = variables_of(&args);
        for name in environment(container).keys() {
            let is_known = variables.contains(name) || of_the_system.contains(&name.as_str());
            assert!(is_known, "{} knows no {name}", args.get_name());
        }
    };
    let mut seen = 0;
    for (_, file) in combinations() {
        let objects = Release::new("kvasir", SPACE).values(&file).objects();
        for deployment in of_kind(&objects, "Deployment") {
            let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
            for container in containers.iter().filter(|container| container["name"] == "tokenizer") {
                seen += 1;
                assert_eq!(container["args"], serde_json::json!(["tokenizer"]));
                known(arguments::<TokenizerArgs>(), container, &["HOME"]);
            }
        }
    }
    assert!(seen > 2, "{seen}");
    let agent = super::agents_container(Cluster::shared().await.unwrap(), "everything");
    assert_eq!(agent["args"], serde_json::json!(["agent"]));
    known(arguments::<AgentArgs>(), &agent, &[]);
}

fn arguments<A: clap::Args>() -> clap::Command {
    A::augment_args(clap::Command::new(std::any::type_name::<A>()))
}

fn is_router(deployment: &Value) -> bool {
    deployment["metadata"]["labels"]["app.kubernetes.io/component"] == "router"
}

struct Parts<'a> {
    combination: &'a str,
    objects: &'a [Value],
    deployment: &'a Value,
    settings: &'a Settings,
}

impl Parts<'_> {
    fn need(&self, kind: &str, name: &str) -> &Value {
        let found = named(self.objects, kind, name);
        found.unwrap_or_else(|| panic!("{}: there is no {kind} {name}", self.combination))
    }

    fn pod(&self) -> &Value {
        &self.deployment["spec"]["template"]["spec"]
    }

    fn container(&self) -> &Value {
        container(self.deployment, "router")
    }

    /// The number of a port that is given by name.
    fn port(&self, name: &Value) -> u64 {
        let ports = self.container()["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["name"] == *name);
        let port = port.unwrap_or_else(|| panic!("{}: no port is called {name}", self.combination));
        port["containerPort"].as_u64().unwrap()
    }

    fn ports_are_open(&self) {
        assert_eq!(self.port(&"http".into()), u64::from(self.settings.listen.port()));
        assert_eq!(self.port(&"metrics".into()), u64::from(self.settings.metrics_listen.port()));
        assert!(self.settings.admin_listen.ip().is_loopback());
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(self.container()[probe]["httpGet"]["port"], "http", "{}", self.combination);
        }
        let labels = &self.deployment["spec"]["template"]["metadata"]["labels"];
        let mut services = 0;
        for service in of_kind(self.objects, "Service") {
            let selector = service["spec"]["selector"].as_object().unwrap();
            if selector.iter().all(|(name, value)| labels[name] == *value) {
                services += 1;
                for port in service["spec"]["ports"].as_array().unwrap() {
                    self.port(&port["targetPort"]);
                }
            }
        }
        assert!(services >= 2, "{}", self.combination);
        for policy in of_kind(self.objects, "NetworkPolicy") {
            for rule in policy["spec"]["ingress"].as_array().unwrap() {
                for port in rule["ports"].as_array().unwrap() {
                    self.port(&port["port"]);
                }
            }
        }
    }

    fn webhook_is_found(&self) {
        let kubernetes = self.settings.kubernetes.as_ref().unwrap();
        let mut configurations = of_kind(self.objects, "ValidatingWebhookConfiguration");
        let Some(webhook) = &kubernetes.webhook else {
            assert!(configurations.next().is_none(), "{}: nobody answers its webhook", self.combination);
            return;
        };
        let configuration = self.need("ValidatingWebhookConfiguration", &webhook.configuration_name);
        let service = self.need("Service", &webhook.service_name);
        let port = &service["spec"]["ports"][0];
        assert_eq!(self.port(&port["targetPort"]), u64::from(webhook.port));
        for hook in configuration["webhooks"].as_array().unwrap() {
            let called = &hook["clientConfig"]["service"];
            assert_eq!(called["name"], webhook.service_name.as_str());
            assert_eq!(called["namespace"], SPACE);
            assert_eq!(called["port"], port["port"]);
        }
        let is_cared_for = configuration["webhooks"][0]["clientConfig"]["caBundle"].is_string()
            || configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].is_string();
        assert_eq!(webhook.manage_certificate, !is_cared_for, "{}", self.combination);
        let volumes = self.pod()["volumes"].as_array().unwrap();
        let volume =
            volumes.iter().find(|volume| volume["secret"]["secretName"] == webhook.secret_name.as_str());
        let volume = volume.unwrap_or_else(|| panic!("{}: the Secret is not mounted", self.combination));
        let mounts = self.container()["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
        let folder = Path::new(mount["mountPath"].as_str().unwrap());
        let files: Vec<_> = volume["secret"]["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| folder.join(item["path"].as_str().unwrap()))
            .collect();
        assert_eq!(files, [webhook.cert_file.clone(), webhook.key_file.clone()], "{}", self.combination);
        for certificate in of_kind(self.objects, "Certificate") {
            assert_eq!(certificate["spec"]["secretName"], webhook.secret_name.as_str());
        }
    }

    fn document_is_followed(&self) {
        let kubernetes = self.settings.kubernetes.as_ref().unwrap();
        let maps: Vec<&Value> = of_kind(self.objects, "ConfigMap").collect();
        assert_eq!(kubernetes.config_map.is_some(), !maps.is_empty(), "{}", self.combination);
        if let Some(followed) = &kubernetes.config_map {
            assert_eq!(followed.namespace, SPACE);
            assert!(self.need("ConfigMap", &followed.name)["data"][&followed.key].is_string());
        }
    }

    fn redis_is_found(&self) {
        for service in of_kind(self.objects, "Service") {
            if service["metadata"]["labels"]["app.kubernetes.io/component"] == "redis" {
                let host = format!("{}.{SPACE}.svc", service["metadata"]["name"].as_str().unwrap());
                let redis = format!("{:?}", self.settings.redis);
                assert!(redis.contains(&host), "{}: {redis}", self.combination);
            }
        }
    }

    fn account_is_bound(&self) {
        let account = self.pod()["serviceAccountName"].as_str().unwrap();
        self.need("ServiceAccount", account);
        let mut bound = 0;
        for binding in self.objects.iter().filter(|object| object["roleRef"].is_object()) {
            let role = &binding["roleRef"];
            self.need(role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
            let subject = &binding["subjects"][0];
            assert_eq!(subject["namespace"], SPACE);
            bound += u32::from(subject["name"] == account);
        }
        assert!(bound >= 2, "{}", self.combination);
    }
}
