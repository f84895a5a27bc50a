//! Our router in the place of kthena's: started by its Deployment, with its roles, over its definitions. Of what its chart
//! says only port numbers are others here, and the document's path, which a mount would make.

pub mod deployment;
mod shown;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_suite::cluster::{Call, Cluster, Crds, PodDraft, apply, delete, find, install_crds, shared_data};
use serde_json::{Value, json};

use crate::chart::helm::repository;
use crate::process::{Ports, Process, chat_status, get, json_at, until};
use deployment::{CONFIGURATION, NAME, SECRET, SERVICE, Values, webhook_objects};

/// Every way in which the chart starts its router.
const VARIANTS: [Values; 5] = [
    Values {
        name: "plain",
        gateway: false,
        inference: false,
        webhook: true,
        limits: None,
        metrics_on_router_port: false,
    },
    Values {
        name: "no-webhook",
        gateway: false,
        inference: false,
        webhook: false,
        limits: None,
        metrics_on_router_port: true,
    },
    Values {
        name: "gateway",
        gateway: true,
        inference: false,
        webhook: false,
        limits: Some((50, 100)),
        metrics_on_router_port: false,
    },
    Values {
        name: "inference",
        gateway: true,
        inference: true,
        webhook: true,
        limits: None,
        metrics_on_router_port: true,
    },
    Values {
        name: "limits",
        gateway: true,
        inference: true,
        webhook: true,
        limits: Some((5, 10)),
        metrics_on_router_port: false,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kthenas_deployment_starts_us_unchanged() {
    if shared_data("crds").is_none() {
        return;
    }
    let cluster = Cluster::start_audited().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Kthenas).await.unwrap();
    install_crds(&client, Crds::GatewayApi).await.unwrap();
    for values in VARIANTS {
        let mut stage = Stage::set(&cluster, values).await;
        stage.begins().await;
        stage.is_probed().await;
        stage.routes().await;
        stage.validates().await;
        stage.is_scraped().await;
        stage.is_looked_into().await;
        stage.is_content_with_its_roles();
        stage.ends().await;
    }
}

/// One router, with what it works on.
struct Stage<'a> {
    cluster: &'a Cluster,
    client: Client,
    values: Values,
    space: String,
    model: String,
    engine: Engine,
    router: Option<Process>,
    made: Vec<Value>,
}

impl<'a> Stage<'a> {
    async fn set(cluster: &'a Cluster, values: Values) -> Self {
        let client = cluster.client().await.unwrap();
        let space = cluster.namespace("kthena-system").await.unwrap();
        let model = format!("model-{}", values.name);
        let engine =
            Engine::start(EngineConfig { model: model.clone(), ..EngineConfig::default() }).await.unwrap();
        let ports = Ports::free();
        let account = values.account(cluster, &space).await;
        let mut made = Vec::new();
        if values.webhook {
            made.extend(webhook_objects(&space, CONFIGURATION, SERVICE, ports.webhook));
        }
        for object in &made {
            apply(&client, &space, &object.to_string()).await.unwrap();
        }
        let mut arguments = values.arguments(&ports);
        let document = repository().join("config/examples/kthena-default.yaml");
        arguments.push(format!("--config={}", document.display()));
        let mut environment = values.environment(&space);
        environment.push(("KUBECONFIG", account.kubeconfig().display().to_string()));
        let router = Some(Process::start(ports, &arguments, &environment));
        Self { cluster, client, values, space, model, engine, router, made }
    }

    fn router(&self) -> &Process {
        self.router.as_ref().unwrap()
    }

    fn ports(&self) -> Ports {
        self.router().ports
    }

    /// The document counts, and nothing that the Deployment says is doubted.
    async fn begins(&self) {
        until("the router is ready", async || {
            get(self.ports().router, "/readyz").await.is_some_and(|answer| answer.status() == 200)
        })
        .await;
        // An API server turns watches away for a moment after a definition was installed.
        until("everything is watched", async || {
            let kinds = json_at(self.ports().debug, "/debug/kubernetes").await["kinds"].clone();
            let is_withheld =
                |kind: &Value| kind["name"].as_str().is_some_and(|name| name.contains("grants"));
            let mut others = kinds.as_array().into_iter().flatten().filter(|kind| !is_withheld(kind));
            others.all(|kind| kind["trouble"].is_null())
        })
        .await;
        let log = self.router().log();
        for doubt in ["has no effect", "is unknown", "ERROR"] {
            assert!(!log.contains(doubt), "{}: {log}", self.values.name);
        }
    }

    /// Requests reach the pod by every way that is on. The objects pass the webhook, where there is one.
    async fn routes(&mut self) {
        if self.values.webhook {
            until("every hook trusts the router", async || self.is_trusted().await).await;
        }
        let pod = PodDraft::new("engine", "127.0.0.1").label("app", "engine");
        pod.create(&self.client, &self.space).await.unwrap();
        for object in self.objects() {
            apply(&self.client, &self.space, &object.to_string()).await.unwrap();
            self.made.push(object);
        }
        let port = self.ports().router;
        until("a request reaches the pod", async || chat_status(port, &self.model).await == 200).await;
        if self.values.inference {
            // No ModelRoute has this name: the HTTPRoute takes it.
            until("a request reaches the pool", async || {
                chat_status(port, "another").await;
                self.engine.requests().iter().any(|request| {
                    serde_json::from_slice::<Value>(&request.body)
                        .is_ok_and(|body| body["model"] == "another")
                })
            })
            .await;
        }
        if self.values.gateway {
            let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "default"}});
            let found = find(&self.client, &self.space, &gateway).await.unwrap().unwrap();
            assert_eq!(found.data["spec"]["gatewayClassName"], NAME);
            assert_eq!(found.data["spec"]["listeners"][0]["port"], port);
            let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": NAME}});
            let class_found = find(&self.client, "", &class).await.unwrap().unwrap();
            assert_eq!(class_found.data["spec"]["controllerName"], "volcano.sh/kthena-router");
            self.made.extend([gateway, class]);
        }
    }

    fn objects(&self) -> Vec<Value> {
        let networking = "networking.serving.volcano.sh/v1alpha1";
        let port = self.engine.address().port();
        let mut objects = vec![
            json!({"apiVersion": networking, "kind": "ModelServer", "metadata": {"name": "served"}, "spec": {
                "model": self.model, "inferenceEngine": "vLLM", "workloadPort": {"port": port},
                "workloadSelector": {"matchLabels": {"app": "engine"}}}}),
            json!({"apiVersion": networking, "kind": "ModelRoute", "metadata": {"name": "served"}, "spec": {
                "modelName": self.model, "rules": [{"targetModels": [{"modelServerName": "served"}]}]}}),
        ];
        if self.values.inference {
            objects.extend([
                json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "pool"},
                    "spec": {"selector": {"matchLabels": {"app": "engine"}}, "targetPorts": [{"number": port}],
                        "endpointPickerRef": {"name": "none", "port": {"number": 9002}}}}),
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "pooled"},
                    "spec": {"parentRefs": [{"name": "default"}], "rules": [{"backendRefs": [
                        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"}]}]}}),
            ]);
        }
        objects
    }

    async fn is_trusted(&self) -> bool {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let configuration = configurations.get(CONFIGURATION).await.unwrap();
        let secret =
            Api::<Secret>::namespaced(self.client.clone(), &self.space).get_opt(SECRET).await.unwrap();
        let authority = secret.and_then(|secret| secret.data?.remove("ca.crt"));
        let hooks = configuration.webhooks.unwrap();
        authority.is_some() && hooks.iter().all(|hook| hook.client_config.ca_bundle == authority)
    }

    /// What the webhook says in the place of kthena's.
    async fn validates(&self) {
        if !self.values.webhook {
            return;
        }
        let bad = json!({"apiVersion": "networking.serving.volcano.sh/v1alpha1", "kind": "ModelRoute",
            "metadata": {"name": "bad"}, "spec": {"modelName": "m", "rules": [
                {"targetModels": [{"modelServerName": "served", "weight": 0}]}]}});
        let error = apply(&self.client, &self.space, &bad.to_string()).await.unwrap_err();
        let expected = "admission webhook \"validate-modelroute.volcano.sh\" denied the request: validation failed:\n  \
            - spec.rules[0].targetModels: Invalid value: 0: total weight must be greater than zero";
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }

    /// What its roles do not allow is asked for and refused, said once, and changes nothing else.
    fn is_content_with_its_roles(&self) {
        let user = format!("system:serviceaccount:{}:{NAME}", self.space);
        let calls = self.cluster.calls().unwrap();
        let mine: Vec<&Call> = calls.iter().filter(|call| call.user == user).collect();
        assert!(mine.len() > 8, "{mine:#?}");
        let mut refused: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for call in mine.iter().filter(|call| call.is_refused) {
            refused.entry(&call.resource).or_default().insert(&call.verb);
        }
        let mut expected = BTreeMap::from([("leases", BTreeSet::from(["get"]))]);
        if self.values.inference {
            expected.insert("referencegrants", BTreeSet::from(["list"]));
        }
        assert_eq!(refused, expected, "{}", self.values.name);
        for resource in expected.keys() {
            let times = self.router().said(resource);
            assert_eq!(times, 1, "{resource} is named {times} times");
        }
        let written = mine.iter().filter(|call| call.resource.ends_with("/status"));
        assert_eq!(written.count(), 0, "who does not lead writes no status");
        let is_doubt = |line: &&str| line.contains(" WARN ") && !line.contains("storage is (re)initializing");
        let warnings = self.router().log().lines().filter(is_doubt).count();
        assert_eq!(warnings, expected.len(), "{}", self.values.name);
    }

    async fn ends(mut self) {
        let router = self.router.take().unwrap();
        assert_eq!(router.stop().await, Some(0), "{}", self.values.name);
        // The next one must not stumble over the webhook that has gone: what it guards goes after it.
        let is_guard = |object: &&Value| object["kind"] == "ValidatingWebhookConfiguration";
        for object in
            self.made.iter().filter(is_guard).chain(self.made.iter().filter(|object| !is_guard(object)))
        {
            delete(&self.client, &self.space, &object.to_string()).await.unwrap();
        }
    }
}

/// What asks for a part that is not there yet ends the start with a sentence, under kthena's names too.
#[tokio::test]
async fn what_is_not_there_yet_ends_the_start() {
    let values = VARIANTS[0];
    let ports = Ports::free();
    let mut arguments = values.arguments(&ports);
    arguments.extend(
        ["--tls-cert=/etc/router-tls/tls.crt", "--tls-key=/etc/router-tls/tls.key"].map(str::to_owned),
    );
    let mut router = Process::start(ports, &arguments, &values.environment("kthena-system"));
    assert_eq!(router.ended().await, Some(2), "{}", router.log());
    assert!(router.log().contains("serving with TLS is not available yet"), "{}", router.log());
}

/// A request waits in one queue only, as in kthena.
#[tokio::test]
async fn both_queues_at_once_end_the_start() {
    let values = VARIANTS[0];
    let mut environment = values.environment("kthena-system");
    for name in ["ENABLE_FAIRNESS_SCHEDULING", "ENABLE_SESSION_BOOST"] {
        environment.retain(|(known, _)| *known != name);
        environment.push((name, "true".to_owned()));
    }
    let ports = Ports::free();
    let mut router = Process::start(ports, &values.arguments(&ports), &environment);
    assert_eq!(router.ended().await, Some(2), "{}", router.log());
    assert!(router.log().contains("a request waits in one queue only"), "{}", router.log());
}
