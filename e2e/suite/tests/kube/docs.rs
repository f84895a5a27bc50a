//! What the documentation shows works: its objects are applied, its other YAML can be read, its values are the chart's.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kvasir_suite::cluster::{Cluster, Crds, apply, delete, documents, dry_run, install_crds, shared_data};
use serde_json::{Value, json};

use crate::chart::helm::{Release, chart, repository};

/// A fenced block of a page.
struct Block {
    page: PathBuf,
    line: usize,
    language: String,
    text: String,
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.page.strip_prefix(repository()).unwrap().display(), self.line)
    }
}

/// Every page for users: the readme, the guides, the chart's.
fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![repository().join("README.md")];
    walk(&repository().join("docs"), &mut found);
    walk(&repository().join("charts"), &mut found);
    found.sort();
    found
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            if let Some(block) = &mut open {
                if line.trim_start().starts_with("```") {
                    found.extend(open.take());
                } else {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            } else if let Some(language) = line.trim_start().strip_prefix("```") {
                let language = language.trim().to_owned();
                open = Some(Block { page: page.clone(), line: number + 1, language, text: String::new() });
            }
        }
        assert!(open.is_none(), "{}: a block does not end", page.display());
    }
    found
}

fn yaml() -> Vec<Block> {
    blocks().into_iter().filter(|block| matches!(block.language.as_str(), "yaml" | "yml")).collect()
}

fn read(block: &Block) -> Vec<Value> {
    documents(&block.text).unwrap_or_else(|error| panic!("{block}: {error}"))
}

fn is_object(document: &Value) -> bool {
    document.get("apiVersion").is_some() && document.get("kind").is_some()
}

#[test]
fn all_yaml_can_be_read() {
    let blocks = yaml();
    assert!(blocks.len() > 10, "{}", blocks.len());
    for block in &blocks {
        let documents = read(block);
        assert!(!documents.is_empty(), "{block}: nothing is in it");
        let objects = documents.iter().filter(|document| is_object(document)).count();
        assert!(
            objects == 0 || objects == documents.len(),
            "{block}: some documents are objects, some are not"
        );
    }
}

#[tokio::test]
async fn all_objects_apply_page_by_page() {
    if shared_data("crds").is_none() {
        return;
    }
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Ours).await.unwrap();
    install_crds(&client, Crds::GatewayApi).await.unwrap();
    let mut applied = 0;
    for page in pages() {
        let mut of_the_page = String::new();
        for block in yaml().into_iter().filter(|block| block.page == page) {
            let documents = read(&block);
            if !documents.iter().any(is_object) {
                fits_into_a_pod(&client, &block, &documents).await;
                continue;
            }
            for document in &documents {
                for pointer in
                    ["/metadata/namespace", "/spec/parentRefs/0/namespace", "/spec/from/0/namespace"]
                {
                    make_namespace(&client, document.pointer(pointer)).await;
                }
            }
            applied += match apply(&client, "default", &block.text).await {
                Ok(objects) => objects.len(),
                Err(error) => panic!("{block}: {error:?}"),
            };
            of_the_page.push_str("---\n");
            of_the_page.push_str(&block.text);
        }
        // The next page begins anew.
        delete(&client, "default", &of_the_page).await.unwrap();
    }
    assert!(applied >= 10, "{applied}");
}

/// What shows containers is a part of a pod.
async fn fits_into_a_pod(client: &Client, block: &Block, documents: &[Value]) {
    for spec in documents.iter().filter(|document| document["containers"].is_array()) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shown"}, "spec": spec});
        if let Err(error) = dry_run(client, "default", &pod).await {
            panic!("{block}: {error:?}");
        }
    }
}

async fn make_namespace(client: &Client, name: Option<&Value>) {
    let Some(name) = name.and_then(Value::as_str) else { return };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces.get_opt(name).await.unwrap().is_none() {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
}

/// `--set` and `-f` of every command that installs the chart.
#[test]
fn commands_set_values_that_the_chart_has() {
    let mut seen = 0;
    for block in blocks().iter().filter(|block| block.language == "sh") {
        let joined = block.text.replace("\\\n", " ");
        for line in joined.lines().filter(|line| line.contains("helm ") && line.contains("charts/kvasir")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut release = Release::new("kvasir", "kvasir-system");
            for pair in words.windows(2).filter(|pair| pair[0] == "--set") {
                release = release.set(pair[1]);
            }
            let rendered = release.template();
            assert!(rendered.is_ok(), "{block}: {line}: {rendered:?}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// Every `router.some.value` between backticks.
#[test]
fn values_that_are_named_are_the_charts() {
    let schema = std::fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let path = span.split([':', '=', ' ']).next().unwrap();
            let keys: Vec<&str> = path.split('.').collect();
            let is_value = keys.len() > 1
                && matches!(keys[0], "router" | "redis" | "tokenizerService")
                && keys.iter().all(|key| key.chars().all(char::is_alphanumeric) && !key.is_empty());
            if is_value && !is_in_kthena(&text, span) {
                seen += 1;
                assert!(has(&schema, &keys), "{}: the chart has no value {path}", page.display());
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// `tokenizerService.endpoint` is an argument of a plugin too.
fn is_in_kthena(page: &str, span: &str) -> bool {
    page.contains("kvcache-aware")
        && matches!(
            span,
            "tokenizerService.enabled" | "tokenizerService.endpoint" | "tokenizerService.fallbackToEngine"
        )
}

fn has(schema: &Value, keys: &[&str]) -> bool {
    let Some((first, rest)) = keys.split_first() else { return true };
    // Below it Kubernetes says what may be.
    let is_open = schema["properties"].is_null() && schema["type"] == "object";
    is_open || schema["properties"].get(first).is_some_and(|inner| has(inner, rest))
}
