//! Another version of the router document.

use super::*;
use crate::coordination::CoordinationMode;
use crate::kubernetes::{ConfigMapRef, KubernetesSettings};
use crate::resolved::SchedulerSettings;

const PREFIX: &str = "scheduler: {plugins: {Score: {enabled: [{name: prefix-cache, weight: 1}]}}}";

fn kvcache(args: &str) -> String {
    format!(
        "scheduler: {{pluginConfig: [{{name: kvcache-aware, args: {args}}}], \
         plugins: {{Score: {{enabled: [{{name: kvcache-aware, weight: 1}}]}}}}}}"
    )
}

/// Settings that follow a ConfigMap, with what flags say about a document's values.
fn followed(redis: Option<&str>) -> Settings {
    let args = RouterArgs {
        max_attempts: "7".to_owned(),
        tokenize_deadline: Some("400ms".to_owned()),
        redis: RedisArgs { redis: redis.map(Secret::new), ..RedisArgs::default() },
        ..one_model()
    };
    let config_map = ConfigMapRef {
        namespace: "ns".to_owned(),
        name: "conf".to_owned(),
        key: "routerConfiguration".to_owned(),
    };
    let kubernetes = KubernetesSettings { config_map: Some(config_map), ..KubernetesSettings::default() };
    Settings { kubernetes: Some(kubernetes), ..settings(&args) }
}

fn reload(settings: &Settings, text: &str) -> Result<Settings, String> {
    settings.reload_document_from(text, &MemoryFiles::default()).map_err(|problems| problems.to_string())
}

#[test]
fn a_new_version_means_what_a_start_with_it_means() {
    let document = kvcache("{tokenization: {deadline: 20ms, local: {a: /models/a}}, queryBudget: 60ms}");
    let args = RouterArgs {
        config: Some("r.yaml".to_owned()),
        max_attempts: "7".to_owned(),
        tokenize_deadline: Some("400ms".to_owned()),
        ..one_model()
    };
    let files = MemoryFiles(HashMap::from([("r.yaml", document.clone())]));
    let started = resolve_from(&args, &files, &SystemFacts::default()).unwrap();
    let before = followed(None);
    assert_eq!(before.scheduler.scorers, SchedulerSettings::default().scorers);
    let reloaded = reload(&before, &document).unwrap();
    assert_eq!(reloaded.scheduler, started.scheduler);
    assert_eq!((reloaded.scheduler.top_n, reloaded.scheduler.gather_deadline.as_millis()), (7, 460));
    assert_eq!(reloaded.redis, started.redis, "the document implies kthena's host");
    assert!(reloaded.redis.as_ref().is_some_and(|redis| redis.implied));
    assert_eq!(reloaded.token_order(&reloaded.models[0]), [TokenSource::Engine, TokenSource::Local]);
    assert_eq!((reloaded.from_document, reloaded.warnings), (true, Vec::new()));
    let again = reload(&reload(&before, &document).unwrap(), PREFIX).unwrap();
    assert_eq!(again.scheduler.scorers, [("prefix-cache".to_owned(), 1.0)]);
    assert_eq!((again.redis, again.scheduler.top_n), (None, 7), "nothing of the last version is left");
}

#[test]
fn a_named_redis_stays_and_none_stays_none() {
    let document = kvcache("{coordination: query}");
    let named = reload(&followed(Some("redis://a")), &document).unwrap();
    assert_eq!(named.redis.map(|redis| redis.to_string()).as_deref(), Some("a:6379/0"));
    assert_eq!(named.coordination, Some(CoordinationMode::Query));
    assert_eq!(reload(&followed(Some("none")), &kvcache("{}")).unwrap().redis, None);
    let problems = reload(&followed(None), &document).err().unwrap_or_default();
    assert!(
        problems.starts_with(
            "ConfigMap ns/conf:routerConfiguration: kvcache-aware.coordination: blocks cannot be looked up"
        ),
        "{problems}"
    );
}

#[test]
fn a_bad_version_is_refused_with_all_that_is_wrong_and_a_doubtful_one_warns() {
    let text = "scheduler:\n  pluginConfig:\n  - {name: least-latency, args: {TTFTTPOTWeightFactor: 2}}\n  - {name: \
                kvcache-aware, args: {tokenization: {local: {a: /nope}}}}\nauth: {jwksUri: 'https://a'}\n";
    let problems = reload(&followed(None), text).err().unwrap_or_default();
    assert_eq!(problems.lines().count(), 3, "{problems}");
    for (line, part) in problems.lines().zip([
        "TTFTTPOTWeightFactor",
        "JWT authentication",
        "there is no directory \"/nope\"",
    ]) {
        assert!(line.starts_with("ConfigMap ns/conf:routerConfiguration:") && line.contains(part), "{line}");
    }
    let read =
        reload(&followed(None), "scheduler: {plugins: {Score: {enabled: [{name: randm, weight: 1}]}}}");
    let warnings = read.unwrap().warnings.join("\n");
    assert!(warnings.contains("did you mean \"random\"?"), "{warnings}");
    assert!(
        reload(&followed(None), "a: [").err().unwrap_or_default().contains("failed to parse router config")
    );
}
