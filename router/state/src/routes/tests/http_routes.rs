//! HTTPRoutes as Gateway API defines them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use kvasir_core::{EndpointId, SampleSink as _};
use rand::SeedableRng;
use rand::rngs::StdRng;
use regex::Regex;

use super::*;
use crate::plan::{
    HeaderChanges, PathChange, PlanAttachment, PlanBackend, PlanFilters, PlanHttpMatch, PlanHttpRoute,
    PlanHttpRule, PlanPath, PlanRedirect, PlanUrlRewrite,
};
use crate::{Redirect, Routed};

fn prefix(path: &str) -> PlanHttpMatch {
    PlanHttpMatch { path: PlanPath::Prefix(path.into()), ..PlanHttpMatch::default() }
}

fn exactly(path: &str) -> PlanHttpMatch {
    PlanHttpMatch { path: PlanPath::Exact(path.into()), ..PlanHttpMatch::default() }
}

fn rule(matches: Vec<PlanHttpMatch>, name: &str) -> PlanHttpRule {
    PlanHttpRule { matches, backends: vec![PlanBackend::new(to("ns", name), 1)], ..PlanHttpRule::default() }
}

fn http_route(id: &str, rules: Vec<PlanHttpRule>) -> PlanHttpRoute {
    let parent = PlanAttachment { gateway: object("ns/g"), listener: "l".into(), port: 8080 };
    PlanHttpRoute { id: object(id), created: 0, parents: vec![parent], hostnames: Vec::new(), rules }
}

/// A Gateway with one listener, and a ModelServer for each of `names`.
fn plan(names: &[&str], http_routes: Vec<PlanHttpRoute>) -> Plan {
    Plan {
        targets: names.iter().map(|name| server("ns", name)).collect(),
        http_routes,
        gateways: Some(vec![gateway("ns/g", &[("l", 8080, None)])]),
        ..Plan::default()
    }
}

fn get<'q>(path: &'q str) -> RouteQuery<'q> {
    RouteQuery { path, model: None, method: &Method::GET, ..chat("") }
}

fn at(state: &State, path: &str) -> String {
    went(route(state, &get(path)))
}

/// Worked example E: what no ModelRoute takes, an HTTPRoute may.
#[test]
fn an_http_route_takes_what_no_model_route_takes() {
    let mut plan = plan(&["pool", "s"], vec![http_route("ns/h", vec![rule(vec![prefix("/")], "pool")])]);
    plan.routes = vec![model_route("ns/r", "m", vec![rule_to("s")])];
    let state = with(plan);
    assert_eq!([went(named(&state, "m")), went(named(&state, "other"))], ["s", "pool"]);
    assert_eq!(went(route(&state, &RouteQuery { path: "/chat", ..chat("m") })), "pool");
    let found = named(&state, "other").expect("the pool");
    assert_eq!((found.rewrite(), found.by_model()), (None, false));
    assert_eq!(found.route, RouteName::Http("ns/h".into()));
    assert_eq!(found.listener.as_ref().map(|listener| listener.gateway.clone()), Some(object("ns/g")));
}

#[test]
fn prefixes_match_whole_segments() {
    let state = with(plan(
        &["foo", "root"],
        vec![http_route("ns/h", vec![rule(vec![prefix("/foo/")], "foo"), rule(vec![exactly("/")], "root")])],
    ));
    for (path, target) in [
        ("/foo", "foo"),
        ("/foo/", "foo"),
        ("/foo/bar", "foo"),
        ("/f%6fo/bar", "foo"),
        ("/foobar", "no match"),
        ("/foo-bar/baz", "no match"),
        ("/Foo", "no match"),
        ("/", "root"),
    ] {
        assert_eq!(at(&state, path), target, "{path}");
    }
}

#[test]
fn the_more_specific_match_wins() {
    let with_method = |path| PlanHttpMatch { method: Some(Method::GET), ..prefix(path) };
    let with_headers = |count: usize| PlanHttpMatch {
        headers: ["a", "b"][..count].iter().map(|name| ((*name).into(), StringTest::Any)).collect(),
        ..prefix("/")
    };
    let with_query = PlanHttpMatch { query: vec![("q".into(), StringTest::Any)], ..prefix("/") };
    let regex = PlanHttpMatch {
        path: PlanPath::Regex(Regex::new("^/re").expect("a good pattern")),
        ..PlanHttpMatch::default()
    };
    let rules = vec![
        rule(vec![regex], "regex"),
        rule(vec![with_query], "query"),
        rule(vec![with_headers(1)], "header"),
        rule(vec![with_headers(2)], "headers"),
        rule(vec![with_method("/m")], "method"),
        rule(vec![prefix("/m")], "no-method"),
        rule(vec![exactly("/long/er")], "exact"),
        rule(vec![prefix("/long/er")], "longer"),
        rule(vec![prefix("/long"), prefix("/also")], "long"),
        rule(vec![prefix("/long")], "twin"),
    ];
    let names =
        ["regex", "query", "header", "headers", "method", "no-method", "exact", "longer", "long", "twin"];
    let state = with(plan(&names, vec![http_route("ns/h", rules)]));
    let mut headers = HeaderMap::new();
    for (path, query, target) in [
        ("/long/er", None, "exact"),
        ("/long/er/", None, "longer"),
        ("/long/x", None, "long"),
        ("/also", None, "long"),
        ("/m/x", None, "method"),
        ("/re", None, "regex"),
        ("/re", Some("q=1"), "query"),
        ("/other", None, "no match"),
    ] {
        assert_eq!(went(route(&state, &RouteQuery { query, ..get(path) })), target, "{path}");
    }
    assert_eq!(went(route(&state, &RouteQuery { method: &Method::PUT, ..get("/m") })), "no-method");
    for (name, target) in [("a", "header"), ("b", "headers")] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        let query = RouteQuery { headers: &headers, query: Some("q"), ..get("/x") };
        assert_eq!(went(route(&state, &query)), target, "headers before parameters");
    }
}

#[test]
fn of_two_routes_the_one_with_the_better_host_wins_then_the_older() {
    let hosted = |id: &str, hosts: &[&str], created, path: &str, target: &str| PlanHttpRoute {
        hostnames: hosts.iter().map(|host| (*host).into()).collect(),
        created,
        ..http_route(id, vec![rule(vec![prefix(path)], target)])
    };
    let routes = vec![
        hosted("ns/any", &[], 0, "/long/path", "any"),
        hosted("ns/wild", &["*.example.com"], 0, "/long", "wild"),
        hosted("ns/longer", &["*.b.example.com"], 0, "/", "longer"),
        hosted("ns/exact", &["A.example.com", "c.example.com"], 0, "/", "exact"),
        hosted("ns/z", &["old.example.com"], 1, "/", "older"),
        hosted("ns/a", &["old.example.com"], 2, "/", "younger"),
        hosted("ns/c", &["old.example.com"], 1, "/", "first-by-name"),
    ];
    let names = ["any", "wild", "longer", "exact", "older", "younger", "first-by-name"];
    let state = with(plan(&names, routes));
    for (host, path, target) in [
        ("a.example.com", "/long/path", "exact"),
        ("C.EXAMPLE.com.:8080", "/x", "exact"),
        ("x.b.example.com", "/long", "longer"),
        ("x.example.com", "/long", "wild"),
        ("x.example.com", "/long/path", "wild"),
        ("x.example.com", "/other", "no match"),
        ("example.com", "/long/path", "any"),
        ("[fd00::5]:8080", "/long/path", "any"),
        ("old.example.com", "/", "first-by-name"),
    ] {
        assert_eq!(went(route(&state, &RouteQuery { host, ..get(path) })), target, "{host} {path}");
    }
}

#[test]
fn a_request_belongs_to_the_listener_of_its_host() {
    let mut plan = plan(&["one", "two"], Vec::new());
    plan.gateways = Some(vec![
        gateway("ns/g", &[("exact", 80, Some("a.Example.com")), ("wild", 80, Some("*.example.com"))]),
        gateway("ns/h", &[("any", 80, None), ("late", 80, Some("a.example.com")), ("other", 81, None)]),
    ]);
    let on = |id, gateway: &str, listener: &str, port, target| PlanHttpRoute {
        parents: vec![PlanAttachment { gateway: object(gateway), listener: listener.into(), port }],
        ..http_route(id, vec![rule(vec![], target)])
    };
    plan.http_routes = vec![
        on("ns/1", "ns/g", "exact", 80, "one"),
        on("ns/2", "ns/h", "other", 81, "two"),
        on("ns/3", "ns/h", "late", 80, "two"),
        on("ns/4", "ns/h", "any", 81, "two"),
    ];
    let (state, _) = state();
    let conflicts = state.replace(plan).conflicts;
    assert!(conflicts.len() == 1 && conflicts[0].contains("late"), "{conflicts:?}");
    for (port, host, listener, target) in [
        (80, "a.example.com:80", "exact", "one"),
        (80, "b.example.com", "wild", "no match"),
        (80, "example.com", "any", "no match"),
        (80, "[::1]:80", "any", "no match"),
        (81, "a.example.com", "other", "two"),
        (82, "a.example.com", "", "no listener"),
    ] {
        let routed = route(&state, &RouteQuery { port, host, ..get("/") });
        let by = routed.as_ref().ok().and_then(|found| found.listener.as_ref()).map(|l| l.name.to_string());
        assert!(by.is_none_or(|by| by == listener), "{host}");
        assert_eq!(went(routed), target, "{port} {host}");
    }
    assert_eq!(state.gateway_ports().map(|ports| ports.into_iter().collect()), Some(vec![80, 81]));
    assert!(state.in_gateway_mode());
}

#[test]
fn backends_that_cannot_be_used_take_their_share_of_errors() {
    let backends = vec![
        PlanBackend::new(to("ns", "s"), 2),
        PlanBackend::new(to("ns", "absent"), 1),
        PlanBackend::new(PlanTo::Refused("Service backends"), 1),
        PlanBackend::new(to("ns", "idle"), 0),
    ];
    let shared = PlanHttpRule { backends, ..rule(vec![prefix("/shared")], "s") };
    let none = PlanHttpRule { backends: Vec::new(), ..rule(vec![prefix("/none")], "s") };
    let mirror = PlanHttpRule { refused: Some("RequestMirror"), ..rule(vec![prefix("/mirror")], "s") };
    let state = with(plan(&["s", "idle"], vec![http_route("ns/h", vec![shared, none, mirror])]));
    assert_eq!([at(&state, "/none"), at(&state, "/mirror")], ["no backend", "refused: RequestMirror"]);
    let mut rng = StdRng::seed_from_u64(3);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..4_000 {
        let routed = state.resolve(&get("/shared"), &mut rng).map(|routed| match routed {
            Routed::To(resolved) => resolved,
            Routed::Elsewhere(redirect) => panic!("{redirect:?}"),
        });
        *counts.entry(went(routed)).or_insert(0_usize) += 1;
    }
    let counts: Vec<_> = counts.into_iter().collect();
    for ((name, count), (wanted, share)) in
        counts.iter().zip([("no target", 1_000), ("refused: Service backends", 1_000), ("s", 2_000)])
    {
        assert!(name == wanted && count.abs_diff(share) < 160, "{counts:?}");
    }
}

#[test]
fn what_a_rule_changes_is_told() {
    let header = |name: &'static str, value: &'static str| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let changes = |name| HeaderChanges { set: vec![header(name, "1")], ..HeaderChanges::default() };
    let mut rewriting = rule(vec![prefix("/team"), exactly("/exact")], "s");
    rewriting.filters.rewrite = Some(PlanUrlRewrite {
        hostname: Some(HeaderValue::from_static("engine.internal")),
        path: Some(PathChange::Prefix("/v1".into())),
    });
    rewriting.filters.request_headers = changes("x-rule");
    rewriting.backends[0].request_headers = changes("x-backend");
    rewriting.backends[0].response_headers = changes("content-length");
    rewriting.timeout = Some(Duration::from_secs(9));
    rewriting.attempt_timeout = Some(Duration::from_secs(3));
    let (state, _) = state();
    let mut plan = plan(&["s"], vec![http_route("ns/h", vec![rewriting, rule(vec![prefix("/plain")], "s")])]);
    plan.targets[0].timeout = Some(Duration::from_secs(5));
    let conflicts = state.replace(plan).conflicts;
    assert!(conflicts.len() == 1 && conflicts[0].contains("content-length"), "{conflicts:?}");
    let found = route(&state, &get("/team/a%2Fb")).expect("a route");
    assert_eq!(found.path.as_deref(), Some("/v1/a%2Fb"));
    assert_eq!((found.timeout, found.deadline), (Some(Duration::from_secs(3)), Some(Duration::from_secs(9))));
    let edits = found.edits.as_ref().expect("edits");
    assert_eq!(edits.host, Some(HeaderValue::from_static("engine.internal")));
    assert_eq!(edits.request, [changes("x-rule"), changes("x-backend")]);
    assert_eq!(edits.response, [HeaderChanges::default()], "the router's own header stays");
    assert_eq!(route(&state, &get("/exact")).expect("a route").path, None, "no prefix matched");
    let plain = route(&state, &get("/plain")).expect("a route");
    assert!(plain.edits.is_none() && plain.path.is_none() && plain.deadline.is_none());
    assert_eq!(plain.timeout, Some(Duration::from_secs(5)));
}

#[test]
fn a_redirect_keeps_what_it_does_not_name() {
    let none = PlanRedirect { scheme: None, hostname: None, port: None, path: None, status: 302 };
    let https = PlanRedirect { scheme: Some("https".into()), status: 301, ..none.clone() };
    let moved = PlanRedirect { path: Some(PathChange::Prefix("/new".into())), ..none.clone() };
    let all = PlanRedirect {
        scheme: Some("https".into()),
        hostname: Some("b.example".into()),
        port: Some(8443),
        path: Some(PathChange::Full("/there".into())),
        status: 308,
    };
    let usual = PlanRedirect { port: Some(80), ..none.clone() };
    for (redirect, location) in [
        (none, "http://a.example:8080/old/x?q=1"),
        (https, "https://a.example/old/x?q=1"),
        (moved, "http://a.example:8080/new/x?q=1"),
        (all, "https://b.example:8443/there?q=1"),
        (usual, "http://a.example/old/x?q=1"),
    ] {
        let filters = PlanFilters { redirect: Some(redirect.clone()), ..PlanFilters::default() };
        let rule = PlanHttpRule { filters, backends: Vec::new(), ..rule(vec![prefix("/old")], "s") };
        let state = with(plan(&[], vec![http_route("ns/h", vec![rule])]));
        let query = RouteQuery { host: "a.example:8080", query: Some("q=1"), ..get("/old/x") };
        let routed = state.resolve(&query, &mut StdRng::seed_from_u64(1));
        let Ok(Routed::Elsewhere(Redirect { status, location: got, .. })) = routed else {
            panic!("{routed:?}")
        };
        assert_eq!((status, got.as_str()), (redirect.status, location));
    }
}

#[test]
fn an_adapter_of_the_pool_is_known_by_name() {
    let lora = PlanRoute {
        adapters: vec!["lora".into()],
        parents: Some(Vec::new()),
        ..model_route("ns/r", "", vec![rule_to("pool")])
    };
    let mut plan = plan(&["pool"], vec![http_route("ns/h", vec![rule(vec![], "pool")])]);
    plan.routes = vec![lora];
    let state = with(plan);
    assert_eq!(named(&state, "lora").expect("the pool").adapter, Some("lora".into()));
    assert_eq!(named(&state, "other").expect("the pool").adapter, None);
    let before = route(&state, &get("/x")).expect("the pool");
    assert_eq!(before.asked_for("lora").adapter, Some("lora".into()));
}

/// Nobody wrote the name down; but what the engine caches for it must not count for the base model.
#[test]
fn an_adapter_that_an_engine_lists_is_known_by_name() {
    let state = with(plan(&["pool"], vec![http_route("ns/h", vec![rule(vec![], "pool")])]));
    let asked = |name| named(&state, name).expect("the pool").adapter;
    assert_eq!(asked("sql"), None);
    let pod = EndpointId::new("default", "ns-pool", 8000, 0);
    state.adapters_listed(&pod, vec!["sql".to_owned(), "law".to_owned()]);
    assert_eq!((asked("sql"), asked("law"), asked("base")), (Some("sql".into()), Some("law".into()), None));
    state.adapters_listed(&pod, vec!["law".to_owned()]);
    assert_eq!(asked("sql"), None, "it was unloaded");
}
