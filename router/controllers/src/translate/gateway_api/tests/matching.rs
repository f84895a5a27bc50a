//! Which route takes a request: the cases of Gateway API's conformance suite for matches, precedence and weights.

use super::*;

fn asked(world: &World, table: &[(Ask<'_>, &str)]) {
    for (ask, wanted) in table {
        assert_eq!(ask.goes(world), *wanted, "{ask:?}");
    }
}

fn with_headers<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Ask<'a> {
    Ask { headers, ..post(path) }
}

#[test]
fn simple_paths_and_headers() {
    let rules = [
        rule(
            "matches: [{path: {type: PathPrefix, value: /}}, {headers: [{name: version, value: one}]}]",
            "v1",
        ),
        rule("matches: [{path: {value: /v2}}, {headers: [{name: version, value: two}]}]", "v2"),
    ];
    let world = routed(&route("matching", &rules.join(", ")));
    assert_eq!(world.route("matching"), GOOD);
    asked(
        &world,
        &[
            (post("/"), "v1"),
            (post("/example"), "v1"),
            (with_headers("/", &[("Version", "one")]), "v1"),
            (post("/v2"), "v2"),
            (post("/v2/"), "v2"),
            (post("/v2/example"), "v2"),
            (with_headers("/", &[("Version", "two")]), "v2"),
            (post("/v2example"), "v1"),
            (post("/foo/v2/example"), "v1"),
        ],
    );
}

#[test]
fn across_routes_the_more_specific_match_counts() {
    let second = rule("matches: [{path: {value: /v2}}, {headers: [{name: version, value: two}]}]", "v2");
    let routes = [
        route("one", &rule("matches: [{path: {value: /}}, {headers: [{name: version, value: one}]}]", "v1")),
        route("two", &second),
    ];
    let hosts = |route: &str, hosts: &str| route.replace("rules:", &format!("hostnames: [{hosts}], rules:"));
    let world =
        routed(&[hosts(&routes[0], "example.com, example.net"), hosts(&routes[1], "example.com")].concat());
    asked(
        &world,
        &[
            (Ask { host: "example.com", ..post("/") }, "v1"),
            (Ask { host: "example.com", ..post("/v2") }, "v2"),
            (Ask { host: "example.com", headers: &[("version", "two")], ..post("/") }, "v2"),
            (Ask { host: "example.net", ..post("/v2") }, "v1"),
            (Ask { host: "example.net", headers: &[("version", "two")], ..post("/") }, "v1"),
            (Ask { host: "example.org", ..post("/") }, "no match"),
        ],
    );
}

#[test]
fn exact_paths() {
    let exact =
        |path: &str, to: &str| rule(&format!("matches: [{{path: {{type: Exact, value: {path}}}}}]"), to);
    let world = routed(&route("exact", &[exact("/one", "v1"), exact("/two", "v2")].join(", ")));
    asked(
        &world,
        &[
            (post("/one"), "v1"),
            (post("/two"), "v2"),
            (post("/"), "no match"),
            (post("/one/example"), "no match"),
            (post("/two/"), "no match"),
            (post("/Two"), "no match"),
        ],
    );
}

#[test]
fn exact_before_long_prefix_before_short_before_expression() {
    let path = |kind: &str, value: &str, to: &str| {
        rule(&format!("matches: [{{path: {{type: {kind}, value: \"{value}\"}}}}]"), to)
    };
    let rules = [
        path("RegularExpression", "/match", "v3"),
        path("PathPrefix", "/match", "v1"),
        path("PathPrefix", "/match/prefix/one", "v2"),
        path("Exact", "/match/exact", "v2"),
        path("Exact", "/match/exact/one", "v3"),
    ];
    let world = routed(&route("order", &rules.join(", ")));
    asked(
        &world,
        &[
            (post("/match/exact/one"), "v3"),
            (post("/match/exact"), "v2"),
            (post("/match"), "v1"),
            (post("/match/prefix/one/any"), "v2"),
            (post("/match/prefix/any"), "v1"),
            (post("/match/any"), "v1"),
            (post("/rematch"), "no match"),
            (post("/a/match"), "v3"),
        ],
    );
}

/// As in kthena, an expression is RE2's and found anywhere in the path.
#[test]
fn expressions_are_re2_and_found_anywhere() {
    let expression = |value: &str, to: &str| {
        rule(&format!("matches: [{{path: {{type: RegularExpression, value: '{value}'}}}}]"), to)
    };
    let rules =
        [expression("^/m/{id}$", "v1"), expression(r"chat/\d+$", "v2"), expression("(?i)/EMBED", "v3")];
    let world = routed(&route("expressions", &rules.join(", ")));
    asked(
        &world,
        &[
            (post("/m/{id}"), "v1"),
            (post("/x/chat/12"), "v2"),
            (post("/x/chat/12/"), "no match"),
            (post("/x/chat/१"), "no match"),
            (post("/v1/embeddings"), "v3"),
        ],
    );
}

#[test]
fn headers() {
    let headers = |list: &[(&str, &str)], to: &str| {
        let list: Vec<String> =
            list.iter().map(|(name, value)| format!("{{name: {name}, value: {value}}}")).collect();
        rule(&format!("matches: [{{headers: [{}]}}]", list.join(", ")), to)
    };
    let rules = [
        headers(&[("version", "one")], "v1"),
        headers(&[("version", "two")], "v2"),
        headers(&[("version", "two"), ("color", "orange")], "v1"),
        rule(
            "matches: [{headers: [{name: color, value: blue}]}, {headers: [{name: color, value: green}]}]",
            "v1",
        ),
        rule("matches: [{headers: [{name: color, type: RegularExpression, value: '^re'}]}]", "v3"),
    ];
    let world = routed(&route("headers", &rules.join(", ")));
    asked(
        &world,
        &[
            (with_headers("/", &[("version", "one")]), "v1"),
            (with_headers("/", &[("Version", "two")]), "v2"),
            (with_headers("/", &[("version", "two"), ("color", "orange")]), "v1"),
            (with_headers("/", &[("version", "two"), ("color", "blue")]), "v2"),
            (with_headers("/", &[("color", "blue")]), "v1"),
            (with_headers("/", &[("color", "green")]), "v1"),
            (with_headers("/", &[("color", "red")]), "v3"),
            (with_headers("/", &[("color", "Blue")]), "no match"),
            (with_headers("/", &[("another", "one")]), "no match"),
            (post("/"), "no match"),
        ],
    );
}

#[test]
fn parameters_of_the_query() {
    let rules = [
        rule("matches: [{queryParams: [{name: animal, value: whale}]}]", "v1"),
        rule("matches: [{queryParams: [{name: animal, value: dolphin}]}]", "v2"),
        rule("matches: [{queryParams: [{name: animal, value: dolphin}, {name: color, value: blue}]}]", "v3"),
        rule("matches: [{queryParams: [{name: ANIMAL, value: Whale}]}]", "v3"),
        rule(
            "matches: [{path: {value: /path5}, queryParams: [{name: animal, value: hydra}], \
             headers: [{name: color, value: red}]}]",
            "v1",
        ),
        rule("matches: [{queryParams: [{name: number, type: RegularExpression, value: '^[0-9]+$'}]}]", "v2"),
    ];
    let world = routed(&route("query", &rules.join(", ")));
    let query = |query| Ask { query: Some(query), ..post("/") };
    asked(
        &world,
        &[
            (query("animal=whale"), "v1"),
            (query("animal=dolphin"), "v2"),
            (query("animal=dolphin&color=blue"), "v3"),
            (query("color=blue&animal=dolphin"), "v3"),
            (query("ANIMAL=Whale"), "v3"),
            (query("animal=whale&otherparam=irrelevant"), "v1"),
            (query("animal=dog"), "no match"),
            (query("animal=whaledolphin"), "no match"),
            (post("/"), "no match"),
            (query("number=12"), "v2"),
            (query("number=1x"), "no match"),
            (Ask { query: Some("animal=hydra"), headers: &[("color", "red")], ..post("/path5") }, "v1"),
        ],
    );
}

#[test]
fn methods() {
    let rules = [
        rule("matches: [{method: POST}]", "v1"),
        rule("matches: [{method: GET}]", "v2"),
        rule("matches: [{path: {value: /path1}, method: GET}]", "v1"),
        rule(
            "matches: [{path: {value: /path1}, method: PATCH, headers: [{name: version, value: one}]}]",
            "v3",
        ),
        rule("matches: [{path: {value: /path2}}]", "v3"),
    ];
    let world = routed(&route("methods", &rules.join(", ")));
    let ask = |method, path| Ask { method, ..post(path) };
    asked(
        &world,
        &[
            (ask("POST", "/"), "v1"),
            (ask("GET", "/"), "v2"),
            (ask("HEAD", "/"), "no match"),
            (ask("GET", "/path1"), "v1"),
            (Ask { headers: &[("version", "one")], ..ask("PATCH", "/path1") }, "v3"),
            (ask("PATCH", "/path1"), "no match"),
            (ask("GET", "/path2"), "v3"),
            (ask("PATCH", "/path2/x"), "v3"),
        ],
    );
}

/// Method, then headers, then parameters; then the older route, then the name; then the earlier rule.
#[test]
fn precedence_of_equal_paths() {
    let at = |name: &str, created: &str, fields: &str, to: &str| {
        let route = route(name, &rule(&format!("matches: [{{{fields}}}]"), to));
        route.replace("metadata: {", &format!("metadata: {{creationTimestamp: \"{created}\", "))
    };
    let path = "path: {value: /p}";
    let world = routed(
        &[
            at("a", "2026-01-03T00:00:00Z", path, "v3"),
            at("b", "2026-01-01T00:00:00Z", path, "v1"),
            at("c", "2026-01-01T00:00:00Z", path, "v2"),
            at("d", "2026-01-05T00:00:00Z", &format!("{path}, queryParams: [{{name: q, value: x}}]"), "v2"),
            at("e", "2026-01-06T00:00:00Z", &format!("{path}, headers: [{{name: h, value: x}}]"), "v3"),
            at("f", "2026-01-07T00:00:00Z", &format!("{path}, method: GET"), "v2"),
        ]
        .concat(),
    );
    asked(
        &world,
        &[
            (post("/p"), "v1"),
            (Ask { query: Some("q=x"), ..post("/p") }, "v2"),
            (Ask { query: Some("q=x"), headers: &[("h", "x")], ..post("/p") }, "v3"),
            (Ask { query: Some("q=x"), headers: &[("h", "x")], method: "GET", ..post("/p") }, "v2"),
        ],
    );
    let twice = [rule("matches: [{path: {value: /}}]", "v1"), rule("matches: [{path: {value: /}}]", "v2")];
    asked(&routed(&route("twice", &twice.join(", "))), &[(post("/"), "v1")]);
}

#[test]
fn a_rule_without_matches_takes_every_path_and_a_route_without_rules_has_no_backend() {
    let world = routed(&route("all", &format!("{{backendRefs: [{}]}}", pool("v1"))));
    asked(&world, &[(post("/"), "v1"), (post("/any/thing"), "v1")]);
    let world = routed(&route("none", ""));
    assert_eq!(world.route("none"), GOOD);
    asked(&world, &[(post("/"), "no backend")]);
}

#[test]
fn weights() {
    let weighted = |name: &str, weight: &str| pool(name).replace('}', &format!(", weight: {weight}}}"));
    let backends = [weighted("v1", "70"), weighted("v2", "30"), weighted("v3", "0")];
    let world = routed(&route("weights", &format!("{{backendRefs: [{}]}}", backends.join(", "))));
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for seed in 0..2_000 {
        *counts.entry(Ask { seed, ..post("/") }.goes(&world)).or_default() += 1;
    }
    assert!(counts["v1"].abs_diff(1_400) < 100 && counts["v2"].abs_diff(600) < 100, "{counts:?}");
    assert_eq!(counts.len(), 2, "{counts:?}");
    let equal = format!("{{backendRefs: [{}, {}]}}", pool("v1"), pool("v2"));
    let world = routed(&route("equal", &equal));
    let first = (0..1_000).filter(|seed| Ask { seed: *seed, ..post("/") }.goes(&world) == "v1").count();
    assert!(first.abs_diff(500) < 80, "absent weights are 1: {first}");
    let nobody = format!("{{backendRefs: [{}]}}", weighted("v1", "0"));
    asked(&routed(&route("nobody", &nobody)), &[(post("/"), "no backend")]);
}
