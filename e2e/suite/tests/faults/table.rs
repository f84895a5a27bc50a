//! The table of fault cases is true: every case of this work is in it once, and every test it names exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Cases that must have a test here.
const CASES: &[&str] = &[
    "TOK-01", "TOK-02", "TOK-04", "TOK-06", "TOK-08", "TOK-09", "TOK-10", "TOK-11", "TOK-12", "TPL-01",
    "TPL-02", "TPL-04", "TPL-05", "TPL-06", "TPL-09", "TPL-11", "SSE-01", "SSE-02", "SSE-04", "STR-01",
    "STR-02", "STR-03", "STR-04", "USE-01", "USE-02", "USE-05", "RET-01", "RET-02", "RET-03", "RET-04",
    "RET-06", "RET-08", "KVE-01", "KVE-02", "KVE-04", "KVE-06", "KVE-08", "KVE-10", "KVE-12", "KVE-14",
    "KVE-15", "KVE-16", "HSH-01", "HSH-02", "HSH-05", "HSH-07", "STL-01", "STL-03", "STL-05", "STL-06",
    "RED-01", "RED-02", "RED-04", "CFG-01", "CFG-05", "HDR-01", "HDR-03", "BODY-01", "BODY-02", "BODY-04",
    "CAN-01", "CAN-02", "MET-01", "MET-03", "MET-05", "MET-06", "SHD-01", "SHD-02", "RTE-01", "RTE-03",
    "RTE-04", "RTE-06", "PD-01", "PD-02", "PD-05", "PD-07", "RL-05",
];

/// Cases of later work.
const LATER: &[&str] = &[
    "TOK-13", "USE-03", "RED-05", "RED-06", "K8S-01", "K8S-02", "K8S-04", "K8S-06", "K8S-07", "CFG-03",
    "CFG-04", "RL-01", "RL-02", "RL-03", "AUTH-01", "AUTH-03", "AUTH-05",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows: a case's id and the tests of its last column.
fn rows(page: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, tests] = cells.as_slice() else { anyhow::bail!("a row has three cells: {line}") };
        if *id == "id" {
            continue;
        }
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        anyhow::ensure!(rows.insert((*id).to_owned(), tests).is_none(), "{id} has two rows");
    }
    Ok(rows)
}

/// Whether the file has a test with this name.
fn is_there(test: &str) -> bool {
    let Some((path, name)) = test.split_once("::") else { return false };
    let Ok(source) = std::fs::read_to_string(root().join(path)) else { return false };
    let mut marked = false;
    source.lines().map(str::trim).any(|line| {
        marked |= line.starts_with("#[test") || line.starts_with("#[tokio::test");
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        let is_it = function.is_some_and(|rest| rest.split('(').next() == Some(name));
        let found = marked && is_it;
        marked &= function.is_none();
        found
    })
}

#[test]
fn every_case_has_tests_that_exist() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(root().join("docs/fault-cases.md"))?;
    let rows = rows(&page)?;
    let mut wrong = Vec::new();
    for case in CASES {
        match rows.get(*case) {
            None => wrong.push(format!("{case} has no row")),
            Some(tests) if tests.is_empty() => wrong.push(format!("{case} names no test")),
            Some(tests) => {
                wrong.extend(
                    tests.iter().filter(|test| !is_there(test)).map(|test| format!("{case}: no {test}")),
                );
            }
        }
    }
    wrong.extend(rows.keys().filter(|id| !CASES.contains(&id.as_str())).map(|id| format!("{id} is no case")));
    for case in LATER {
        if !page.contains(&format!("**{case}**")) {
            wrong.push(format!("{case} is not in the list of later work"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_missing_test_is_noticed() {
    assert!(is_there("e2e/suite/tests/faults/table.rs::a_missing_test_is_noticed"));
    assert!(!is_there("e2e/suite/tests/faults/table.rs::a_test_that_was_never_written"));
    assert!(!is_there("e2e/suite/tests/faults/table.rs::rows"));
}
