//! `kvasir migrate`: the values of kthena's Helm chart become those of ours.

mod rules;
#[cfg(test)]
mod tests;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Map, Value};

use rules::{Fate, RULES};

/// Arguments of `kvasir migrate`.
#[derive(Args, Clone, Debug)]
pub struct MigrateArgs {
    /// kthena's values, as given to `helm install` or shown by `helm get values`; `-` is the standard input
    pub values: PathBuf,
    /// The router document of the running installation, for router.config: kubectl get configmap kthena-router-config
    /// -o jsonpath='{.data.routerConfiguration}'
    #[arg(long, value_name = "FILE")]
    pub router_document: Option<PathBuf>,
    /// Leave out what is not available yet, instead of refusing
    #[arg(long)]
    pub without_unavailable: bool,
    /// Do not keep kthena's object names (Service kthena-router and the others)
    #[arg(long)]
    pub new_names: bool,
}

/// What a values file becomes.
#[derive(Debug, Default)]
struct Migration {
    /// Our values.
    values: Map<String, Value>,
    /// What was left out or changed, by its path, and why.
    notes: Vec<(String, String)>,
    /// What asks for something that is not available, by its path.
    unavailable: Vec<(String, String)>,
}

/// The subcommand: our values on the standard output, what to know on the standard error.
///
/// # Errors
/// Values that cannot be read, or that ask for what is not available.
pub fn run(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    let text = read(&args.values)?;
    let theirs: Value = serde_saphyr::from_str(&text)
        .map_err(|error| anyhow::anyhow!("{} is no YAML: {error}", args.values.display()))?;
    let mut migration = migrate(&theirs)?;
    if let Some(path) = &args.router_document {
        put(&mut migration.values, "router.config", Value::String(read(path)?));
    }
    if args.new_names {
        // A Secret that was made for another Service's name would be served to API servers that ask for ours.
        take(&mut migration.values, "router.webhook.tls.secretName");
    } else {
        put(&mut migration.values, "fullnameOverride", Value::from("kthena-router"));
    }
    let mut told = std::io::stderr().lock();
    for (path, note) in &migration.notes {
        writeln!(told, "note: {path}: {note}")?;
    }
    for (path, what) in &migration.unavailable {
        writeln!(told, "not available: {path}: {what}")?;
    }
    if !migration.unavailable.is_empty() && !args.without_unavailable {
        anyhow::bail!("the values ask for what is not available; --without-unavailable leaves it out");
    }
    let ours = serde_saphyr::to_string(&Value::Object(migration.values))?;
    std::io::stdout().lock().write_all(ours.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("the standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    }
    Ok(text)
}

/// Goes through everything that the file says. Pure.
fn migrate(theirs: &Value) -> anyhow::Result<Migration> {
    let mut migration = Migration::default();
    match theirs {
        Value::Null => {}
        Value::Object(_) => visit("", theirs, &mut migration),
        _ => anyhow::bail!("the file holds no mapping of values"),
    }
    Ok(migration)
}

/// Applies the rule of a path; a mapping without one is entered.
fn visit(path: &str, value: &Value, migration: &mut Migration) {
    if let Some((_, fate)) = RULES.iter().find(|(known, _)| *known == path) {
        return apply(path, value, fate, migration);
    }
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                visit(&path, value, migration);
            }
        }
        _ => migration.notes.push((
            path.to_owned(),
            "is no value of kthena's router chart that is known here; left out".to_owned(),
        )),
    }
}

fn apply(path: &str, value: &Value, fate: &Fate, migration: &mut Migration) {
    match fate {
        Fate::Becomes(ours) => put(&mut migration.values, ours, value.clone()),
        Fate::Note(note) => migration.notes.push((path.to_owned(), (*note).to_owned())),
        Fate::Unavailable(what) if value.as_bool() == Some(true) => {
            migration.unavailable.push((path.to_owned(), (*what).to_owned()));
        }
        // Switched off, or a setting of what is switched off.
        Fate::Unavailable(_) | Fate::Nothing => {}
    }
}

/// Takes the value at a path of keys away.
fn take(values: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        None => drop(values.remove(path)),
        Some((first, rest)) => {
            if let Some(Value::Object(inner)) = values.get_mut(first) {
                take(inner, rest);
            }
        }
    }
}

/// Sets the value at a path of keys.
fn put(values: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        values.insert(path.to_owned(), value);
        return;
    };
    let inner = values.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}
