//! Other projects' CRDs and manifests: read where they lie beside the repository, never kept in it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A folder of other projects' files, or nothing: then the tests rest on what was taken down from them here.
pub fn folder(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    folder.is_dir().then_some(folder)
}

/// Every YAML file of a folder and of those below it, in the order of paths.
pub fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The documents of a YAML text, empty ones left out.
pub fn documents(name: &Path, text: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The documents of a file.
pub fn read_documents(path: &Path) -> Vec<Value> {
    documents(path, &std::fs::read_to_string(path).expect("the file can be read"))
}
