//! Whether a cluster is watched, and what in it.

use std::path::PathBuf;

use clap::FromArgMatches as _;

use super::*;
use crate::facts::KubernetesEnvironment;
use crate::flags::KubernetesArgs;
use crate::kubernetes::{ConfigMapRef, KubernetesSettings, WebhookSettings};

fn set(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// What a pod is told.
fn in_pod() -> SystemFacts {
    with_kubernetes(KubernetesEnvironment {
        service_host: set("10.96.0.1"),
        home: set("/etc/nobody"),
        pod_namespace: set("serving"),
        ..KubernetesEnvironment::default()
    })
}

/// Somebody's machine, with a cluster in `~/.kube/config`.
fn at_home() -> SystemFacts {
    with_kubernetes(KubernetesEnvironment { home: set("/home/me"), ..KubernetesEnvironment::default() })
}

fn with_kubernetes(kubernetes: KubernetesEnvironment) -> SystemFacts {
    SystemFacts {
        environment: KthenaEnvironment { kubernetes, ..KthenaEnvironment::default() },
        ..SystemFacts::default()
    }
}

/// A long flag as Go takes it too.
fn with_one_dash(word: &'static str) -> &'static str {
    word.strip_prefix('-').filter(|rest| rest.starts_with('-')).unwrap_or(word)
}

fn typed(words: &[&str]) -> RouterArgs {
    let command = crate::flags::command().mut_args(|arg| arg.env(None::<&str>));
    let words = crate::go_flags(words.iter().map(std::ffi::OsString::from).collect());
    let matches = command.try_get_matches_from(std::iter::once("router".into()).chain(words));
    let matches = matches.unwrap_or_else(|error| panic!("{error}"));
    RouterArgs::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"))
}

fn read(words: &[&str], facts: &SystemFacts) -> Result<Settings, String> {
    let files = MemoryFiles::default();
    resolve_from(&typed(words), &files, facts).map_err(|problems| problems.to_string())
}

fn cluster(words: &[&str], facts: &SystemFacts) -> KubernetesSettings {
    let read = read(words, facts).unwrap_or_else(|problems| panic!("{words:?}: {problems}"));
    read.kubernetes.unwrap_or_else(|| panic!("{words:?}: no cluster is watched"))
}

#[test]
fn the_place_and_the_models_decide_whether_a_cluster_is_watched() {
    const MODEL: &str = "--model=a=http://a:1";
    let nowhere = SystemFacts::default();
    for (words, facts, expected) in [
        (&[][..], &in_pod(), true),
        (&["--kubernetes=auto"], &in_pod(), true),
        (&["--kubernetes="], &in_pod(), true),
        (&[MODEL], &in_pod(), false),
        (&["--models=", MODEL], &in_pod(), false),
        (&["--kubernetes=on", MODEL], &in_pod(), true),
        (&["--kubernetes=off", MODEL], &in_pod(), false),
        (&[MODEL, "--enable-webhook=false"], &nowhere, false),
        (&["--kubernetes=on"], &at_home(), true),
        (&["--enable-gateway-api"], &at_home(), true),
        (&["--enable-webhook=true"], &at_home(), true),
        (&["--kubernetes=on", MODEL], &at_home(), true),
        (&[MODEL], &at_home(), false),
    ] {
        let read = read(words, facts).unwrap_or_else(|problems| panic!("{words:?}: {problems}"));
        assert_eq!(read.kubernetes.is_some(), expected, "{words:?}");
    }
    for (words, facts, part) in [
        (&[][..], &at_home(), "no cluster to learn of models from; give --model NAME="),
        (&["--enable-gateway-api=false"], &at_home(), "or write --kubernetes on"),
        (&["--kubernetes=off"], &in_pod(), "there is no model to route to"),
        (&["--kubernetes=on"], &nowhere, "KUBECONFIG: there is no cluster to reach"),
        (
            &["--kubernetes=yes", MODEL],
            &nowhere,
            "--kubernetes: there is no mode \"yes\"; write auto, on or off",
        ),
    ] {
        let problems = read(words, facts).err().unwrap_or_default();
        assert!(problems.contains(part), "{words:?}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
}

#[test]
fn kthenas_deployment_starts_unchanged() {
    let words = [
        "--port=8080",
        "--metrics-port=9090",
        "--expose-metrics-on-router-port=false",
        "--debug-port=15000",
        "--enable-webhook=true",
        "--enable-gateway-api=true",
        "--enable-gateway-api-inference-extension=true",
        "--webhook-port=8443",
        "--webhook-tls-cert-file=/etc/tls/tls.crt",
        "--webhook-tls-private-key-file=/etc/tls/tls.key",
        "--webhook-service-name=kthena-router-webhook",
        "--cert-secret-name=kthena-router-webhook-certs",
        "--kube-api-qps=50.5",
        "--kube-api-burst=100",
        "-v=2",
    ];
    let mut facts = in_pod();
    facts.environment.access_log_enabled = set("true");
    facts.environment.access_log_format = set("text");
    facts.environment.access_log_output = set("stdout");
    facts.environment.drain_timeout = set("5m");
    let document = include_str!("../../../../examples/kthena-default.yaml").to_owned();
    let files = MemoryFiles(HashMap::from([("/etc/config/routerConfiguration.yaml", document)]));
    for words in [words.to_vec(), words.map(with_one_dash).to_vec()] {
        let read =
            resolve_from(&typed(&words), &files, &facts).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(read.warnings, Vec::<String>::new());
        assert!(read.from_document && read.models.is_empty() && !read.metrics_on_router_port);
        assert_eq!(read.scheduler.filters, ["least-request"]);
        let expected = KubernetesSettings {
            namespace: "serving".to_owned(),
            gateway_api: true,
            inference_extension: true,
            webhook: Some(WebhookSettings::default()),
            api_qps: 50.5,
            api_burst: 100,
            ..KubernetesSettings::default()
        };
        assert_eq!(read.kubernetes, Some(expected));
    }
}

#[test]
fn the_document_is_the_one_that_is_mounted_where_there_is_one() {
    const PLAIN: &str = "scheduler: {plugins: {Score: {enabled: [{name: random, weight: 1}]}}}";
    let mounted = || MemoryFiles(HashMap::from([("/etc/config/routerConfiguration.yaml", PLAIN.to_owned())]));
    let warned = |words: &[&str], files: &MemoryFiles| {
        let read =
            resolve_from(&typed(words), files, &in_pod()).unwrap_or_else(|problems| panic!("{problems}"));
        (read.from_document, read.warnings.join("\n"))
    };
    assert_eq!(warned(&[], &mounted()), (true, String::new()));
    assert_eq!(warned(&["--model=a=http://a:1"], &mounted()), (false, String::new()), "standalone");
    let (from_document, warnings) = warned(&["--routing=random"], &mounted());
    assert!(
        !from_document && warnings.contains("is not read; leave the flag out to use that file"),
        "{warnings}"
    );
    let (from_document, warnings) = warned(&[], &MemoryFiles::default());
    assert!(!from_document && warnings.contains("endpoints are chosen by --routing kv-aware"), "{warnings}");
    for words in [&["--routing=random"][..], &["--config-map=a"]] {
        assert_eq!(warned(words, &MemoryFiles::default()), (false, String::new()), "{words:?}");
    }
}

#[test]
fn every_flag_of_the_cluster_has_its_meaning() {
    let read = cluster(
        &[
            "--watch-namespace=team-a",
            "--enable-gateway-api",
            "--gateway-class=other",
            "--lease-name=release-b",
            "--gateway-address=203.0.113.7",
            "--gateway-address=fd00::7",
            "--gateway-address=llm.example.com",
            "--gateway-address=203.0.113.7",
            "--config-map=conf",
            "--webhook-port=9443",
            "--webhook-tls-cert-file=/a.crt",
            "--webhook-tls-private-key-file=/a.key",
            "--cert-secret-name=certs",
            "--webhook-service-name=hook",
            "--webhook-configuration-name=hooks.example.com",
            "--webhook-manage-certificate=false",
        ],
        &in_pod(),
    );
    let config_map = ConfigMapRef {
        namespace: "serving".to_owned(),
        name: "conf".to_owned(),
        key: "routerConfiguration".to_owned(),
    };
    let webhook = WebhookSettings {
        port: 9443,
        cert_file: PathBuf::from("/a.crt"),
        key_file: PathBuf::from("/a.key"),
        secret_name: "certs".to_owned(),
        service_name: "hook".to_owned(),
        configuration_name: "hooks.example.com".to_owned(),
        manage_certificate: false,
    };
    let expected = KubernetesSettings {
        namespace: "serving".to_owned(),
        watch_namespace: set("team-a"),
        gateway_api: true,
        gateway_class: "other".to_owned(),
        lease_name: "release-b".to_owned(),
        gateway_addresses: ["203.0.113.7", "fd00::7", "llm.example.com"].map(str::to_owned).to_vec(),
        webhook: Some(webhook),
        config_map: Some(config_map),
        ..KubernetesSettings::default()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_webhook_is_there_in_a_pod_unless_it_is_refused_and_elsewhere_when_asked_for() {
    for (words, facts, expected) in [
        (&[][..], &in_pod(), true),
        (&["--enable-webhook=false"], &in_pod(), false),
        (&["--kubernetes=on"], &at_home(), false),
        (&["--kubernetes=on", "--enable-webhook"], &at_home(), true),
    ] {
        assert_eq!(cluster(words, facts).webhook.is_some(), expected, "{words:?}");
    }
}

#[test]
fn what_needs_a_cluster_is_refused_without_one_and_what_tunes_it_warns() {
    let problems = read(
        &[
            "--model=a=http://a:1",
            "--enable-webhook",
            "--enable-gateway-api=1",
            "--enable-gateway-api-inference-extension=perhaps",
            "--config-map=a",
        ],
        &in_pod(),
    );
    let problems = problems.err().unwrap_or_default();
    assert_eq!(problems.lines().count(), 4, "{problems}");
    for part in [
        "--enable-webhook: needs Kubernetes objects, which are not watched: models are named by --model or --models; \
         write --kubernetes on, or --enable-webhook=false",
        "--enable-gateway-api: needs Kubernetes objects",
        "--enable-gateway-api-inference-extension: \"perhaps\" is no boolean",
        "--config-map: needs Kubernetes objects",
    ] {
        assert!(problems.contains(part), "{part:?} is missing in\n{problems}");
    }
    let tuned = [
        "--webhook-port=1",
        "--webhook-tls-cert-file=a",
        "--webhook-tls-private-key-file=a",
        "--cert-secret-name=a",
        "--webhook-service-name=a",
        "--webhook-configuration-name=a",
        "--webhook-manage-certificate=false",
        "--watch-namespace=a",
        "--gateway-class=a",
        "--gateway-address=a",
        "--lease-name=a",
        "--kube-api-qps=1",
        "--kube-api-burst=1",
    ];
    let words: Vec<&str> = std::iter::once("--model=a=http://a:1").chain(tuned).collect();
    let warnings = read(&words, &SystemFacts::default()).map(|read| read.warnings).unwrap_or_default();
    for (flag, warning) in tuned.iter().zip(&warnings) {
        let flag = flag.split_once('=').map_or(*flag, |(flag, _)| flag);
        assert!(
            warning.starts_with(&format!("{flag}: has no effect: Kubernetes objects are not watched")),
            "{warning}"
        );
    }
    assert_eq!(warnings.len(), tuned.len(), "{warnings:?}");
    let off = ["--enable-webhook=false", "--webhook-port=1", "--gateway-class=a", "--gateway-address=a"];
    let warnings = read(&off, &in_pod()).map(|read| read.warnings.join("\n")).unwrap_or_default();
    for part in [
        "--webhook-port: has no effect: there is no webhook (--enable-webhook=false)",
        "--gateway-class: has no effect without --enable-gateway-api",
        "--gateway-address: has no effect without --enable-gateway-api",
    ] {
        assert!(warnings.contains(part), "{part:?} is missing in\n{warnings}");
    }
}

#[test]
fn every_bad_flag_of_the_cluster_is_named_at_once() {
    let problems = read(
        &[
            "--enable-gateway-api-inference-extension",
            "--watch-namespace=Team",
            "--gateway-class=a_b",
            "--lease-name=A",
            "--gateway-address=a b",
            "--config-map=a:b:c",
            "--routing=random",
            "--webhook-port=65536",
            "--cert-secret-name=-",
            "--webhook-service-name=a.b",
            "--webhook-configuration-name=A",
            "--webhook-manage-certificate=maybe",
            "--kube-api-qps=fast",
            "--kube-api-burst=1.5",
        ],
        &with_kubernetes(KubernetesEnvironment {
            pod_namespace: set("a/b"),
            service_host: set("x"),
            ..KubernetesEnvironment::default()
        }),
    );
    let problems = problems.err().unwrap_or_default();
    for part in [
        "--enable-gateway-api-inference-extension: needs --enable-gateway-api; add",
        "--watch-namespace: \"Team\" is no namespace",
        "--gateway-class: \"a_b\" is no name",
        "--lease-name: \"A\" is no name",
        "--gateway-address: \"a b\" is no address",
        "--config-map: \"a/b\" is no namespace",
        "--routing: cannot be combined with --config-map",
        "--webhook-port: \"65536\" is no port",
        "--cert-secret-name: \"-\" is no name",
        "--webhook-service-name: \"a.b\" is no name",
        "--webhook-configuration-name: \"A\" is no name",
        "--webhook-manage-certificate: \"maybe\" is no boolean",
        "--kube-api-qps: \"fast\" is no rate",
        "--kube-api-burst: \"1.5\" is no count",
        "POD_NAMESPACE: \"a/b\" is no namespace",
    ] {
        assert!(problems.contains(part), "{part:?} is missing in\n{problems}");
    }
    assert_eq!(problems.lines().count(), 15, "{problems}");
    let clash = read(&["--webhook-port=9090"], &in_pod()).err().unwrap_or_default();
    assert!(clash.starts_with("--webhook-port: uses the same address as --metrics-listen"), "{clash}");
    let negative = ["--kube-api-qps=-1", "--kube-api-burst=-1"];
    let warnings = read(&negative, &in_pod()).map(|read| read.warnings.len());
    assert_eq!(warnings, Ok(3), "kthena takes them as unset; the third is about the document");
    let most: Vec<String> = (0..17).map(|last| format!("--gateway-address=10.0.0.{last}")).collect();
    let words: Vec<&str> =
        std::iter::once("--enable-gateway-api").chain(most.iter().map(String::as_str)).collect();
    let many = read(&words, &in_pod()).err().unwrap_or_default();
    assert!(
        many.contains("--gateway-address: is given 17 times; a Gateway's status shows 16 at most"),
        "{many}"
    );
}

#[test]
fn models_of_the_cluster_find_their_tokens_by_name() {
    let words = [
        "--kubernetes=on",
        "--model=a=http://a:1",
        "--tokenizer=a=/models/a",
        "--tokenizer=Qwen/Q=/models/q",
    ];
    let read = read(&words, &in_pod()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(read.tokens_for(&"Qwen/Q".into()).directory.as_deref(), Some(Path::new("/models/q")));
    assert_eq!(read.tokens_for(&"Qwen/Q".into()).order, [TokenSource::Local, TokenSource::Engine]);
    assert_eq!(read.tokens_for(&"a".into()), read.tokens_of(&read.models[0]));
    assert_eq!(read.tokens_for(&"b".into()).order, [TokenSource::Engine]);
    let document = "scheduler: {pluginConfig: [{name: kvcache-aware, args: {vllmTokenizerPort: 8200, tokenizerService: \
                    {enabled: true, endpoint: 'http://t:8100'}, tokenization: {deadline: 20ms, order: [local, service], \
                    local: {b: /models/b}}}}], plugins: {Score: {enabled: [{name: kvcache-aware, weight: 1}]}}}";
    let read = read.reload_document_from(document, &MemoryFiles::default()).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new(), "b may come");
    let tokens = read.tokens_for(&"b".into());
    assert_eq!(tokens.directory.as_deref(), Some(Path::new("/models/b")));
    assert_eq!(tokens.order, [TokenSource::Local, TokenSource::Service]);
    assert_eq!((tokens.service_url.as_deref(), tokens.vllm_port), (Some("http://t:8100"), Some(8200)));
    assert_eq!((tokens.deadline, tokens.sglang_port), (Some(Duration::from_millis(20)), None));
    assert_eq!(read.tokens_for(&"c".into()).order, [TokenSource::Service]);
}

#[test]
fn a_variable_set_to_nothing_says_nothing_about_the_cluster() {
    let empty = || Some(String::new());
    let args = RouterArgs {
        kubernetes: KubernetesArgs {
            kubernetes: String::new(),
            watch_namespace: empty(),
            config_map: empty(),
            gateway_class: empty(),
            lease_name: empty(),
            gateway_address: vec![String::new()],
            webhook_configuration_name: empty(),
            webhook_manage_certificate: empty(),
        },
        kthena: KthenaFlags { enable_webhook: empty(), kube_api_qps: empty(), ..KthenaFlags::default() },
        routing: set("random"),
        ..RouterArgs::default()
    };
    let read = resolve_from(&args, &MemoryFiles::default(), &in_pod()).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new());
    let webhook = Some(WebhookSettings::default());
    let expected =
        KubernetesSettings { namespace: "serving".to_owned(), webhook, ..KubernetesSettings::default() };
    assert_eq!(read.kubernetes, Some(expected));
}
