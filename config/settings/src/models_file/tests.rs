//! The models file: what is read, and what is said about what is not.

use super::*;

fn problems_of(text: &str) -> Vec<String> {
    let mut findings = Findings::default();
    read(text, "m.yaml", &mut findings);
    findings.problems()
}

#[test]
fn a_whole_model_is_read() {
    let text = "
models:
  - name: qwen
    servedName: Qwen/Qwen2.5-7B
    aliases: [gpt-4o-mini, 4]
    engine: sglang
    tokenizer: /models/qwen
    chatTemplate: /x.jinja
    adapters: [sql-adapter]
    endpoints:
      - url: http://10.0.0.1:8000
        kvEvents: {endpoint: tcp://10.0.0.1:5557, replay: tcp://10.0.0.1:5657, topic: \"\"}
        dataParallel: 2
        pinRanks: true
";
    let mut findings = Findings::default();
    let models = read(text, "m.yaml", &mut findings).models;
    assert_eq!(findings.problems(), Vec::<String>::new());
    assert_eq!(models[0].name.value, "qwen");
    assert_eq!(models[0].aliases[1].value, "4", "a number is the text that was written");
    let endpoint = &models[0].endpoints[0];
    assert_eq!(endpoint.data_parallel.as_ref().map(|ranks| ranks.value), Some(2));
    assert_eq!(endpoint.pin_ranks.as_ref().map(|choice| choice.value), Some(true));
    let events = endpoint.kv_events.as_ref().map(|events| (&*events.endpoint.value, &events.topic));
    assert!(events.is_some_and(|(address, topic)| address == "tcp://10.0.0.1:5557" && topic.is_some()));
}

#[test]
fn every_problem_is_named_with_its_line() {
    let text = "models:
  - name: a
    servedname: b
    endpoint: [x]
  - endpoints:
      - {url: http://a:1, dataParallel: 0, pinRanks: 1}
      - {kvEvents: {replay: tcp://a:1}}
  - [x]
model: []
";
    assert_eq!(
        problems_of(text),
        [
            "m.yaml:9:1: model: the key is unknown; did you mean \"models\"?",
            "m.yaml:2:5: models[0]: lacks the key \"endpoints\"; add endpoints: and a list of url: entries",
            "m.yaml:3:5: models[0].servedname: the key is unknown; did you mean \"servedName\"?",
            "m.yaml:4:5: models[0].endpoint: the key is unknown; did you mean \"endpoints\"?",
            "m.yaml:5:5: models[1]: lacks the key \"name\"; add name: with the name clients use",
            "m.yaml:6:41: models[1].endpoints[0].dataParallel: is \"0\"; write a whole number from 1 to 1024",
            "m.yaml:6:54: models[1].endpoints[0].pinRanks: is \"1\"; write true or false",
            "m.yaml:7:9: models[1].endpoints[1]: lacks the key \"url\"; add url: http://HOST:PORT",
            "m.yaml:7:20: models[1].endpoints[1].kvEvents: lacks the key \"endpoint\"; add endpoint: tcp://HOST:PORT",
            "m.yaml:8:5: models[2]: is a list, not a mapping; write KEY: VALUE",
        ]
    );
}

#[test]
fn what_is_no_models_file_says_so() {
    for (text, part) in [
        ("", "is empty"),
        ("# only a comment", "is empty"),
        ("models:", "lacks the key \"models\""),
        ("- a", "is a list"),
        ("models: {a: b}", "is a mapping, not a list"),
        ("models: [{name: a, name: b}]", "already defined at line 1"),
        ("models: []\n---\nmodels: []", "more than one YAML document"),
        ("models: [{name: ~, endpoints: []}]", "lacks the key \"name\""),
        ("models: [{name: '', endpoints: []}]", "is empty"),
        ("models: [{name: a, endpoints: []}]", "list at least one url"),
        ("models: [{name: a, aliases: b, endpoints: [{url: u}]}]", "is a text, not a list"),
        ("models: [", "is no YAML"),
    ] {
        let problems = problems_of(text).join("\n");
        assert!(problems.contains(part), "{text:?}: {problems:?} should contain {part:?}");
    }
}

#[test]
fn the_keys_that_are_read_are_the_keys_of_the_schema() {
    let schema = schemars::schema_for!(ModelsFile);
    let schema = schema.as_value();
    for (definition, open, close) in [
        ("/properties", "{", "}"),
        ("/$defs/Model/properties", "models: [{", "}]"),
        ("/$defs/Endpoint/properties", "models: [{endpoints: [{", "}]}]"),
        ("/$defs/KvEvents/properties", "models: [{endpoints: [{kvEvents: {", "}}]}]"),
    ] {
        let properties = schema.pointer(definition).and_then(|value| value.as_object());
        let mut keys: Vec<&str> =
            properties.unwrap_or_else(|| panic!("{definition}")).keys().map(String::as_str).collect();
        let all: Vec<String> = keys.iter().map(|key| format!("{key}: ~")).collect();
        let problems = problems_of(&format!("{open}{}{close}", all.join(", "))).join("\n");
        assert!(!problems.contains("unknown"), "{definition}: {problems}");
        let problems = problems_of(&format!("{open}zzzzzzzz: ~{close}")).join("\n");
        let known = problems.split("known keys: ").nth(1).and_then(|rest| rest.lines().next());
        let mut known: Vec<&str> = known.unwrap_or_default().split(", ").collect();
        known.sort_unstable();
        keys.sort_unstable();
        assert_eq!(known, keys, "{definition}");
    }
}
