//! What flags, variables and the engines file come to, and what is refused.

use clap::{Args as _, Command, FromArgMatches as _};
use kvasir_settings::flags::RedisArgs;

use super::*;

/// Reads flags with the defaults of the command line. The Redis is always named, so that the machine's own variables
/// have no say.
fn args(flags: &[&str]) -> AgentArgs {
    let command = AgentArgs::augment_args(Command::new("agent"));
    let line = ["agent", "--redis", "redis://r:6379"].into_iter().chain(flags.iter().copied());
    AgentArgs::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
}

fn config(flags: &[&str]) -> AgentConfig {
    AgentConfig::of(&args(flags)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(flags: &[&str]) -> Vec<String> {
    let problems = AgentConfig::of(&args(flags)).err().map(|problems| problems.0).unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_command_line_is_well_formed() {
    AgentArgs::augment_args(Command::new("agent")).debug_assert();
}

#[test]
fn defaults_are_kthenas() {
    let config = config(&["--pod", "a.ns"]);
    assert_eq!(config.listen, ("0.0.0.0".to_owned(), 9000));
    let engine = &config.engines[0];
    assert_eq!(
        (engine.address.url().as_str(), engine.metrics_path.as_str()),
        ("http://localhost:8000", "/metrics")
    );
    assert_eq!((engine.kind, engine.pod_name().as_str()), (EngineKind::Vllm, "a.ns"));
    assert_eq!((&engine.model, engine.kv_events.len()), (&None, 0));
    assert_eq!((config.lease, config.resume_interval), (Duration::from_secs(10), Duration::from_secs(10)));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn short_flags_and_engine_names_are_kthenas() {
    for (word, kind) in [
        ("vllm", EngineKind::Vllm),
        ("vLLM", EngineKind::Vllm),
        ("VLLMDisaggregated", EngineKind::Vllm),
        ("SGLang", EngineKind::Sglang),
    ] {
        let line = [
            "-E",
            word,
            "-H",
            "127.0.0.1",
            "-P",
            "0",
            "-B",
            "http://e:1",
            "-M",
            "/m",
            "-I",
            "a.b.ns",
            "-N",
            "q",
        ];
        let config = config(&line);
        let engine = &config.engines[0];
        assert_eq!(engine.kind, kind, "{word}");
        assert_eq!(config.listen, ("127.0.0.1".to_owned(), 0));
        assert_eq!((&*engine.pod, &*engine.namespace, engine.metrics_path.as_str()), ("a.b", "ns", "/m"));
        assert_eq!(engine.model, Some(ModelName::from("q")));
    }
}

#[test]
fn the_pod_is_said_or_follows() {
    let cases: [(&[&str], &str); 4] = [
        (&["--pod", "p.n", "--pod-name", "x", "--pod-namespace", "y"], "p.n"),
        (&["--pod-name", "p", "--pod-namespace", "n"], "p.n"),
        (&["--engine-base-url", "http://gpu-a:8000"], "gpu-a.default"),
        (&["--engine-base-url", "http://10.0.0.7:8000", "--pod", ""], "10.0.0.7.default"),
    ];
    for (flags, pod) in cases {
        assert_eq!(config(flags).engines[0].pod_name(), pod, "{flags:?}");
    }
    for flags in [
        &["--pod", "alone"][..],
        &["--pod", ".ns"],
        &["--pod", "a/b.ns"],
        &["--pod-name", "p"],
        &["--pod-name", "p{}", "--pod-namespace", "n"],
        &[],
    ] {
        let problems = problems(flags);
        assert!(problems.len() == 1 && problems[0].starts_with("--pod: "), "{flags:?}: {problems:?}");
    }
}

#[test]
fn event_sources_are_flags_or_kthenas_variables() {
    let pod = ["--pod", "a.n"];
    let sources = |flags: &[&str]| {
        let engine = config(&[&pod[..], flags].concat()).engines.remove(0);
        let shown = |source: &KvEventsSettings| {
            let replay = source.replay.clone().unwrap_or_default();
            format!("{} {replay} {} {}", source.endpoint, source.topic, source.rank)
        };
        engine.kv_events.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(
        sources(&[
            "--kv-events",
            "tcp://a:1,replay=2;tcp://a:3,rank=1,topic=kv",
            "--vllm-zmq-endpoint",
            "tcp://x:9"
        ]),
        ["tcp://a:1 tcp://a:2  0", "tcp://a:3  kv 1"]
    );
    assert_eq!(
        sources(&["--vllm-zmq-endpoint", "tcp://localhost:5557", "--vllm-zmq-topic-filter", "kv-events"]),
        ["tcp://localhost:5557  kv-events 0"]
    );
    assert_eq!(
        sources(&["--sglang-zmq-endpoint", "tcp://localhost:5557"]),
        [] as [&str; 0],
        "of another engine"
    );
    assert_eq!(
        sources(&[
            "-E",
            "sglang",
            "--sglang-zmq-endpoint",
            "tcp://s:5557",
            "--vllm-zmq-endpoint",
            "tcp://x:9"
        ]),
        ["tcp://s:5557   0"]
    );
}

#[test]
fn the_layout_follows_from_how_redis_is_named() {
    let of = |flags: &[&str]| config(&[&["--pod", "a.n"], flags].concat()).layout;
    assert_eq!(of(&[]), Layout::Native);
    assert_eq!(of(&["--layout", "Both"]), Layout::Both);
    assert_eq!(of(&["--layout", "kthena"]), Layout::Kthena);
    let by_variables = AgentArgs { redis: RedisArgs::default(), ..args(&["--pod", "a.n"]) };
    assert_eq!(Reader::default().layout(&by_variables), Layout::Both);
}

#[test]
fn every_problem_is_reported() {
    let problems = problems(&[
        "--engine",
        "tgi",
        "--engine-base-url",
        "ftp://e",
        "--engine-metrics-path",
        "metrics",
        "--pod",
        "alone",
        "--kv-events",
        "a:5557;tcp://a:1;tcp://b:2",
        "--layout",
        "all",
        "--lease",
        "100ms",
        "--resume-interval",
        "10",
        "--port",
        "eighty",
    ]);
    for (flag, part) in [
        ("--engine:", "tgi"),
        ("--engine-base-url:", "unknown scheme"),
        ("--engine-metrics-path:", "no path"),
        ("--pod:", "NAME.NAMESPACE"),
        ("--kv-events:", "no event address"),
        ("--kv-events:", "rank 0 has two sources"),
        ("--layout:", "native, kthena or both"),
        ("--lease:", "out of range; write a duration from 1s to 1m"),
        ("--resume-interval:", "no unit"),
        ("--port:", "no port"),
    ] {
        let found = problems.iter().any(|problem| problem.starts_with(flag) && problem.contains(part));
        assert!(found, "{flag} {part} is missing in {problems:#?}");
    }
    assert_eq!(problems.len(), 10, "{problems:#?}");
}

#[test]
fn a_service_called_kvasir_agent_does_no_harm() {
    let config = config(&["--pod", "a.n", "--port", "tcp://10.0.0.1:9000"]);
    assert_eq!(config.listen.1, 9000);
    assert!(config.warnings[0].contains("Kubernetes"), "{:?}", config.warnings);
}

#[test]
fn no_redis_and_no_password_is_shown() {
    let without = AgentArgs { redis: args_redis("none"), ..args(&["--pod", "a.n"]) };
    let problems = AgentConfig::of(&without).err().map(|problems| problems.to_string()).unwrap_or_default();
    assert!(problems.starts_with("--redis: an agent without a Redis"), "{problems}");
    let with = AgentArgs { redis: args_redis("redis://u:hidden@r:1/2"), ..args(&["--pod", "a.n"]) };
    let shown = format!("{with:?} {:?}", AgentConfig::of(&with));
    assert!(!shown.contains("hidden"), "{shown}");
}

fn args_redis(url: &str) -> RedisArgs {
    let command = RedisArgs::augment_args(Command::new("redis"));
    RedisArgs::from_arg_matches(&command.try_get_matches_from(["redis", "--redis", url]).unwrap()).unwrap()
}

/// The engines of a file, or its problems.
fn file(text: &str) -> Result<Vec<EngineConfig>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engines.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let read = AgentConfig::of(&args(&["--engines", path]));
    read.map(|config| config.engines).map_err(|problems| {
        problems.0.iter().map(|problem| problem.to_string().replace(path, "FILE")).collect()
    })
}

#[test]
fn a_file_names_many_engines() {
    let engines = file(
        "engines:\n\
         - pod: a.ns\n  baseUrl: http://10.0.0.1:8000\n\
         - pod: b.ns\n  baseUrl: http://10.0.0.2:8000\n  engine: SGLang\n  model: qwen\n  metricsPath: /m\n\
         \x20 kvEvents:\n  - tcp://10.0.0.2:5557,replay=5657\n  - tcp://10.0.0.2:5558,rank=1\n\
         - pod: c.ns\n  baseUrl: http://c:1\n  kvEvents: tcp://c:2\n",
    )
    .unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(engines.iter().map(EngineConfig::pod_name).collect::<Vec<_>>(), ["a.ns", "b.ns", "c.ns"]);
    assert_eq!((engines[0].kind, engines[0].metrics_path.as_str()), (EngineKind::Vllm, "/metrics"));
    assert_eq!((engines[1].kind, engines[1].metrics_path.as_str()), (EngineKind::Sglang, "/m"));
    assert_eq!(engines[1].kv_events.iter().map(|source| source.rank).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(engines[2].kv_events.len(), 1);
}

#[test]
fn mistakes_in_the_file_have_their_lines() {
    let problems = file(
        "engines:\n\
         - baseUrl: ftp://a\n  engin: vllm\n\
         - pod: alone\n  baseUrl: http://b:1\n  engine: tgi\n  kvEvents:\n    - b:5557\n    - tcp://b:1\n    - tcp://b:2\n\
         - pod: c.ns\n  baseUrl: 7\n",
    )
    .unwrap_err();
    for part in [
        "FILE:2:3: engines[0]: lacks the key \"pod\"",
        "FILE:2:12: engines[0].baseUrl: ftp://a",
        "engines[0].engin: the key is unknown; known keys: pod, baseUrl",
        "FILE:4:8: engines[1].pod: \"alone\"",
        "FILE:6:11: engines[1].engine: \"tgi\"",
        "engines[1].kvEvents: \"b:5557\" is no event address",
        "engines[1].kvEvents: rank 0 has two sources",
        "FILE:12:12: engines[2].baseUrl: is no text",
    ] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part} is missing in {problems:#?}");
    }
    assert_eq!(problems.len(), 8, "{problems:#?}");
    for (text, part) in [
        ("engines: []\n", "names no engine"),
        ("engine: []\n", "engines"),
        ("engines:\n- pod: [\n", "FILE:"),
        ("engines:\n- {pod: a.n, baseUrl: http://a:1}\n- {pod: a.n, baseUrl: http://b:1}\n", "named twice"),
    ] {
        let problems = file(text).unwrap_err();
        assert!(problems.iter().any(|problem| problem.contains(part)), "{text}: {problems:?}");
    }
    let both = ["--engines", "/nowhere.yaml", "--pod", "a.n"];
    let problems = self::problems(&both);
    assert!(problems.iter().any(|problem| problem.contains("cannot be read")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("of one engine")), "{problems:?}");
}
