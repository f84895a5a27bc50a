//! Real helm, and the chart that it renders.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kvasir_suite::cluster::{binary, documents};
use serde_json::Value;

/// The chart.
pub fn chart() -> PathBuf {
    repository().join("charts/kvasir")
}

/// The checkout.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The combinations of values that the chart brings, by their names.
pub fn combinations() -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(chart().join("ci"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    found.sort();
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// Runs a program of the cluster tests. What it wrote; what it complained about, where it failed.
pub fn run(program: &str, arguments: &[String], input: &str) -> Result<String, String> {
    let mut child = Command::new(binary(program).unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // It may write more than a pipe holds before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stderr), text(&output.stdout)))
    }
}

/// A release of the chart.
#[derive(Clone, Debug)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    values: Vec<String>,
}

impl Release {
    /// A release of this name, with the chart's own values.
    pub fn new(name: &str, namespace: &str) -> Self {
        Self { name: name.to_owned(), namespace: namespace.to_owned(), values: Vec::new() }
    }

    /// With a file of values.
    pub fn values(mut self, file: &Path) -> Self {
        self.values.push(format!("--values={}", file.display()));
        self
    }

    /// With a value, as in `--set`.
    pub fn set(mut self, value: impl std::fmt::Display) -> Self {
        self.values.push(format!("--set={value}"));
        self
    }

    /// `helm VERB`, with these arguments too.
    pub fn helm(&self, verb: &[&str], more: &[&str]) -> Result<String, String> {
        let mut arguments: Vec<String> = verb.iter().copied().map(str::to_owned).collect();
        if verb != ["lint", "--strict"] {
            arguments.push(self.name.clone());
        }
        arguments.push(chart().display().to_string());
        arguments.push(format!("--namespace={}", self.namespace));
        arguments.extend(self.values.iter().cloned());
        arguments.extend(more.iter().copied().map(str::to_owned));
        run("helm", &arguments, "")
    }

    /// The rendered text.
    pub fn template(&self) -> Result<String, String> {
        self.helm(&["template"], &[])
    }

    /// The rendered objects.
    pub fn objects(&self) -> Vec<Value> {
        let text = self.template().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        documents(&text).unwrap()
    }
}

/// The only object of a kind with this name.
pub fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut found =
        objects.iter().filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let first = found.next();
    assert!(found.next().is_none(), "two objects are {kind} {name}");
    first
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}
