use clap::{Args as _, Command, FromArgMatches as _};
use kvasir_settings::facts::KubernetesEnvironment;

use super::*;

/// Reads flags with the defaults of the command line.
fn args(flags: &[&str]) -> TokenizerArgs {
    let command = TokenizerArgs::augment_args(Command::new("tokenizer"));
    let line = std::iter::once("tokenizer").chain(flags.iter().copied());
    TokenizerArgs::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
}

fn within_nothing(args: &TokenizerArgs) -> Result<ServiceConfig, Problems> {
    ServiceConfig::within(args, &DiskFiles, &KthenaEnvironment::default())
}

#[test]
fn defaults_are_those_of_the_contract() {
    let config = within_nothing(&args(&["--models", r#"{"m":"/models/m"}"#])).unwrap();
    assert_eq!(config.listen, ("0.0.0.0".to_owned(), 8100));
    assert_eq!(
        (config.base_port, config.max_tokenizers, config.max_restarts, config.engine),
        (8200, 8, 3, EngineChoice::Auto)
    );
    assert_eq!(config.render.command, ["vllm", "launch", "render"]);
    assert_eq!(config.proxy_timeout, Duration::from_secs(5));
    assert_eq!(config.timings, Timings::default());
    assert_eq!((config.hub.endpoint.as_str(), config.hub.offline), (HUB, false));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn every_problem_is_reported() {
    let problems = within_nothing(&args(&[
        "--models",
        "{",
        "--models-file",
        "/nowhere/models.yaml",
        "--port",
        "eight",
        "--engine",
        "fast",
        "--render-command",
        " ",
        "--max-tokenizers",
        "0",
        "--hf-endpoint",
        "hub",
        "--hf-hub-offline=perhaps",
    ]))
    .unwrap_err();
    assert_eq!(problems.0.len(), 8, "{problems}");
    let said = problems.to_string();
    for flag in ["--models:", "--models-file", "--port", "--engine", "--render-command", "--hf-endpoint"] {
        assert!(said.contains(flag), "{flag} in {said}");
    }
}

#[test]
fn empty_variables_count_as_not_set() {
    let config = within_nothing(&args(&["--watch-namespace", "", "--hf-token", "", "--models", ""])).unwrap();
    assert_eq!(config.hub.token, None);
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
}

/// What is watched, and the warnings, in a pod or with a kubeconfig.
fn watched(flags: &[&str], in_pod: bool, kubeconfig: Option<&str>) -> Result<ServiceConfig, Problems> {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::write(home.path().join(".kube/config"), "").unwrap();
    let home = home.path().to_str().unwrap();
    let kubernetes = KubernetesEnvironment {
        service_host: in_pod.then(|| "10.0.0.1".to_owned()),
        kubeconfig: kubeconfig.map(|file| file.replace('~', home)),
        home: Some(home.to_owned()),
        ..KubernetesEnvironment::default()
    };
    let environment = KthenaEnvironment { kubernetes, ..KthenaEnvironment::default() };
    let flags = [flags, &["--models", r#"{"m":"x"}"#]].concat();
    ServiceConfig::within(&args(&flags), &DiskFiles, &environment)
}

#[test]
fn a_cluster_is_watched_where_there_is_one_or_it_is_asked_for() {
    const FILE: Option<&str> = Some("~/.kube/config");
    for (mode, in_pod, kubeconfig, expected) in [
        ("auto", true, None, Some(false)),
        ("auto", false, FILE, Some(false)),
        // One that merely lies about is somebody's way to some cluster.
        ("auto", false, None, None),
        ("", true, None, Some(false)),
        ("on", false, None, Some(true)),
        ("on", true, FILE, Some(true)),
        ("off", true, FILE, None),
    ] {
        let config =
            watched(&["--kubernetes", mode, "--watch-namespace", "team"], in_pod, kubeconfig).unwrap();
        let cluster = config.cluster;
        assert_eq!(
            cluster.as_ref().map(|cluster| cluster.asked_for),
            expected,
            "{mode} {in_pod} {kubeconfig:?}"
        );
        let namespace = cluster.and_then(|cluster| cluster.settings.watch_namespace);
        match expected {
            Some(_) => assert_eq!((namespace.as_deref(), config.warnings.len()), (Some("team"), 0)),
            None => assert!(config.warnings[0].contains("WATCH_NAMESPACE"), "{:?}", config.warnings),
        }
    }
    let config = watched(&["--watch-namespace", "", "--resync-period-seconds", "30"], true, None).unwrap();
    assert_eq!(config.cluster.unwrap().settings.watch_namespace, None);
    assert!(config.warnings[0].contains("RESYNC_PERIOD_SECONDS"), "{:?}", config.warnings);
}

#[test]
fn a_cluster_that_cannot_be_found_is_a_problem() {
    for (flags, in_pod, kubeconfig, part) in [
        (&["--kubernetes", "maybe"][..], true, None, "--kubernetes \"maybe\": auto, on or off"),
        (&["--watch-namespace", "Team"], true, None, "\"Team\" is no namespace"),
        (&[], false, Some("/nowhere"), "there is no cluster to reach"),
        (&["--kubernetes", "on"], false, Some("/nowhere"), "or write --kubernetes off"),
    ] {
        let problems = watched(flags, in_pod, kubeconfig).unwrap_err();
        assert_eq!(problems.0.len(), 1, "{problems}");
        assert!(problems.0[0].contains(part), "{problems}");
    }
}

#[test]
fn a_native_model_does_not_take_arguments_that_change_ids() {
    let models = r#"{"n":{"source":"/n","engine":"native"},"r":{"source":"/r","engine":"render"}}"#;
    let with = |extra: &str| within_nothing(&args(&["--models", models, "--render-extra-args", extra]));
    assert!(with("--trust-remote-code").is_ok());
    let problems = with("--trust-remote-code --chat-template /t.jinja").unwrap_err();
    assert_eq!(problems.0.len(), 1, "{problems}");
    assert!(problems.0[0].contains("\"n\"") && problems.0[0].contains("--chat-template"), "{problems}");
}

#[test]
fn the_file_is_laid_over_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.yaml");
    std::fs::write(&path, "b: /file/b\nc: /file/c\n").unwrap();
    let config = within_nothing(&args(&[
        "--models",
        r#"{"a":"/flag/a","b":"/flag/b"}"#,
        "--models-file",
        path.to_str().unwrap(),
    ]))
    .unwrap();
    let sources: Vec<String> = config.read_models().unwrap().into_values().map(|spec| spec.source).collect();
    assert_eq!(sources, ["/flag/a", "/file/b", "/file/c"]);
    std::fs::remove_file(&path).unwrap();
    assert!(config.read_models().unwrap_err().contains("models.yaml"));
}

#[test]
fn the_token_is_never_shown() {
    let args = args(&["--hf-token", "hf_secret"]);
    let shown = format!("{args:?} {:?}", within_nothing(&args).unwrap());
    assert!(!shown.contains("hf_secret"), "{shown}");
}
