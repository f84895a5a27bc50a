//! The chart: every combination of values in its `ci` folder through real helm, kubeconform and a real API server.
//!
//! kubeconform has the schemas of the running API server. Kinds of the Prometheus operator and of cert-manager are not
//! served by it; exactly these are skipped, by it and where objects are applied.

pub mod container;
pub mod helm;
mod parts;
mod schemas;

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use kvasir_suite::cluster::{Cluster, Crds, apply, documents, dry_run, find, install_crds};
use serde_json::{Value, json};

use helm::{Release, chart, combinations, of_kind, repository, run};

/// Kinds of others, whose schemas are not at hand.
const ELSEWHERE: [(&str, &str); 3] = [
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("cert-manager.io/v1", "Issuer"),
    ("cert-manager.io/v1", "Certificate"),
];

fn is_elsewhere(object: &Value) -> bool {
    ELSEWHERE.iter().any(|(version, kind)| object["apiVersion"] == *version && object["kind"] == *kind)
}

#[test]
fn the_readme_and_the_schema_are_made_from_the_values() {
    let script = repository().join("charts/generate.py");
    let output = Command::new("python3").arg(script).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn every_combination_is_linted_and_fits_the_schemas_of_the_api() {
    let client = Cluster::shared().await.unwrap().client().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let location = schemas::write(&client, folder.path()).await;
    let mut skipped_kinds = Vec::new();
    for (name, file) in combinations() {
        let release = Release::new("kvasir", "kvasir-system").values(&file);
        let linted = release.helm(&["lint", "--strict"], &[]);
        assert!(linted.is_ok(), "{name}: {linted:?}");
        let text = release.helm(&["template"], &["--include-crds"]).unwrap();
        let report = conform(&location, &text);
        let resources = report["resources"].as_array().unwrap();
        let mut skipped = Vec::new();
        for resource in resources {
            match resource["status"].as_str().unwrap() {
                "statusValid" => {}
                "statusSkipped" => skipped.push(resource["kind"].as_str().unwrap().to_owned()),
                _ => panic!("{name}: {resource:#}"),
            }
        }
        let objects = documents(&text).unwrap();
        assert_eq!(resources.len(), objects.len(), "{name}");
        let elsewhere = objects.iter().filter(|object| is_elsewhere(object));
        let elsewhere: Vec<&str> = elsewhere.map(|object| object["kind"].as_str().unwrap()).collect();
        skipped.sort();
        assert_eq!(skipped, sorted(&elsewhere), "{name}");
        skipped_kinds.extend(skipped);
    }
    assert_eq!(sorted(&skipped_kinds), ["Certificate", "Issuer", "ServiceMonitor"]);
    // It would say so if something were wrong.
    let wrong = conform(&location, "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {prots: []}}");
    assert_eq!(wrong["summary"]["invalid"], 1, "{wrong}");
}

fn sorted(words: &[impl AsRef<str>]) -> Vec<&str> {
    let mut words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    words.sort_unstable();
    words
}

/// kubeconform's report.
fn conform(location: &str, text: &str) -> Value {
    let skip: Vec<String> = ELSEWHERE.iter().map(|(version, kind)| format!("{version}/{kind}")).collect();
    let arguments = [
        "-strict".to_owned(),
        "-verbose".to_owned(),
        "-summary".to_owned(),
        "-output=json".to_owned(),
        format!("-schema-location={location}"),
        format!("-skip={}", skip.join(",")),
    ];
    // With something invalid it fails, and reports all the same.
    let report = run("kubeconform", &arguments, text).unwrap_or_else(|report| report);
    serde_json::from_str(&report).unwrap_or_else(|_| panic!("{report}"))
}

#[tokio::test]
async fn every_combination_is_taken_by_the_api_and_its_pods_are_restricted() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("chart").await.unwrap();
    let needs_nothing = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for (name, labels) in [(space.as_str(), needs_nothing), ("models", json!({}))] {
        let metadata = json!({"name": name, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        apply(&client, "", &namespace.to_string()).await.unwrap();
    }
    let mut pods = 0;
    for (name, file) in combinations() {
        let objects = Release::new("kvasir", &space).values(&file).objects();
        for object in objects.iter().filter(|object| !is_elsewhere(object)) {
            // Not for good: some have no namespace, and the webhook would be asked about every other test's objects.
            if let Err(error) = dry_run(&client, &space, object).await {
                panic!("{name}: {error:?}\n{object:#}");
            }
        }
        for deployment in of_kind(&objects, "Deployment") {
            let mut pod = deployment["spec"]["template"].clone();
            pod["metadata"]["name"] = json!("pod");
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let made = Api::<Pod>::namespaced(client.clone(), &space).create(&params, &pod).await;
            assert!(made.is_ok(), "{name}: {}: {made:?}", deployment["metadata"]["name"]);
            pods += 1;
        }
    }
    assert!(pods > combinations().len(), "{pods}");
}

#[tokio::test]
async fn a_release_is_applied_installed_upgraded_and_removed() {
    // Of its own: its webhook has no answer here.
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Ours).await.unwrap();
    let file = |name: &str| chart().join(format!("ci/{name}.yaml"));
    for (release, values) in [("plain", "defaults"), ("full", "everything")] {
        let space = cluster.namespace(release).await.unwrap();
        let release = Release::new(release, &space).values(&file(values));
        let applied = apply(&client, &space, &release.template().unwrap()).await.unwrap();
        assert_eq!(applied.len(), release.objects().len());
    }

    let space = cluster.namespace("helm").await.unwrap();
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
    let full = Release::new("kvasir", &space).values(&file("everything"));
    let notes = full.helm(&["install"], &[&kubeconfig]).unwrap();
    assert!(notes.contains("The inference API is the Service kvasir, port 8080"), "{notes}");
    let plain = Release::new("kvasir", &space).values(&file("redis-bundled"));
    plain.helm(&["upgrade"], &[&kubeconfig]).unwrap();
    let objects = plain.objects();
    for object in full.objects().iter().chain(&objects) {
        let kept = helm::named(&objects, object["kind"].as_str().unwrap(), name_of(object)).is_some();
        assert_eq!(is_there(&client, &space, object).await, kept, "{object:#}");
    }
    let arguments = ["uninstall", "kvasir", "--namespace", &space, "--cascade=background", &kubeconfig];
    run("helm", &arguments.map(str::to_owned), "").unwrap();
    for object in &objects {
        assert!(!is_there(&client, &space, object).await, "{object:#}");
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

async fn is_there(client: &Client, space: &str, object: &Value) -> bool {
    find(client, space, object).await.unwrap().is_some()
}

#[test]
fn values_that_cannot_be_are_refused_with_a_sentence() {
    for (values, sentence) in [
        ("colour=blue", "additional properties 'colour' not allowed"),
        ("router.replica=2", "additional properties 'replica' not allowed"),
        ("router.replicas=-1", "minimum"),
        ("router.port=http", "integer"),
        ("global.certManagementMode=none", "value must be one of"),
        ("global.certManagementMode=manual", "set global.webhook.caBundle to the base64 of the PEM bundle"),
        ("router.service.extraPorts[0].name=a_b,router.service.extraPorts[0].port=81", "pattern"),
        (
            "router.service.extraPorts[0].name=web,router.service.extraPorts[0].port=80",
            "the Service cannot open port 80 twice",
        ),
        ("router.metrics.port=8080", "two listeners of the router's pod have port 8080"),
        (
            "tokenizerService.enabled=true,tokenizerService.port=9090",
            "two listeners of the router's pod have port 9090",
        ),
        ("router.gatewayAPI.inferenceExtension=true", "needs router.gatewayAPI.enabled"),
        ("router.enabled=false,tokenizerService.enabled=true", "set tokenizerService.mode to standalone"),
        (
            "router.watchNamespace=a,tokenizerService.enabled=true,tokenizerService.watchNamespace=b",
            "a sidecar may only see what the router may",
        ),
        (
            "router.fairness.enabled=true,router.sessionBoost.enabled=true",
            "a request waits in one queue only",
        ),
        ("router.webhook.tls.certFile=/a/tls.crt", "are in different directories"),
    ] {
        let refused = Release::new("kvasir", "kvasir-system").set(values).template().err();
        let refused = refused.unwrap_or_else(|| panic!("{values} is taken"));
        assert!(refused.contains(sentence), "{values}: {refused}");
    }
    let taken =
        Release::new("kvasir", "kvasir-system").set("global.imageRegistry=of-a-chart-around").template();
    assert!(taken.is_ok(), "{taken:?}");
}

#[tokio::test]
async fn the_notes_have_an_agent_that_fits_into_a_pod() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("notes").await.unwrap();
    for combination in ["redis-bundled", "redis-own", "everything"] {
        let agent = agents_container(cluster, combination);
        let mut spec = json!({"containers": [{"name": "engine", "image": "engine"}, agent]});
        if let Some(name) = agent["volumeMounts"][0]["name"].as_str() {
            spec["volumes"] = json!([{"name": name, "secret": {"secretName": "redis-password"}}]);
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "engine"}, "spec": spec});
        dry_run(&client, &space, &pod).await.unwrap();
    }
}

/// The agent's container in what helm says after an installation with these values.
pub fn agents_container(cluster: &Cluster, combination: &str) -> Value {
    let file = chart().join(format!("ci/{combination}.yaml"));
    let release = Release::new("kvasir", "kvasir-system").values(&file);
    // Even so it asks whether there is a cluster.
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
    let said = release.helm(&["install"], &["--dry-run=client", &kubeconfig]).unwrap();
    let notes = said.split_once("NOTES:").unwrap().1;
    let start = notes.find("  - name: agent").unwrap_or_else(|| panic!("{notes}"));
    let block = notes[start..].split("\n\n").next().unwrap();
    let list: Value = serde_saphyr::from_str(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    list[0].clone()
}
