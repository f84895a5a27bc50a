//! Which tokenizer a directory holds: the one that the engine would take.

use std::path::{Path, PathBuf};

use crate::request::MistralVersion;

/// Versions of Mistral's rules in the names of its models.
const VERSIONS: [&str; 7] = ["1", "2", "3", "7", "11", "13", "15"];

/// Files of Mistral's own tokenizers, by the names that engines look for.
pub const MISTRAL_FILES: [&str; 13] = [
    "tekken.json",
    "tokenizer.model.v1",
    "tokenizer.model.v2",
    "tokenizer.model.v3",
    "tokenizer.model.v3m1",
    "tokenizer.model.v7",
    "tokenizer.model.v7m1",
    "tokenizer.model.v11",
    "tokenizer.model.v11m1",
    "tokenizer.model.v13",
    "tokenizer.model.v13m1",
    "tokenizer.model.v15",
    "tokenizer.model.v15m1",
];

/// A tokenizer's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Hugging Face's `tokenizer.json`.
    Json(PathBuf),
    /// Mistral's `tekken.json`.
    Tekken(PathBuf),
    /// Mistral's SentencePiece model with the version of its rules in its name; none where it is not known here.
    Mistral(PathBuf, Option<MistralVersion>),
    /// A `tokenizer.model` without a version.
    Model(PathBuf),
    /// A rank file of tiktoken.
    Ranks(PathBuf),
}

/// Looks into a directory. Mistral's own files are taken where there is no `tokenizer.json`, or where Mistral's weights
/// lie beside them; never with a template, which their rules do not have.
pub fn find(directory: &Path, with_template: bool) -> Option<Found> {
    let names = names(directory);
    let has = |name: &str| names.iter().any(|other| other == name);
    let own_weights = || {
        names.iter().any(|name| name.starts_with("consolidated") && name.ends_with(".safetensors"))
            && names.iter().any(|name| name == "tekken.json" || name.starts_with("tokenizer.model.v"))
    };
    if !with_template
        && (!has("tokenizer.json") || own_weights())
        && let Some(found) = mistral(directory, &names)
    {
        return Some(found);
    }
    let ranks = || names.iter().find(|name| *name == "tiktoken.model" || name.ends_with(".tiktoken"));
    if has("tokenizer.json") {
        Some(Found::Json(directory.join("tokenizer.json")))
    } else if has("tokenizer.model") {
        Some(Found::Model(directory.join("tokenizer.model")))
    } else {
        ranks().map(|name| Found::Ranks(directory.join(name)))
    }
}

/// Names of the regular files, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Mistral's own tokenizer: `tekken.json` before models, and of several models the last by name.
fn mistral(directory: &Path, names: &[String]) -> Option<Found> {
    if names.iter().any(|name| name == "tekken.json") {
        return Some(Found::Tekken(directory.join("tekken.json")));
    }
    let models = || names.iter().filter_map(|name| Some((name, version(name)?)));
    // Without a version anywhere, the directory is one of transformers.
    models().find(|(name, _)| !name.ends_with(".model"))?;
    let (name, version) = models().next_back()?;
    Some(Found::Mistral(directory.join(name), MistralVersion::of(version)))
}

/// The version in the name of a model: `v1` where there is none, as the first ones had none.
fn version(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('.')?;
    match rest.strip_prefix("model")? {
        "" => Some("v1"),
        rest => {
            let version = rest.strip_prefix('.')?;
            // The version of its pictures is behind that of its texts.
            let version = version.strip_suffix("m1").unwrap_or(version);
            let number = version.strip_prefix('v')?;
            VERSIONS.contains(&number).then_some(version)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str], with_template: bool) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(directory.path().join(file), "").unwrap();
        }
        let found = find(directory.path(), with_template)?;
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        Some(match found {
            Found::Json(path) => format!("json {}", name(path)),
            Found::Tekken(path) => format!("tekken {}", name(path)),
            Found::Mistral(path, version) => format!("mistral {} {version:?}", name(path)),
            Found::Model(path) => format!("model {}", name(path)),
            Found::Ranks(path) => format!("ranks {}", name(path)),
        })
    }

    #[test]
    fn every_name_of_mistral_s_is_taken() {
        for file in MISTRAL_FILES {
            let taken = found(&[file], false).unwrap_or_default();
            assert!(taken.starts_with("tekken ") || taken.starts_with("mistral "), "{file}: {taken}");
        }
        for number in VERSIONS {
            assert!(MISTRAL_FILES.contains(&&*format!("tokenizer.model.v{number}")), "{number}");
        }
    }

    #[test]
    fn the_engine_s_choice_is_ours() {
        let weights = "consolidated-00001-of-00001.safetensors";
        for (files, expected) in [
            (&["tokenizer.json", "tekken.json", "tokenizer.model.v3"][..], "json tokenizer.json"),
            (&["tokenizer.json", "tekken.json", weights], "tekken tekken.json"),
            (&["tokenizer.json", "tokenizer.model.v3", weights], "mistral tokenizer.model.v3 Some(V3)"),
            (&["tokenizer.json", "tokenizer.model", weights], "json tokenizer.json"),
            (&["tokenizer.json", "other.model.v3", weights], "json tokenizer.json"),
            (&["tekken.json", "tokenizer.model.v3"], "tekken tekken.json"),
            (&["other.model.v1"], "mistral other.model.v1 Some(V1)"),
            (&["tokenizer.model.v2"], "mistral tokenizer.model.v2 Some(V2)"),
            (&["tokenizer.model.v7m1"], "mistral tokenizer.model.v7m1 Some(V7)"),
            (&["tokenizer.model.v15"], "mistral tokenizer.model.v15 None"),
            (&["tokenizer.model", "tokenizer.model.v3"], "mistral tokenizer.model.v3 Some(V3)"),
            (&["tokenizer.model.v2", "tokenizer.model.v3"], "mistral tokenizer.model.v3 Some(V3)"),
            (&["tokenizer.model.v3", "z.model"], "mistral z.model Some(V1)"),
            (&["tokenizer.model", "qwen.tiktoken"], "model tokenizer.model"),
            (&["qwen.tiktoken", "tokenizer_config.json"], "ranks qwen.tiktoken"),
            (&["tiktoken.model"], "ranks tiktoken.model"),
            (&["consolidated.tokenizer.model.v3", "tokenizer.model"], "model tokenizer.model"),
        ] {
            assert_eq!(found(files, false).as_deref(), Some(expected), "{files:?}");
        }
        assert_eq!(found(&["tokenizer.model.v4", "tokenizer.model.v3x", "config.json"], false), None);
        assert_eq!(found(&["tekken.json"], true), None, "a template has no use there");
        let both = ["tokenizer.json", "tekken.json", weights];
        assert_eq!(found(&both, true).as_deref(), Some("json tokenizer.json"));
    }
}
