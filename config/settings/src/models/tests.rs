//! Models from files and flags, put together.

use std::io;
use std::path::Path;

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
