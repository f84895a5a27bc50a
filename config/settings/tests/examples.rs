//! Every file of `config/examples` is loaded, without a warning.

use std::path::{Path, PathBuf};

use kvasir_core::{ConnectorKind, Role};
use kvasir_settings::resolved::PdFallback;
use kvasir_settings::{DiskFiles, RouterArgs, Settings, SystemFacts, resolve_from};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

fn load(args: &RouterArgs) -> Settings {
    let settings = resolve_from(args, &DiskFiles, &SystemFacts::default());
    assert_eq!(settings.as_ref().err().map(ToString::to_string), None);
    let settings = settings.unwrap_or_default();
    assert_eq!(settings.warnings, Vec::<String>::new());
    settings
}

fn document(name: &str) -> Settings {
    load(&RouterArgs {
        model: vec!["qwen=http://127.0.0.1:8000".to_owned()],
        config: Some(example(name).to_string_lossy().into_owned()),
        ..RouterArgs::default()
    })
}

fn scorers(settings: &Settings) -> Vec<(&str, f64)> {
    settings.scheduler.scorers.iter().map(|(name, weight)| (name.as_str(), *weight)).collect()
}

#[test]
fn kthenas_default_document_means_what_it_means_there() {
    let settings = document("kthena-default.yaml");
    assert_eq!(settings.scheduler.filters, ["least-request"]);
    assert_eq!(
        scorers(&settings),
        [("least-request", 1.0), ("gpu-usage", 1.0), ("least-latency", 1.0), ("prefix-cache", 1.0)]
    );
    assert_eq!(settings.scheduler.args, kvasir_settings::resolved::PluginArgs::default());
    assert_eq!(settings.scheduler.top_n, 5);
    assert!(settings.from_document);
}

#[test]
fn the_kvcache_aware_document_sets_its_window() {
    let settings = document("kvcache-aware.yaml");
    assert_eq!(scorers(&settings), [("least-request", 1.0), ("kvcache-aware", 1.0)]);
    let args = &settings.scheduler.args.kvcache_aware;
    assert_eq!((args.block_size_to_hash, args.max_blocks_to_match), (16, Some(128)));
}

#[test]
fn the_models_file_gives_two_endpoints_with_events() {
    let settings = load(&RouterArgs {
        models: Some(example("two-vllm.yaml").to_string_lossy().into_owned()),
        ..RouterArgs::default()
    });
    let model = &settings.models[0];
    assert_eq!(model.name.as_str(), "qwen");
    assert_eq!(model.endpoints.len(), 2);
    assert_eq!(model.endpoints[1].kv_events[0].endpoint, "tcp://10.0.0.2:5557");
    assert_eq!(model.endpoints[1].kv_events[0].replay.as_deref(), Some("tcp://10.0.0.2:5657"));
}

#[test]
fn the_models_file_keeps_prefill_and_decode_apart() {
    let settings = load(&RouterArgs {
        models: Some(example("prefill-decode.yaml").to_string_lossy().into_owned()),
        pd_fallback: "aggregated".to_owned(),
        ..RouterArgs::default()
    });
    let model = &settings.models[0];
    assert_eq!(model.connector, Some(ConnectorKind::Nixl));
    let parts: Vec<(Role, Option<&str>)> =
        model.endpoints.iter().map(|endpoint| (endpoint.role, endpoint.group.as_deref())).collect();
    let rack = |name| [Role::Prefill, Role::Decode, Role::Decode].map(|role| (role, Some(name)));
    assert_eq!(parts, [rack("rack-1"), rack("rack-2")].concat());
    assert_eq!(settings.limits.pd_fallback, PdFallback::Aggregated);
}

#[test]
fn no_example_is_left_out() {
    let mut names: Vec<String> = std::fs::read_dir(example(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["kthena-default.yaml", "kvcache-aware.yaml", "prefill-decode.yaml", "two-vllm.yaml"]);
}
