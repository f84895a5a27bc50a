//! The whole way from arguments to settings.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use kvasir_core::TokenSource;

use super::resolve_from;
use crate::facts::{Files, KthenaEnvironment, SystemFacts};
use crate::flags::{KthenaFlags, RedisArgs, RouterArgs};
use crate::problems::Problems;
use crate::redis::Secret;
use crate::resolved::{Limits, Settings};

mod kubernetes;
mod logs;
mod reload;
mod sharing;

#[derive(Default)]
struct MemoryFiles(HashMap<&'static str, String>);

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(&*path.to_string_lossy()).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.starts_with("/models")
    }

    fn is_file(&self, path: &Path) -> bool {
        !path.starts_with("/etc") || self.0.contains_key(&*path.to_string_lossy())
    }
}

fn one_model() -> RouterArgs {
    RouterArgs { model: vec!["a=http://a:8000".to_owned()], ..RouterArgs::default() }
}

fn settings(args: &RouterArgs) -> Settings {
    resolve_from(args, &MemoryFiles::default(), &SystemFacts::default())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(args: &RouterArgs, facts: &SystemFacts) -> String {
    let files = MemoryFiles::default();
    resolve_from(args, &files, facts).err().unwrap_or_else(|| Problems(Vec::new())).to_string()
}

fn with_document(document: &str) -> Result<Settings, Problems> {
    let files = MemoryFiles(HashMap::from([("r.yaml", document.to_owned())]));
    let args = RouterArgs { config: Some("r.yaml".to_owned()), ..one_model() };
    resolve_from(&args, &files, &SystemFacts::default())
}

#[test]
fn the_defaults_of_the_flags_are_the_defaults_of_the_types() {
    let settings = settings(&one_model());
    let known = Settings::default();
    assert_eq!(
        (settings.listen, settings.metrics_listen, settings.admin_listen),
        (known.listen, known.metrics_listen, known.admin_listen)
    );
    assert_eq!(settings.limits, known.limits);
    assert_eq!(settings.headers, known.headers);
    assert_eq!(settings.admission, known.admission);
    assert_eq!(settings.scheduler, known.scheduler);
    assert_eq!(settings.access_log, known.access_log);
    assert_eq!(
        (settings.scrape_interval, settings.drain_timeout, settings.drain_settle),
        (known.scrape_interval, known.drain_timeout, known.drain_settle)
    );
    assert_eq!((settings.threads, settings.decision_ring), (known.threads, known.decision_ring));
    assert_eq!((settings.redis, settings.coordination), (known.redis, known.coordination));
    assert_eq!(
        (settings.shared_load, settings.mirror_grace, settings.replica_name),
        (known.shared_load, known.mirror_grace, known.replica_name)
    );
    assert_eq!((settings.log_level, settings.from_document), (known.log_level, false));
    assert_eq!((settings.kubernetes, settings.tokenizers), (known.kubernetes, known.tokenizers));
    assert_eq!(settings.metrics_on_router_port, known.metrics_on_router_port);
    assert_eq!(settings.warnings, Vec::<String>::new());
}

#[test]
fn listeners_take_go_addresses_and_kthenas_ports() {
    let args = RouterArgs {
        listen: ":80".to_owned(),
        metrics_listen: "[::1]:9".to_owned(),
        admin_listen: "localhost:7".to_owned(),
        kthena: KthenaFlags {
            port: Some("8081".to_owned()),
            debug_port: Some("15001".to_owned()),
            ..KthenaFlags::default()
        },
        ..one_model()
    };
    let settings = settings(&args);
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert_eq!(settings.listen, address("[::]:8081"), "every interface, of IPv4 and IPv6");
    assert_eq!(settings.metrics_listen, address("[::1]:9"));
    assert_eq!(settings.admin_listen, address("127.0.0.1:15001"));
}

/// A cluster may have IPv6 alone.
#[test]
fn the_doors_are_on_every_interface_and_the_admin_is_on_loopback() {
    let settings = settings(&one_model());
    for (listener, expected) in [
        (settings.listen, "[::]:8080"),
        (settings.metrics_listen, "[::]:9090"),
        (settings.admin_listen, "127.0.0.1:15000"),
    ] {
        assert_eq!(listener.to_string(), expected);
    }
}

#[test]
fn a_quarter_of_the_memory_is_for_bodies() {
    for (memory, flag, expected) in [
        (Some(1 << 30), None, 256 << 20),
        (Some(1 << 20), None, 32 << 20),
        (None, None, Limits::default().max_buffered_bytes),
        (Some(1 << 30), Some("40MiB"), 40 << 20),
    ] {
        let args = RouterArgs { max_buffered_bytes: flag.map(str::to_owned), ..one_model() };
        let facts = SystemFacts { memory_limit: memory, ..SystemFacts::default() };
        let settings = resolve_from(&args, &MemoryFiles::default(), &facts).unwrap();
        assert_eq!(settings.limits.max_buffered_bytes, expected, "{memory:?} {flag:?}");
    }
}

#[test]
fn every_bad_flag_is_named_at_once() {
    let bad = |text: &str| text.to_owned();
    let args = RouterArgs {
        listen: bad("everywhere"),
        metrics_listen: bad("127.0.0.1:15000"),
        max_body_bytes: bad("0"),
        max_buffered_bytes: Some(bad("lots")),
        connect_timeout: bad("90"),
        first_byte_timeout: bad("0"),
        max_attempts: bad("0"),
        retry_budget: bad("NaN"),
        pool_size: bad("-1"),
        threads: bad("many"),
        decision_ring: bad("1000001"),
        scrape_interval: Some(bad("0s")),
        drain_timeout: Some(bad("1d")),
        endpoint_header: Some(bad("maybe")),
        access_log: Some(bad("maybe")),
        access_log_format: Some(bad("xml")),
        routing: Some(bad("kv-awar")),
        models: Some(bad("absent.yaml")),
        ..one_model()
    };
    let all = problems(&args, &SystemFacts::default());
    for part in [
        "--listen: \"everywhere\" is no address",
        "--admin-listen: uses the same address as --metrics-listen",
        "--max-body-bytes: is 0",
        "--max-buffered-bytes: \"lots\" is no size",
        "--connect-timeout: \"90\" has no unit; write 90s",
        "--first-byte-timeout: is 0",
        "--max-attempts: \"0\" does not fit; write a whole number from 1 to 100",
        "--retry-budget: \"NaN\" is no share",
        "--pool-size: \"-1\" does not fit",
        "--threads: \"many\" does not fit",
        "--decision-ring: \"1000001\" does not fit",
        "--scrape-interval: is 0",
        "--drain-timeout: \"1d\" has the unknown unit",
        "--endpoint-header: \"maybe\" is no boolean",
        "--access-log: \"maybe\" is no boolean",
        "--access-log-format: there is no format \"xml\"",
        "--routing: there is no profile \"kv-awar\"; did you mean \"kv-aware\"?",
        "--models: cannot read \"absent.yaml\"",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
    assert_eq!(all.lines().count(), 18, "one line each:\n{all}");
}

#[test]
fn a_variable_set_to_nothing_says_nothing() {
    let empty = || Some(String::new());
    let args = RouterArgs {
        model: vec!["a=http://a:8000".to_owned(), String::new()],
        tokenizer: vec![String::new()],
        kv_events: vec![" ".to_owned()],
        models: empty(),
        config: empty(),
        routing: empty(),
        max_buffered_bytes: empty(),
        scrape_interval: empty(),
        drain_timeout: empty(),
        endpoint_header: empty(),
        access_log: empty(),
        access_log_format: empty(),
        access_log_output: empty(),
        redis: RedisArgs {
            redis: Some(Secret::new("")),
            redis_password_file: empty(),
            redis_ca_file: empty(),
            ..RedisArgs::default()
        },
        replica_name: empty(),
        kthena: KthenaFlags { port: empty(), tls_cert: empty(), ..KthenaFlags::default() },
        ..RouterArgs::default()
    };
    let settings = settings(&args);
    assert_eq!(settings.access_log, Settings::default().access_log);
    assert_eq!((settings.listen.port(), settings.from_document), (8080, false));
}

#[test]
fn bodies_must_fit_into_the_buffer() {
    let args = RouterArgs { max_buffered_bytes: Some("1MiB".to_owned()), ..one_model() };
    assert!(problems(&args, &SystemFacts::default()).contains("smaller than --max-body-bytes (32MiB)"));
}

#[test]
fn what_kthena_would_enforce_and_we_cannot_yet_is_refused() {
    let args = RouterArgs {
        kthena: KthenaFlags {
            tls_cert: Some("/tls.crt".to_owned()),
            tls_key: Some(String::new()),
            port: Some("0".to_owned()),
            expose_metrics_on_router_port: Some("perhaps".to_owned()),
            ..KthenaFlags::default()
        },
        ..one_model()
    };
    let all = problems(&args, &SystemFacts::default());
    for part in [
        "--tls-cert: serving with TLS is not available yet",
        "--port: \"0\" is no port",
        "--expose-metrics-on-router-port: \"perhaps\" is no boolean",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
    assert_eq!(all.lines().count(), 3, "{all}");
    for (said, expected) in [(None, false), (Some("false"), false), (Some("1"), true)] {
        let kthena =
            KthenaFlags { expose_metrics_on_router_port: said.map(str::to_owned), ..KthenaFlags::default() };
        assert_eq!(settings(&RouterArgs { kthena, ..one_model() }).metrics_on_router_port, expected);
    }
}

#[test]
fn kthenas_variables_count_below_our_flags() {
    let set = |text: &str| Some(text.to_owned());
    let facts = SystemFacts {
        environment: KthenaEnvironment {
            access_log_enabled: set("f"),
            access_log_format: set("json"),
            access_log_output: set("/var/log/a"),
            drain_timeout: set("1m"),
            metrics_scrape_interval: set("500ms"),
            ..KthenaEnvironment::default()
        },
        ..SystemFacts::default()
    };
    let files = MemoryFiles::default();
    let read = resolve_from(&one_model(), &files, &facts).unwrap();
    assert!(!read.access_log.enabled && read.access_log.json);
    assert_eq!(read.access_log.output, "/var/log/a");
    assert_eq!(read.drain_timeout, Duration::from_secs(60));
    assert_eq!(read.scrape_interval, Duration::from_millis(500));
    let args = RouterArgs {
        access_log: set("true"),
        access_log_format: set("text"),
        access_log_output: set("stderr"),
        drain_timeout: set("0"),
        scrape_interval: set("2s"),
        ..one_model()
    };
    let read = resolve_from(&args, &files, &facts).unwrap();
    assert!(read.access_log.enabled && !read.access_log.json);
    assert_eq!(read.access_log.output, "stderr");
    assert_eq!((read.drain_timeout, read.scrape_interval), (Duration::ZERO, Duration::from_secs(2)));
}

#[test]
fn a_bad_variable_of_kthena_warns_and_has_no_effect() {
    let set = |text: &str| Some(text.to_owned());
    let facts = SystemFacts {
        environment: KthenaEnvironment {
            access_log_enabled: set("yes"),
            access_log_format: set("xml"),
            drain_timeout: set("90"),
            metrics_scrape_interval: set("0"),
            ..KthenaEnvironment::default()
        },
        ..SystemFacts::default()
    };
    let read = resolve_from(&one_model(), &MemoryFiles::default(), &facts).unwrap();
    let known = Settings::default();
    assert_eq!(read.access_log, known.access_log);
    assert_eq!((read.drain_timeout, read.scrape_interval), (known.drain_timeout, known.scrape_interval));
    let all = read.warnings.join("\n");
    for part in [
        "ACCESS_LOG_ENABLED: \"yes\" is no boolean; true is used",
        "ACCESS_LOG_FORMAT: there is no format \"xml\"",
        "DRAIN_TIMEOUT: \"90\" has no unit; write 90s for seconds, or use ms, m or h; 5m is used",
        "METRICS_SCRAPE_INTERVAL: \"0\" is not above 0; 1s is used",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
}

#[test]
fn a_profile_names_its_scorer() {
    for (name, scorer) in
        [("kv-aware", "kvasir-cost"), ("random", "random"), ("least-request", "least-request")]
    {
        let args = RouterArgs { routing: Some(name.to_owned()), ..one_model() };
        assert_eq!(settings(&args).scheduler.scorers, [(scorer.to_owned(), 1.0)]);
    }
    let args = RouterArgs {
        routing: Some("random".to_owned()),
        config: Some("absent.yaml".to_owned()),
        ..one_model()
    };
    let all = problems(&args, &SystemFacts::default());
    assert!(all.contains("cannot be combined with --config") && all.contains("cannot read \"absent.yaml\""));
}

/// The order for the only model of a document with `args` for kvcache-aware.
fn order_of(args: &str, tokenizer: bool) -> Vec<TokenSource> {
    let document = format!(
        "scheduler: {{pluginConfig: [{{name: kvcache-aware, args: {args}}}], \
         plugins: {{Score: {{enabled: [{{name: kvcache-aware, weight: 1}}]}}}}}}"
    );
    let mut settings = with_document(&document).unwrap_or_else(|problems| panic!("{problems}"));
    if tokenizer {
        settings.models[0].tokenizer = Some("/models/a".into());
    }
    settings.token_order(&settings.models[0])
}

#[test]
fn tokens_come_from_where_the_mode_says() {
    use TokenSource::{Engine, Local, Service};
    let mut plain = settings(&one_model());
    assert_eq!(plain.token_order(&plain.models[0]), [Engine]);
    plain.models[0].tokenizer = Some("/models/a".into());
    assert_eq!(plain.token_order(&plain.models[0]), [Local, Engine]);
    let service = "tokenizerService: {enabled: true, endpoint: 'http://t:1'";
    for (args, tokenizer, expected) in [
        ("{}".to_owned(), false, vec![Engine]),
        ("{}".to_owned(), true, vec![Engine, Local]),
        (format!("{{{service}}}}}"), false, vec![Service, Engine]),
        (format!("{{{service}}}}}"), true, vec![Service, Engine, Local]),
        (format!("{{{service}, fallbackToEngine: false}}}}"), true, vec![Service, Local]),
        ("{tokenization: {order: [local, engine]}}".to_owned(), true, vec![Local, Engine]),
        ("{tokenization: {order: [service, local]}}".to_owned(), true, vec![Local]),
        ("{tokenization: {local: {a: /models/b}, order: [local]}}".to_owned(), false, vec![Local]),
    ] {
        assert_eq!(order_of(&args, tokenizer), expected, "{args}");
    }
}

#[test]
fn the_deadline_of_tokens_is_the_flags_or_the_documents_and_gathering_outlasts_it() {
    let said = "scheduler: {pluginConfig: [{name: kvcache-aware, args: {tokenization: {deadline: 400ms}}}], \
                plugins: {Score: {enabled: [{name: kvcache-aware, weight: 1}]}}}";
    let read = |document: Option<&str>, flag: Option<&str>| {
        let args = RouterArgs {
            config: document.map(|_| "r.yaml".to_owned()),
            tokenize_deadline: flag.map(str::to_owned),
            ..one_model()
        };
        let files = MemoryFiles(HashMap::from([("r.yaml", document.unwrap_or_default().to_owned())]));
        let scheduler = resolve_from(&args, &files, &SystemFacts::default()).map(|read| read.scheduler);
        scheduler.map(|read| (read.args.kvcache_aware.deadline, read.gather_deadline.as_millis()))
    };
    let ms = |milliseconds| Some(Duration::from_millis(milliseconds));
    for (document, flag, expected) in [
        (None, None, (None, 300)),
        (None, Some("20ms"), (ms(20), 300)),
        (Some(said), None, (ms(400), 450)),
        (Some(said), Some("20ms"), (ms(20), 300)),
    ] {
        assert_eq!(read(document, flag).ok(), Some(expected), "{document:?} {flag:?}");
    }
    let refused = read(None, Some("0")).err().map(|problems| problems.to_string()).unwrap_or_default();
    assert!(refused.contains("--tokenize-deadline") && refused.contains("from 1ms to 10s"), "{refused}");
}

#[test]
fn tokenizers_of_a_document_are_checked_against_the_models() {
    let document = "scheduler: {pluginConfig: [{name: kvcache-aware, args: {tokenization: \
                    {order: [service, engine], local: {a: /nope, b: /models/b}}}}], \
                    plugins: {Score: {enabled: [{name: kvcache-aware, weight: 1}]}}}";
    let problems = with_document(document).err().unwrap_or_default().to_string();
    assert!(problems.contains("local.a: there is no directory \"/nope\""), "{problems}");
    let settings = with_document(&document.replace("/nope", "/models/a")).unwrap();
    let warnings = settings.warnings.join("\n");
    assert!(warnings.contains("there is no model \"b\""), "{warnings}");
    assert!(warnings.contains("no service tokenizer is configured"), "{warnings}");
}
