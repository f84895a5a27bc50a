//! What is shared with other replicas, and through which Redis.

use super::*;
use crate::coordination::{CoordinationMode, SharedLoadMode};
use crate::facts::RedisEnvironment;

/// A document that scores by `plugin`, with `args` for kvcache-aware.
fn scoring_by(plugin: &str, args: &str) -> String {
    format!(
        "scheduler: {{pluginConfig: [{{name: kvcache-aware, args: {args}}}], \
         plugins: {{Score: {{enabled: [{{name: {plugin}, weight: 1}}]}}}}}}"
    )
}

fn with_redis(document: Option<&str>, url: &str, host: Option<&str>) -> Result<Settings, String> {
    let files = MemoryFiles(HashMap::from([("r.yaml", document.unwrap_or_default().to_owned())]));
    let args = RouterArgs {
        config: document.map(|_| "r.yaml".to_owned()),
        redis: RedisArgs { redis: Some(Secret::new(url)), ..RedisArgs::default() },
        ..one_model()
    };
    let redis = RedisEnvironment { host: host.map(str::to_owned), ..RedisEnvironment::default() };
    let environment = KthenaEnvironment { redis, ..KthenaEnvironment::default() };
    let facts = SystemFacts { environment, ..SystemFacts::default() };
    resolve_from(&args, &files, &facts).map_err(|problems| problems.to_string())
}

#[test]
fn a_document_with_kvcache_aware_means_a_redis() {
    let plain = scoring_by("kvcache-aware", "{}");
    let query = scoring_by("kvcache-aware", "{coordination: query, queryBudget: 60ms}");
    let other = scoring_by("least-request", "{coordination: query}");
    let mode = Some(CoordinationMode::Query);
    for (document, url, host, redis, implied, coordination) in [
        (None, "", None, None, false, None),
        (None, "redis://a", None, Some("a:6379/0"), false, None),
        (None, "", Some("b"), Some("b:6379/0"), false, None),
        (Some(&plain), "", None, Some("redis-server:6379/0"), true, None),
        (Some(&plain), "none", None, None, false, None),
        (Some(&plain), "", Some("b"), Some("b:6379/0"), false, None),
        (Some(&query), "", Some("b"), Some("b:6379/0"), false, mode),
        (Some(&query), "redis-cluster://a", Some("b"), Some("cluster at a:6379"), false, mode),
        (Some(&other), "", None, None, false, None),
    ] {
        let read = with_redis(document.map(String::as_str), url, host);
        let read = read.unwrap_or_else(|problems| panic!("{document:?}: {problems}"));
        assert_eq!(read.redis.as_ref().map(ToString::to_string).as_deref(), redis, "{document:?} {url}");
        assert_eq!(read.redis.is_some_and(|redis| redis.implied), implied, "{document:?} {url}");
        assert_eq!(read.coordination, coordination, "{document:?} {url}");
    }
    let budget = with_redis(Some(&query), "", Some("b")).map(|read| read.scheduler);
    let budget = budget
        .map(|read| (read.args.kvcache_aware.query_budget.as_millis(), read.gather_deadline.as_millis()));
    assert_eq!(budget, Ok((60, 310)), "gathering outlasts the tokens and the lookup");
}

#[test]
fn lookups_need_a_redis_that_somebody_named() {
    let query = scoring_by("kvcache-aware", "{coordination: query}");
    for url in ["", "none"] {
        let problems = with_redis(Some(&query), url, None).err().unwrap_or_default();
        assert_eq!(
            problems,
            "r.yaml: kvcache-aware.coordination: blocks cannot be looked up for each request: no Redis is named; \
             add --redis redis://HOST:PORT, or set REDIS_HOST; or remove coordination"
        );
    }
    let problems = with_redis(Some(&query), "redis://", None).err().unwrap_or_default();
    assert_eq!(problems, "--redis: the host is empty; write HOST:PORT", "the cause alone is named");
}

#[test]
fn what_replicas_share_is_checked() {
    let set = |text: &str| text.to_owned();
    let args = RouterArgs { shared_load: set("kthena"), ..one_model() };
    let problems_of = |args: &RouterArgs| problems(args, &SystemFacts::default());
    assert!(problems_of(&args).contains("--shared-load: there is no Redis to share the load through"));
    let args = RouterArgs {
        shared_load: set("nativ"),
        mirror_grace: set("60"),
        replica_name: Some(set("a b")),
        ..one_model()
    };
    let all = problems_of(&args);
    for part in [
        "--shared-load: there is no mode \"nativ\"; did you mean \"native\"?",
        "--mirror-grace: \"60\" has no unit",
        "--replica-name: \"a b\" is no name of a replica; write up to 128 letters, digits, - . or _",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
    assert_eq!(all.lines().count(), 3, "{all}");
    let args = RouterArgs {
        redis: RedisArgs { redis: Some(Secret::new("redis://a")), ..RedisArgs::default() },
        shared_load: set("native"),
        mirror_grace: set("2s"),
        replica_name: Some(set("router-0.ns")),
        ..one_model()
    };
    let read = settings(&args);
    assert_eq!((read.shared_load, read.mirror_grace), (SharedLoadMode::Native, Duration::from_secs(2)));
    assert_eq!(read.replica_name.as_deref(), Some("router-0.ns"));
}

#[test]
fn a_grace_outlasts_two_readings_of_redis() {
    for grace in ["0", "1999ms"] {
        let all =
            problems(&RouterArgs { mirror_grace: grace.to_owned(), ..one_model() }, &SystemFacts::default());
        let wanted = "what Redis told is read anew every second";
        assert!(all.contains(wanted) && all.ends_with("write at least 2s"), "{all}");
        assert_eq!(all.lines().count(), 1, "{all}");
    }
}
