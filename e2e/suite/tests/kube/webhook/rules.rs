//! Every rule of the webhook, with the words of kthena's.

use serde_json::{Value, json};

use super::site::object;

/// An object, and what is said of it: each item as it is written after `  - `. One that ends with `...` goes on in our
/// words: kthena has there those of a library.
pub struct Rule {
    pub object: Value,
    pub items: Vec<&'static str>,
}

impl Rule {
    /// What the API server says when the webhook refuses it.
    pub fn refusal(&self) -> String {
        let kind = self.object["kind"].as_str().unwrap();
        let (before, between) = if kind == "ModelServer" { (" ", "") } else { ("\n", "\n") };
        let items: Vec<String> = self.items.iter().map(|item| format!("  - {item}")).collect();
        let (hook, items) = (kind.to_lowercase(), items.join(between));
        format!(
            "admission webhook \"validate-{hook}.volcano.sh\" denied the request: validation failed:{before}{items}"
        )
    }
}

pub fn all() -> Vec<Rule> {
    let rules = routes().into_iter().map(|(spec, items)| ("ModelRoute", spec, items));
    let rules = rules.chain(servers().into_iter().map(|(spec, items)| ("ModelServer", spec, items)));
    let rules =
        rules.chain(providers().into_iter().map(|(spec, items)| ("ExternalModelProvider", spec, items)));
    rules.map(|(kind, spec, items)| Rule { object: object(kind, spec), items }).collect()
}

fn routes() -> Vec<(Value, Vec<&'static str>)> {
    let good = json!([{"targetModels": [{"modelServerName": "s"}]}]);
    let with = |target: Value| json!({"modelName": "m", "rules": [{"targetModels": [target]}]});
    let matching = |matching: Value| json!({"modelName": "m", "rules": [{"modelMatch": matching, "targetModels": [{"modelServerName": "s"}]}]});
    vec![
        (
            json!({"rules": good}),
            vec!["spec: Required value: either modelName or loraAdapters must be specified"],
        ),
        (
            json!({"modelName": "", "loraAdapters": [], "rules": good}),
            vec!["spec: Required value: either modelName or loraAdapters must be specified"],
        ),
        (
            json!({"loraAdapters": ["a", ""], "rules": good}),
            vec![r#"spec.loraAdapters[1]: Invalid value: "": lora adapter name cannot be an empty string"#],
        ),
        (
            json!({"modelName": "m", "rules": [null]}),
            vec!["spec.rules[0]: Invalid value: null: rule must not be nil"],
        ),
        (
            json!({"modelName": "m", "rules": [{"targetModels": [], "modelMatch": {"uri": {"regex": "["}}}]}),
            vec!["spec.rules[0].targetModels: Required value: each rule must have at least one target model"],
        ),
        (
            json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}, null]}]}),
            vec!["spec.rules[0].targetModels[1]: Invalid value: null: target model must not be nil"],
        ),
        (
            with(json!({"modelServerName": "s", "externalModelProviderName": "p"})),
            vec![
                r#"spec.rules[0].targetModels[0]: Invalid value: "s/p": exactly one of modelServerName or externalModelProviderName must be set"#,
            ],
        ),
        (
            with(json!({})),
            vec![
                r#"spec.rules[0].targetModels[0]: Invalid value: "/": exactly one of modelServerName or externalModelProviderName must be set"#,
            ],
        ),
        (
            json!({"loraAdapters": ["a"], "rules": [{"targetModels": [{"externalModelProviderName": "p"}]}]}),
            vec![
                r#"spec.rules[0].targetModels[0].externalModelProviderName: Invalid value: "p": lora routes must target modelServerName"#,
            ],
        ),
        (
            with(json!({"modelServerName": "s", "weight": 0})),
            vec!["spec.rules[0].targetModels: Invalid value: 0: total weight must be greater than zero"],
        ),
        (
            matching(json!({"headers": {"tier": {"regex": "["}}})),
            vec![
                r#"spec.rules[0].modelMatch.headers[tier].regex: Invalid value: "[": error parsing regexp: missing closing ]: `[`"#,
            ],
        ),
        (
            matching(json!({"uri": {"regex": "a(b"}})),
            vec![
                r#"spec.rules[0].modelMatch.uri.regex: Invalid value: "a(b": error parsing regexp: missing closing ): `a(b`"#,
            ],
        ),
        // Several at once, each on a line of its own.
        (
            json!({"rules": [{"targetModels": []}]}),
            vec![
                "spec: Required value: either modelName or loraAdapters must be specified",
                "spec.rules[0].targetModels: Required value: each rule must have at least one target model",
            ],
        ),
    ]
}

fn servers() -> Vec<(Value, Vec<&'static str>)> {
    let server = |selector: Value| json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 8000}, "workloadSelector": selector});
    let group = |key: &str, value: Value| {
        let mut group =
            json!({"groupKey": "g", "prefillLabels": {"role": "p"}, "decodeLabels": {"role": "d"}});
        group[key] = value;
        server(json!({"matchLabels": {"app": "a"}, "pdGroup": group}))
    };
    vec![
        (
            server(Value::Null),
            vec!["spec.workloadSelector: Required value: workloadSelector must be specified"],
        ),
        (
            server(json!({})),
            vec!["spec.workloadSelector.matchLabels: Required value: labels must contain at least one label"],
        ),
        (
            group("prefillLabels", json!({})),
            vec![
                "spec.workloadSelector.pdGroup.prefillLabels: Required value: labels must contain at least one label",
            ],
        ),
        (
            group("decodeLabels", json!({})),
            vec![
                "spec.workloadSelector.pdGroup.decodeLabels: Required value: labels must contain at least one label",
            ],
        ),
        (
            group("groupKey", json!("")),
            vec!["spec.workloadSelector.pdGroup.groupKey: Required value: groupKey must be specified"],
        ),
        (
            server(json!({"matchLabels": {"a b": "c"}})),
            vec![r#"spec.workloadSelector.matchLabels: Invalid value: {"a b":"c"}: invalid selector: ..."#],
        ),
        (
            group("prefillLabels", json!({"k": "a/b"})),
            vec![
                r#"spec.workloadSelector.pdGroup.prefillLabels: Invalid value: {"k":"a/b"}: invalid selector: ..."#,
            ],
        ),
        (
            group("decodeLabels", json!({"-k": "a"})),
            vec![
                r#"spec.workloadSelector.pdGroup.decodeLabels: Invalid value: {"-k":"a"}: invalid selector: ..."#,
            ],
        ),
        // Several at once, in one line.
        (
            server(
                json!({"pdGroup": {"groupKey": "", "prefillLabels": {"r": "p"}, "decodeLabels": {"r": "d"}}}),
            ),
            vec![
                "spec.workloadSelector.matchLabels: Required value: labels must contain at least one label",
                "spec.workloadSelector.pdGroup.groupKey: Required value: groupKey must be specified",
            ],
        ),
    ]
}

fn providers() -> Vec<(Value, Vec<&'static str>)> {
    let url = |url: &str| json!({"baseURL": url});
    let header = |name: &str, value: &str| json!({"baseURL": "https://a", "headers": {name: value}});
    let auth = |auth: Value| json!({"baseURL": "https://a", "auth": auth});
    let secret = json!({"name": "s", "key": "k"});
    vec![
        (
            json!({"baseURL": "https://a", "providerType": "Gemini"}),
            vec![
                r#"spec.providerType: Unsupported value: "Gemini": supported values: "OpenAI", "Anthropic""#,
            ],
        ),
        (
            auth(json!({"scheme": "Basic", "secretRef": secret})),
            vec![r#"spec.auth.scheme: Unsupported value: "Basic": supported values: "Bearer", "APIKey""#],
        ),
        (url("http://a"), vec![r#"spec.baseURL: Invalid value: "http://a": baseURL must use https"#]),
        (url("https://"), vec![r#"spec.baseURL: Invalid value: "https://": baseURL must use https"#]),
        (
            url("https://u:p@a"),
            vec![
                r#"spec.baseURL: Invalid value: "https://u:p@a": baseURL must not contain userinfo, query, or fragment"#,
            ],
        ),
        (
            url("https://a?q=1"),
            vec![
                r#"spec.baseURL: Invalid value: "https://a?q=1": baseURL must not contain userinfo, query, or fragment"#,
            ],
        ),
        (
            url("https://a#f"),
            vec![
                r#"spec.baseURL: Invalid value: "https://a#f": baseURL must not contain userinfo, query, or fragment"#,
            ],
        ),
        (header("a b", "v"), vec![r#"spec.headers[a b]: Invalid value: "a b": header name is invalid"#]),
        (
            header("Authorization", "v"),
            vec![
                r#"spec.headers[Authorization]: Invalid value: "Authorization": header is reserved and cannot be configured as a static header"#,
            ],
        ),
        (
            header("X-A", "a\r\nb"),
            vec![r#"spec.headers[X-A]: Invalid value: "a\r\nb": header value must not contain CR or LF"#],
        ),
        (
            auth(json!({"secretRef": {"name": "", "key": "k"}})),
            vec!["spec.auth.secretRef.name: Required value: secret name is required"],
        ),
        (
            auth(json!({"secretRef": {"name": "s", "key": ""}})),
            vec!["spec.auth.secretRef.key: Required value: secret key is required"],
        ),
        (
            auth(json!({"secretRef": {"name": "s", "key": "k", "optional": true}})),
            vec!["spec.auth.secretRef.optional: Invalid value: true: optional must be false or unset"],
        ),
    ]
}
