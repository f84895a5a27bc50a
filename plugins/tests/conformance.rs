//! `docs/scheduler-conformance.md` is true: every plugin has rows, every test it names exists, every difference is listed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a page that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kvasir_plugins::registry::{FILTERS, SCORERS};

/// The page's last section is about plugins that kthena lacks.
const OURS: &str = "Our own";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

struct Row {
    section: String,
    part: String,
    kvasir: String,
    tests: Vec<String>,
}

fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(root().join("docs/scheduler-conformance.md")).unwrap();
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        }
        if !line.starts_with("| ") || line.starts_with("| part |") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [part, _, kvasir, tests] = cells[..] else { panic!("a row has four cells: {line}") };
        rows.push(Row {
            section: section.clone(),
            part: part.to_owned(),
            kvasir: kvasir.to_owned(),
            tests: tests.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        });
    }
    rows
}

/// Whether the file has a function of that name, marked as a test or inside `proptest!`.
fn is_test(name: &str) -> bool {
    let Some((path, function)) = name.split_once("::") else { return false };
    let Ok(source) = std::fs::read_to_string(root().join(path)) else { return false };
    let mut marked = false;
    source.lines().map(str::trim).any(|line| {
        marked |= line.starts_with("#[test") || line.starts_with("#[tokio::test");
        let declared = line.trim_start_matches("async ").strip_prefix("fn ");
        let found = marked && declared.is_some_and(|rest| rest.split('(').next() == Some(function));
        marked &= declared.is_none();
        found
    })
}

#[test]
fn every_rule_has_tests_that_exist() {
    let mut wrong = Vec::new();
    for row in rows() {
        if row.tests.is_empty() {
            wrong.push(format!("{}, {}: no test", row.section, row.part));
        }
        let missing = row.tests.iter().filter(|test| !is_test(test));
        wrong.extend(missing.map(|test| format!("{}, {}: there is no {test}", row.section, row.part)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_plugin_has_rows() {
    let rows = rows();
    for name in FILTERS.iter().chain(&SCORERS) {
        let named = |row: &Row| row.section == *name || (row.section == OURS && row.part == *name);
        assert!(rows.iter().any(named), "{name}");
    }
}

#[test]
fn what_differs_is_among_the_differences() {
    let page = std::fs::read_to_string(root().join("docs/differences.md")).unwrap();
    let plugins = page.split("## Scheduling plugins").nth(1).unwrap().split("\n## ").next().unwrap();
    let listed: BTreeSet<&str> = plugins
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    for row in rows() {
        let (section, kvasir) = (&row.section, &row.kvasir);
        if section == OURS {
            assert!(kvasir == "ours", "{section}: {kvasir}");
            continue;
        }
        if kvasir.starts_with("same") {
            continue;
        }
        assert!(kvasir.starts_with("differs"), "{section}: {kvasir} is neither same nor differs");
        assert!(
            kvasir.contains("(differences.md#"),
            "{section}: {kvasir} does not say where it is explained"
        );
        if kvasir.contains("differences.md#scheduling-plugins") {
            let name = if section == "The framework" { "all" } else { section };
            assert!(listed.contains(name), "{section}: no row among the differences");
        }
    }
}
