//! The rules of the house, held by a machine: floors, file sizes, first lines, names, who may know whom.

#![expect(clippy::expect_used, clippy::panic, reason = "a rule that cannot be checked must fail loudly")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

/// Lines of a file's code (its test module apart) above which it must say why: `Long because ...` in its header.
const MOST_LINES: usize = 400;

/// The floors of the house. An edge may only go to a lower number.
const FLOORS: &[(&str, u8)] = &[
    ("kvasir-core", 0),
    ("kvasir-settings", 0),
    ("kvasir-api", 0),
    ("kvasir-telemetry", 1),
    ("kvasir-wire", 1),
    ("kvasir-kvcache", 1),
    ("kvasir-tokenize", 1),
    ("kvasir-upstream", 1),
    ("kvasir-coordination", 1),
    ("kvasir-admission", 1),
    ("kvasir-state", 2),
    ("kvasir-controllers", 3),
    ("kvasir-scheduler", 2),
    ("kvasir-plugins", 2),
    ("kvasir-gateway", 3),
    ("kvasir-tokenizer-service", 4),
    ("kvasir-agent", 4),
    ("kvasir-mock-engine", 4),
    ("kvasir-probe", 4),
    ("kvasir-bench", 4),
    ("kvasir-simulator", 4),
    ("kvasir", 5),
    ("kvasir-suite", 6),
];

/// On the ground floor, settings speak core's words, and both houses of configuration read durations alike.
const SAME_FLOOR: &[(&str, &str)] = &[("kvasir-settings", "kvasir-core"), ("kvasir-api", "kvasir-settings")];

/// Crates that only some rooms may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("pingora-core", &["kvasir-gateway", "kvasir-bench"]),
    ("pingora-http", &["kvasir-gateway", "kvasir-bench"]),
    ("pingora-proxy", &["kvasir-bench"]),
    ("pingora-timeout", &["kvasir-gateway"]),
    ("zeromq", &["kvasir-kvcache", "kvasir-mock-engine"]),
    ("redis", &["kvasir-coordination", "kvasir-bench"]),
    ("tokenizers", &["kvasir-tokenize"]),
    ("fastokens", &["kvasir-tokenize"]),
    ("minijinja", &["kvasir-tokenize"]),
    ("prometheus", &["kvasir-telemetry"]),
    ("kube", &["kvasir-api", "kvasir-controllers", "kvasir-suite"]),
    ("k8s-openapi", &["kvasir-api", "kvasir-controllers", "kvasir-suite"]),
];

/// Module names that say nothing.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc", "impl"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn rust_files() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries =
            std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    walk(&path, found);
                }
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    assert!(found.len() > 50, "only {} files found: is the walk broken?", found.len());
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn edges_only_go_down_the_floors() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(floor) = floors.get(name) else {
            wrong.push(format!("{name} is on no floor; give it one in FLOORS"));
            continue;
        };
        for dependency in &package.dependencies {
            let other = dependency.name.as_str();
            if let Some(below) = floors.get(other) {
                let fine = below < floor || SAME_FLOOR.contains(&(name, other));
                if !fine {
                    wrong.push(format!("{name} (floor {floor}) names {other} (floor {below})"));
                }
            }
            if let Some((_, rooms)) = RESERVED.iter().find(|(reserved, _)| *reserved == other)
                && !rooms.contains(&name)
            {
                wrong.push(format!("{name} names {other}, which only {rooms:?} may"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let name = shown(&path);
        let is_test_module = path.file_stem().is_some_and(|stem| stem == "tests") || name.contains("/tests/");
        let first = text.lines().next().unwrap_or_default();
        let unit_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if !first.starts_with("//! ") && !unit_tests {
            wrong.push(format!("{name}: the first line must state its purpose (`//! ...`)"));
        }
        let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        let reason = text.lines().take(20).any(|line| line.starts_with("//! Long because "));
        let most = if is_test_module { 2 * MOST_LINES } else { MOST_LINES };
        if code > most && !reason {
            wrong.push(format!(
                "{name}: {code} lines; split it, or say why in the header (`//! Long because ...`)"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_have_names_that_say_something() {
    let wrong: Vec<String> = rust_files()
        .iter()
        .filter(|path| path.file_stem().is_some_and(|stem| EMPTY_NAMES.iter().any(|name| stem == *name)))
        .map(|path| shown(path))
        .collect();
    assert!(wrong.is_empty(), "names that say nothing: {wrong:?}");
}

#[test]
fn nothing_is_ignored_or_left_for_later() {
    // Spelled apart, so that this file does not find itself.
    let banned = [
        ("#[ign".to_owned() + "ore", "a test that never runs; run it or remove it"),
        ("#[all".to_owned() + "ow(", "write #[expect(lint, reason = ...)]"),
        ("// TO".to_owned() + "DO", "do it, or open an issue"),
        ("// FIX".to_owned() + "ME", "do it, or open an issue"),
        ("todo".to_owned() + "!(", "do it, or open an issue"),
        ("unimplem".to_owned() + "ented!(", "do it, or open an issue"),
    ];
    let mut wrong = Vec::new();
    for path in rust_files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        for (number, line) in text.lines().enumerate() {
            for (word, why) in &banned {
                if line.contains(word.as_str()) {
                    wrong.push(format!("{}:{}: `{word}`: {why}", shown(&path), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_request_path_fits_a_screen_or_two() {
    let path = root().join("router/gateway/src/lifecycle.rs");
    let lines = std::fs::read_to_string(path).expect("lifecycle.rs is there").lines().count();
    assert!(lines <= 100, "lifecycle.rs has {lines} lines; it is the contents page of the request's path");
}

#[test]
fn links_between_documents_lead_somewhere() {
    fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
                markdown(&path, found);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    markdown(&root(), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.contains(' ') || path.starts_with("mailto:") {
                continue;
            }
            let there = file.parent().is_some_and(|folder| folder.join(path).exists());
            if !there {
                wrong.push(format!("{}: ({target}) leads nowhere", shown(&file)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
