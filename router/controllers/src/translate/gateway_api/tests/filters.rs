//! What happens to requests and answers on the way: the conformance suite's cases for filters and timeouts.

use std::time::Duration;

use kvasir_state::plan::HeaderChanges;

use super::*;

/// A rule with one filter and a pool.
fn filtered(filter: &str, matches: &str) -> String {
    rule(&format!("{matches}filters: [{filter}]"), "v1")
}

fn shown(changes: &[HeaderChanges]) -> String {
    let value = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let pairs = |sign: &str, pairs: &[(HeaderName, http::HeaderValue)]| -> Vec<String> {
        pairs.iter().map(|(name, held)| format!("{sign}{name}: {}", value(held))).collect()
    };
    let each = changes.iter().map(|changes| {
        let removed = changes.remove.iter().map(|name| format!("-{name}"));
        let all: Vec<String> = pairs("=", &changes.set).into_iter().chain(pairs("+", &changes.add)).collect();
        all.into_iter().chain(removed).collect::<Vec<_>>().join(", ")
    });
    each.collect::<Vec<_>>().join(" | ")
}

#[test]
fn header_modifiers_of_a_rule_and_of_a_backend() {
    let request = |of: &str| {
        format!(
            "{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: X-Set, value: {of}}}, \
             {{name: x-set, value: second}}], add: [{{name: X-Add, value: {of}-add}}], remove: [X-Remove]}}}}"
        )
    };
    let response =
        "{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-answer, value: a}]}}";
    let backend = format!(
        "{{group: inference.networking.k8s.io, kind: InferencePool, name: v1, filters: [{}, {response}]}}",
        request("backend")
    );
    let rule = format!("{{filters: [{}, {response}], backendRefs: [{backend}]}}", request("rule"));
    let world = routed(&route("headers", &rule));
    assert_eq!(world.route("headers"), GOOD);
    let resolved = post("/").resolved(&world);
    let edits = resolved.edits.as_ref().expect("headers change");
    assert_eq!(
        shown(&edits.request),
        "=x-set: rule, +x-add: rule-add, -x-remove | =x-set: backend, +x-add: backend-add, -x-remove"
    );
    assert_eq!(shown(&edits.response), "=x-answer: a | =x-answer: a");
}

#[test]
fn redirects() {
    let prefix = "matches: [{path: {type: PathPrefix, value: /original}}], ";
    for (redirect, matches, ask, location) in [
        ("{hostname: example.com}", "", post("/a"), "302 http://example.com/a"),
        (
            "{hostname: example.com, statusCode: 301}",
            "",
            Ask { query: Some("q=1"), ..post("/a") },
            "301 http://example.com/a?q=1",
        ),
        ("{port: 8083}", "", post("/a"), "302 http://example.org:8083/a"),
        ("{scheme: https}", "", post("/a"), "302 https://example.org/a"),
        ("{scheme: HTTPS, port: 8443}", "", post("/a"), "302 https://example.org:8443/a"),
        ("{scheme: http, port: 80}", "", post("/a"), "302 http://example.org/a"),
        ("{statusCode: 303}", "", post("/a"), "303 http://example.org/a"),
        ("{statusCode: 307}", "", post("/a"), "307 http://example.org/a"),
        ("{statusCode: 308}", "", post("/a"), "308 http://example.org/a"),
        (
            "{path: {type: ReplacePrefixMatch, replacePrefixMatch: /replacement}}",
            prefix,
            post("/original/lemon"),
            "302 http://example.org/replacement/lemon",
        ),
        (
            "{path: {type: ReplaceFullPath, replaceFullPath: /full}}",
            prefix,
            post("/original/x"),
            "302 http://example.org/full",
        ),
    ] {
        let rule = format!("{{{matches}filters: [{{type: RequestRedirect, requestRedirect: {redirect}}}]}}");
        let world = routed(&route("redirect", &rule));
        assert_eq!(world.route("redirect"), GOOD, "{redirect}");
        assert_eq!(ask.goes(&world), location, "{redirect}");
    }
}

#[test]
fn rewrites() {
    let prefix = |value: &str| format!("matches: [{{path: {{type: PathPrefix, value: {value}}}}}], ");
    let replace = |with: &str| format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {with}}}");
    let full = |with: &str| format!("path: {{type: ReplaceFullPath, replaceFullPath: {with}}}");
    for (rewrite, matches, path, sent, host) in [
        ("hostname: one.example.org".to_owned(), String::new(), "/a", None, Some("one.example.org")),
        (replace("/one"), prefix("/prefix/one"), "/prefix/one/two", Some("/one/two"), None),
        (replace("/"), prefix("/strip-prefix"), "/strip-prefix/three", Some("/three"), None),
        (replace("\"\""), prefix("/strip-prefix"), "/strip-prefix", Some("/"), None),
        (replace("/v1"), prefix("/"), "/chat", Some("/v1/chat"), None),
        (full("/one"), prefix("/full"), "/full/one", Some("/one"), None),
        (
            format!("hostname: h.example, {}", replace("/x")),
            prefix("/p"),
            "/p/q",
            Some("/x/q"),
            Some("h.example"),
        ),
    ] {
        let filter = format!("{{type: URLRewrite, urlRewrite: {{{rewrite}}}}}");
        let world = routed(&route("rewrite", &filtered(&filter, &matches)));
        assert_eq!(world.route("rewrite"), GOOD, "{rewrite}");
        let resolved = post(path).resolved(&world);
        assert_eq!(resolved.path.as_deref(), sent, "{rewrite}");
        let edits = resolved.edits.as_ref().expect("something changes");
        assert_eq!(edits.host.as_ref().and_then(|host| host.to_str().ok()), host, "{rewrite}");
    }
}

#[test]
fn timeouts() {
    let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
    for (timeouts, deadline, attempt) in [
        ("{}", None, None),
        ("{request: 5s}", seconds(5), None),
        ("{backendRequest: 2s}", None, seconds(2)),
        ("{request: 5s, backendRequest: 5s}", seconds(5), seconds(5)),
        ("{request: 0s, backendRequest: 9s}", None, seconds(9)),
        ("{request: 5s, backendRequest: 0s}", seconds(5), None),
    ] {
        let world = routed(&route("timeouts", &rule(&format!("timeouts: {timeouts}"), "v1")));
        assert_eq!(world.route("timeouts"), GOOD, "{timeouts}");
        let resolved = post("/").resolved(&world);
        assert_eq!((resolved.deadline, resolved.timeout), (deadline, attempt), "{timeouts}");
    }
}
