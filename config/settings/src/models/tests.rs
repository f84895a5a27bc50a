//! Models from files and flags, put together.

use std::io;
use std::path::Path;

use kvasir_core::ConnectorKind;

use super::assemble;
use crate::facts::Files;
use crate::flags::RouterArgs;
use crate::models_file;
use crate::problems::Findings;
use crate::resolved::ModelSettings;

/// Directories begin with `/dir`, files with `/file`.
struct NamedFiles;

impl Files for NamedFiles {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.to_string_lossy().starts_with("/dir")
    }

    fn is_file(&self, path: &Path) -> bool {
        path.to_string_lossy().starts_with("/file")
    }
}

fn args(model: &[&str], tokenizer: &[&str], kv_events: &[&str]) -> RouterArgs {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    RouterArgs {
        model: owned(model),
        tokenizer: owned(tokenizer),
        kv_events: owned(kv_events),
        ..RouterArgs::default()
    }
}

fn put_together(file: Option<&str>, args: &RouterArgs) -> (Vec<ModelSettings>, Vec<String>) {
    let mut findings = Findings::default();
    let said = file.map(|text| models_file::read(text, "m.yaml", &mut findings).models).unwrap_or_default();
    let named = assemble(&said, args, false, &NamedFiles, &mut findings);
    (named.models, findings.problems())
}

#[test]
fn flags_make_models() {
    let (models, problems) = put_together(
        None,
        &args(
            &["qwen=http://a:8000,http://b:8000", "llama=http://c:8000"],
            &["qwen=/dir/qwen"],
            &[
                "http://a:8000=tcp://a:5557,rank=1",
                "http://a:8000=tcp://a:5556",
                "http://c:8000/=tcp://*:5557,topic=kv",
            ],
        ),
    );
    assert_eq!(problems, Vec::<String>::new());
    let qwen = &models[0];
    assert_eq!(qwen.name.as_str(), "qwen");
    assert_eq!(qwen.tokenizer.as_deref(), Some(Path::new("/dir/qwen")));
    assert_eq!((qwen.endpoints[0].ranks, qwen.endpoints[1].ranks), (2, 1));
    let ports: Vec<(&str, u32)> =
        qwen.endpoints[0].kv_events.iter().map(|source| (source.endpoint.as_str(), source.rank)).collect();
    assert_eq!(ports, [("tcp://a:5556", 0), ("tcp://a:5557", 1)]);
    assert_eq!(models[1].endpoints[0].kv_events[0].endpoint, "tcp://*:5557");
}

#[test]
fn a_flag_wins_over_the_file() {
    let file = "models: [{name: a, tokenizer: /dir/1, chatTemplate: /file, endpoints: [{url: 'http://a:1', \
                dataParallel: 2, kvEvents: {endpoint: 'tcp://a:9'}}]}]";
    let (models, problems) = put_together(Some(file), &args(&["b=http://a:1"], &["a=/dir/2"], &[]));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(models[0].tokenizer.as_deref(), Some(Path::new("/dir/2")));
    assert_eq!(models[0].endpoints[0].kv_events.len(), 2);
    assert_eq!(models.len(), 2, "an endpoint may serve two models");
    assert_eq!((models[0].endpoints[0].pin_ranks, models[1].endpoints[0].pin_ranks), (None, None));
}

#[test]
fn every_clash_is_named() {
    let file = "models:
- {name: a, aliases: [x], engine: vlm, tokenizer: /nope, chatTemplate: /nope, endpoints: [{url: 'http://a:1'}]}
- {name: b, aliases: [a], adapters: [x], endpoints: [{url: 'http://a:1'}, {url: 'http://a:1/'}, {url: 'a:1'}]}
";
    let (_, problems) = put_together(
        Some(file),
        &args(
            &["b=http://b:1", "nonsense"],
            &["c=/dir/c", "a=/nope", "nonsense"],
            &["http://z:1=tcp://a:1", "http://a:1=tcp://a:1", "http://a:1=tcp://a:2", "x"],
        ),
    );
    let all = problems.join("\n");
    for part in [
        "m.yaml:3:23: models[1].aliases[0]: the name \"a\" is already taken by m.yaml:2:10: models[0].name",
        "models[1].adapters[0]: the name \"x\" is already taken",
        "there is no engine \"vlm\"; did you mean \"vllm\"?",
        "models[0].tokenizer: there is no directory \"/nope\"",
        "models[0].chatTemplate: there is no file \"/nope\"",
        "models[1].endpoints[1].url: http://a:1/ is listed twice",
        "models[1].endpoints[2].url: a:1: no scheme",
        "--model b: the name \"b\" is already taken by m.yaml:3:10",
        "--model: \"nonsense\" is no model",
        "--tokenizer: there is no model \"c\"; known: a, b, b",
        "--tokenizer: there is no directory \"/nope\"",
        "--tokenizer: \"nonsense\" is no tokenizer",
        "--kv-events: no model has the endpoint http://z:1",
        "--kv-events: http://a:1 already has an event source for rank 0",
        "--kv-events: \"x\" is no event source",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
}

/// What the endpoints of one model come to, and what is said about them. `1P:g` is `http://1:1`, which prefills in group g.
fn apart(model: &str, words: &[&str]) -> (Option<ConnectorKind>, Vec<String>) {
    let endpoint = |word: &&str| {
        let (name, group) = word.split_once(':').unwrap_or((word, ""));
        let role = match name.chars().last() {
            Some('P') => ", role: prefill",
            Some('D') => ", role: decode",
            _ => "",
        };
        let group = if group.is_empty() { String::new() } else { format!(", group: {group}") };
        format!("  - {{url: 'http://{name}:1'{role}{group}}}\n")
    };
    let list: String = words.iter().map(endpoint).collect();
    let file = format!("models:\n- name: m\n{model}  endpoints:\n{list}");
    let mut findings = Findings::default();
    let said = models_file::read(&file, "m.yaml", &mut findings).models;
    let named = assemble(&said, &RouterArgs::default(), false, &NamedFiles, &mut findings);
    let connector = named.models.first().and_then(|model| model.connector);
    (connector, findings.problems().into_iter().chain(findings.warnings().to_vec()).collect())
}

#[test]
fn the_connector_is_what_is_written_or_what_the_engine_does() {
    let pair = ["1P", "2D"];
    for (model, expected, said) in [
        ("  connector: nixl\n", ConnectorKind::Nixl, None),
        ("  connector: http\n", ConnectorKind::Http, None),
        ("  connector: lmcache\n", ConnectorKind::Lmcache, None),
        ("  connector: mooncake\n", ConnectorKind::Mooncake, None),
        ("  engine: sglang\n", ConnectorKind::Sglang, None),
        ("  engine: sglang\n  connector: sglang\n", ConnectorKind::Sglang, None),
        (
            "",
            ConnectorKind::Http,
            Some("m.yaml:2:9: models[0].name: has prefill and decode endpoints and no connector"),
        ),
        (
            "  engine: sglang\n  connector: mooncake\n",
            ConnectorKind::Mooncake,
            Some("m.yaml:4:14: models[0].connector: mooncake takes the place of SGLang's own way"),
        ),
    ] {
        let (connector, found) = apart(model, &pair);
        assert_eq!(connector, Some(expected), "{model}");
        match said {
            None => assert_eq!(found, Vec::<String>::new(), "{model}"),
            Some(said) => assert!(found.len() == 1 && found[0].contains(said), "{found:?}"),
        }
    }
    assert_eq!(apart("", &["1", "2"]), (None, Vec::new()));
}

#[test]
fn endpoints_that_cannot_be_paired_are_named_all_at_once() {
    let nixl = "  connector: nixl\n";
    for (model, words, expected) in [
        (
            nixl,
            &["1P", "2P"][..],
            &["m.yaml:5:32: models[0].endpoints[0].role: the model can prefill and not decode"][..],
        ),
        (nixl, &["1D"], &["the model can decode and not prefill; add an endpoint with role: prefill"]),
        (
            nixl,
            &["1P:a", "2D:a", "3P:b"],
            &["m.yaml:7:32: models[0].endpoints[2].role: the group \"b\" can prefill and not decode"],
        ),
        (
            nixl,
            &["1P:a", "2D:b"],
            &["the group \"a\" can prefill", "the group \"b\" can decode and not prefill"],
        ),
        (
            nixl,
            &["1P", "2D", "3", "4"],
            &["m.yaml:7:11: models[0].endpoints[2].url: has no role", "endpoints[3].url: has no role"],
        ),
        (nixl, &["1P:a", "2D:a", "3D"], &["endpoints[2].url: has no group, unlike other endpoints"]),
        (nixl, &["1", "2"], &["m.yaml:3:14: models[0].connector: has no effect"]),
        ("", &["1:a", "2"], &["endpoints[0].group: has no effect: no endpoint of the model has a role"]),
        ("  connector: nixxl\n", &["1P", "2D"], &["there is no connector \"nixxl\"; did you mean \"nixl\"?"]),
        (
            "  connector: sglang\n",
            &["1P", "2D"],
            &["sglang is a way of SGLang's alone, and the engine is vllm"],
        ),
    ] {
        let (_, found) = apart(model, words);
        assert_eq!(found.len(), expected.len(), "{words:?}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{words:?}: {found}");
        }
    }
    for (port, engine, role, expected) in [
        ("8997", "sglang", "prefill", None),
        (
            "8997",
            "sglang",
            "decode",
            Some("endpoints[0].bootstrapPort: has no effect: only SGLang's prefill"),
        ),
        ("8997", "vllm, connector: http", "prefill", Some("the connector is http")),
        ("0", "sglang", "prefill", Some("bootstrapPort: is \"0\"; write a port, 1 to 65535")),
    ] {
        let other = if role == "prefill" { "decode" } else { "prefill" };
        let file = format!(
            "models: [{{name: m, engine: {engine}, endpoints: [{{url: 'http://1:1', role: {role}, bootstrapPort: \
             {port}}}, {{url: 'http://2:1', role: {other}}}]}}]"
        );
        let (models, problems) = put_together(Some(&file), &RouterArgs::default());
        match expected {
            None => assert_eq!(models[0].endpoints[0].bootstrap_port, Some(8997), "{problems:?}"),
            Some(expected) => assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}"),
        }
    }
    let file = "models: [{name: m, connector: nixl, endpoints: [{url: 'http://1:1', role: prefil}]}]";
    let (_, problems) = put_together(Some(file), &RouterArgs::default());
    assert_eq!(
        problems,
        ["m.yaml:1:75: models[0].endpoints[0].role: there is no role \"prefil\"; did you mean \"prefill\"?"]
    );
}

#[test]
fn a_router_without_models_says_which_flag_to_use() {
    let (_, problems) = put_together(None, &args(&[], &[], &[]));
    assert_eq!(
        problems,
        ["--model: there is no model to route to, and no cluster to learn of models from; give --model \
             NAME=http://HOST:PORT, or --models FILE with a list of models; or run in a pod, or write --kubernetes on, to \
             route by Kubernetes objects"]
    );
}

#[test]
fn with_a_cluster_a_tokenizer_waits_for_its_model() {
    let args = args(&[], &["Qwen/Qwen3=/dir/qwen", "b=/nope", "Qwen/Qwen3=/dir/other"], &[]);
    let mut findings = Findings::default();
    let named = assemble(&[], &args, true, &NamedFiles, &mut findings);
    assert_eq!(
        findings.problems(),
        ["--tokenizer: there is no directory \"/nope\"; name the directory that holds tokenizer.json"]
    );
    assert!(named.models.is_empty());
    let known: Vec<_> = named.tokenizers.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
    assert_eq!(
        known,
        [("Qwen/Qwen3", Path::new("/dir/other")), ("b", Path::new("/nope"))],
        "the last one counts"
    );
}
