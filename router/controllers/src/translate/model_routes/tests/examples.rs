//! kthena's own manifests, read where they lie beside the repository: none is passed over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::translate::testing::add;

/// Every YAML file of a folder and of those below it.
fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{} cannot be listed: {error}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            found.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_route_and_server_of_kthenas_examples_is_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/examples");
    assert!(
        folder.is_dir(),
        "kthena's examples are not at {}: put them there, this test reads them in place",
        folder.display()
    );
    let (mut routes, mut servers) = (0, 0);
    for path in yaml_files(&folder) {
        let mut objects = Objects::default();
        for document in documents(&path) {
            // A rendered chart may leave its image tag or replicas to others; only kthena's networking kinds are ours.
            if document.get("apiVersion").and_then(Value::as_str)
                == Some("networking.serving.volcano.sh/v1alpha1")
            {
                add(&mut objects, document);
            }
        }
        let translation = crate::translate::translate(&objects, &Options::default());
        assert!(translation.skipped.is_empty(), "{}: {:?}", path.display(), translation.skipped);
        let planned: BTreeSet<_> = translation.plan.routes.iter().map(|route| &route.id).collect();
        assert!(planned.iter().copied().eq(objects.model_routes.keys()), "{}", path.display());
        let planned: BTreeSet<_> = translation.plan.targets.iter().map(|target| &target.id.name).collect();
        assert!(planned.iter().copied().eq(objects.model_servers.keys()), "{}", path.display());
        routes += objects.model_routes.len();
        servers += objects.model_servers.len();
    }
    assert!(routes >= 10 && servers >= 10, "{routes} routes, {servers} servers: is the walk broken?");
}
