//! ModelRoutes as kthena reads them.

use http::{HeaderMap, HeaderName, HeaderValue};
use rand::SeedableRng;
use rand::rngs::StdRng;
use regex::Regex;

use super::*;
use crate::plan::RetryPolicy;
use crate::{Routed, Target};

fn regex(pattern: &str) -> StringTest {
    StringTest::Regex(Regex::new(pattern).expect("a good pattern"))
}

fn exact(text: &str) -> StringTest {
    StringTest::Exact(text.into())
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

/// Worked example A: the first rule that matches is used, header names have no case, of a repeated one the first counts.
#[test]
fn rules_are_tried_in_order() {
    let premium = PlanRule { headers: vec![("user-type".into(), exact("premium"))], ..rule_to("7b") };
    let state = with(Plan {
        targets: vec![server("ns", "7b"), server("ns", "1.5b")],
        routes: vec![model_route("ns/m", "m", vec![premium, rule_to("1.5b")])],
        ..Plan::default()
    });
    for (sent, target) in [
        (headers(&[("user-type", "premium")]), "7b"),
        (headers(&[("user-type", "Premium")]), "1.5b"),
        (headers(&[("user-type", "basic"), ("user-type", "premium")]), "1.5b"),
        (headers(&[("user-type", "premium"), ("user-type", "basic")]), "7b"),
        (headers(&[]), "1.5b"),
    ] {
        assert_eq!(went(route(&state, &RouteQuery { headers: &sent, ..chat("m") })), target, "{sent:?}");
    }
}

/// Worked example B: the older route of a name has it, but for what its rules leave.
#[test]
fn the_first_route_of_a_name_is_used_as_far_as_its_rules_go() {
    let plan = |older: PlanRule| Plan {
        targets: vec![server("ns", "older"), server("ns", "younger")],
        routes: vec![model_route("b/x", "m", vec![older]), model_route("a/y", "m", vec![rule_to("younger")])],
        ..Plan::default()
    };
    let state = with(plan(rule_to("older")));
    assert_eq!(went(named(&state, "m")), "older");
    let state =
        with(plan(PlanRule { uri: Some(StringTest::Prefix("/v1/completions".into())), ..rule_to("older") }));
    assert_eq!(went(named(&state, "m")), "younger");
    assert_eq!(went(route(&state, &RouteQuery { path: "/v1/completions", ..chat("m") })), "older");
}

/// Worked example C: a name that is some route's model is no adapter.
#[test]
fn a_model_hides_an_adapter_of_its_name() {
    let lora = PlanRoute {
        adapters: vec!["foo".into(), "bar".into()],
        ..model_route("ns/2", "", vec![rule_to("lora")])
    };
    let state = with(Plan {
        targets: vec![server("ns", "base"), server("ns", "lora")],
        routes: vec![
            lora,
            model_route(
                "ns/1",
                "foo",
                vec![PlanRule { body_model: Some("other".into()), ..rule_to("base") }],
            ),
        ],
        ..Plan::default()
    });
    assert_eq!(went(named(&state, "foo")), "no match", "even where the route of that model does not take it");
    let bar = named(&state, "bar").expect("an adapter");
    assert_eq!((&*bar.target.id.name.name, bar.adapter.clone()), ("lora", Some("bar".into())));
    let listed: Vec<_> = state.models().iter().map(|l| (l.id.clone(), l.adapter, l.parent.clone())).collect();
    assert_eq!(listed, [("bar".into(), true, Some("lora".into())), ("foo".into(), false, None)]);
}

/// Worked example D: a route serves the Gateways of its namespace, or those it names.
#[test]
fn gateways_keep_their_routes_apart() {
    let named_parent = vec![PlanParent { gateway: object("ns1/g"), section: None, port: None }];
    let routes = vec![
        PlanRoute { parents: Some(named_parent), ..model_route("ns2/r", "m", vec![rule_to("two")]) },
        model_route("ns1/r", "m", vec![rule_to("one")]),
    ];
    let mut plan = Plan {
        targets: vec![server("ns", "one"), server("ns", "two")],
        routes,
        gateways: Some(vec![gateway("ns1/g", &[("l", 8080, None)]), gateway("ns2/g", &[("l", 8081, None)])]),
        ..Plan::default()
    };
    let at = |plan: &Plan, port| went(route(&with(plan.clone()), &RouteQuery { port, ..chat("m") }));
    assert_eq!([at(&plan, 8080), at(&plan, 8081), at(&plan, 8082)], ["two", "no match", "no listener"]);
    plan.routes.reverse();
    assert_eq!(at(&plan, 8080), "one", "the older of the two");
    plan.gateways = None;
    assert_eq!(at(&plan, 8080), "one");
    plan.routes.remove(0);
    assert_eq!(at(&plan, 8080), "no match", "a route with parents serves no door without a Gateway");
}

#[test]
fn a_parent_means_the_listeners_of_its_section_and_port() {
    let parent = |section: Option<&str>, port| PlanParent {
        gateway: object("ns/g"),
        section: section.map(Into::into),
        port,
    };
    let plan = |parents| Plan {
        targets: vec![server("ns", "s")],
        routes: vec![PlanRoute { parents: Some(parents), ..model_route("ns/r", "m", vec![rule_to("s")]) }],
        gateways: Some(vec![
            gateway(
                "ns/g",
                &[("one", 8080, None), ("named", 8080, Some("a.example.com")), ("two", 8081, None)],
            ),
            gateway("ns/h", &[("three", 8082, None), ("one", 8083, None)]),
        ]),
        ..Plan::default()
    };
    let doors = [8080, 8081, 8082, 8083].map(|port| (port, "router"));
    for (parents, served) in [
        (vec![parent(None, None)], vec!["8080 router", "8081 router", "8080 a.example.com"]),
        (vec![parent(Some("one"), None)], vec!["8080 router"]),
        (vec![parent(Some("named"), None)], vec!["8080 a.example.com"]),
        (vec![parent(None, Some(8080))], vec!["8080 router", "8080 a.example.com"]),
        (vec![parent(Some("two"), Some(8081))], vec!["8081 router"]),
        (vec![parent(Some("two"), Some(8080))], vec![]),
        (vec![parent(Some("three"), None)], vec![]),
        (vec![parent(None, Some(8082))], vec![]),
        (vec![parent(Some("three"), None), parent(Some("two"), None)], vec!["8081 router"]),
        (vec![], vec![]),
    ] {
        let state = with(plan(parents.clone()));
        let takes = |(port, host): &(u16, &'static str)| {
            route(&state, &RouteQuery { port: *port, host, ..chat("m") }).is_ok()
        };
        let found = doors.into_iter().chain([(8080, "a.example.com")]).filter(takes);
        let found: Vec<_> = found.map(|(port, host)| format!("{port} {host}")).collect();
        assert_eq!(found, served, "{parents:?}");
    }
}

#[test]
fn every_condition_must_hold() {
    let rule = |change: fn(&mut PlanRule)| {
        let mut rule = rule_to("s");
        change(&mut rule);
        rule
    };
    let cases: [(&str, PlanRule, bool); 12] = [
        ("nothing", rule_to("s"), true),
        ("model", rule(|rule| rule.body_model = Some("m".into())), true),
        ("other model", rule(|rule| rule.body_model = Some("M".into())), false),
        ("path", rule(|rule| rule.uri = Some(exact("/v1/a b"))), true),
        ("raw path", rule(|rule| rule.uri = Some(exact("/v1/a%20b"))), false),
        ("prefix", rule(|rule| rule.uri = Some(StringTest::Prefix("/v1/a".into()))), true),
        ("regex", rule(|rule| rule.uri = Some(regex("a.b$"))), true),
        ("bad regex", rule(|rule| rule.uri = Some(StringTest::Never)), false),
        ("absent header", rule(|rule| rule.headers = vec![("x".into(), regex(".*"))]), true),
        ("host", rule(|rule| rule.headers = vec![("host".into(), exact("router"))]), false),
        (
            "two headers",
            rule(|rule| rule.headers = vec![("a".into(), exact("1")), ("b".into(), exact("2"))]),
            true,
        ),
        (
            "one wrong",
            rule(|rule| rule.headers = vec![("a".into(), exact("1")), ("b".into(), exact("3"))]),
            false,
        ),
    ];
    let sent = headers(&[("a", "1"), ("b", "2"), ("host", "router")]);
    for (name, rule, matches) in cases {
        let state = with(Plan {
            targets: vec![server("ns", "s")],
            routes: vec![model_route("ns/r", "m", vec![rule])],
            ..Plan::default()
        });
        let query = RouteQuery { headers: &sent, path: "/v1/a%20b", ..chat("m") };
        assert_eq!(route(&state, &query).is_ok(), matches, "{name}");
    }
}

/// What is refused or missing is found out after the route was chosen: no other route takes over.
#[test]
fn a_matched_route_that_leads_nowhere_says_why() {
    let refused = PlanTarget { refused: Some("pdGroup"), ..server("ns", "pd") };
    let rule = |to| PlanRule { to: vec![(to, 1)], ..PlanRule::default() };
    let limited =
        PlanRoute { refused: Some("rateLimit"), ..model_route("ns/limited", "limited", vec![rule_to("s")]) };
    let mut routes = vec![
        model_route("ns/dangling", "dangling", vec![rule_to("absent")]),
        model_route("ns/provider", "provider", vec![rule(PlanTo::Refused("external providers"))]),
        model_route("ns/pd", "pd", vec![rule_to("pd")]),
        limited,
        model_route("ns/empty", "empty", vec![]),
        model_route(
            "ns/weightless",
            "weightless",
            vec![PlanRule { to: vec![(to("ns", "s"), 0)], ..rule_to("s") }],
        ),
    ];
    let names = ["dangling", "provider", "pd", "limited", "empty", "weightless"];
    routes.extend(names.map(|name| model_route(&format!("ns/second-{name}"), name, vec![rule_to("s")])));
    let state = with(Plan { targets: vec![server("ns", "s"), refused], routes, ..Plan::default() });
    assert_eq!(
        names.map(|name| went(named(&state, name))),
        ["no target", "refused: external providers", "refused: pdGroup", "refused: rateLimit", "s", "s"]
    );
    let error = named(&state, "dangling").expect_err("no target");
    assert_eq!(error.route(), Some(&RouteName::Model("ns/dangling".into())));
}

#[test]
fn names_are_rewritten_as_the_target_wants_but_for_adapters() {
    let retry = Some(RetryPolicy { attempts: 3, interval: std::time::Duration::from_millis(5) });
    let timeout = Some(std::time::Duration::from_secs(7));
    let mut base = PlanTarget { served: Some("org/base".into()), retry, timeout, ..server("ns", "base") };
    base.index_model = "org/base".into();
    let as_is = server("ns", "as-is");
    let routes = vec![
        PlanRoute { adapters: vec!["lora".into()], ..model_route("ns/1", "m", vec![rule_to("base")]) },
        model_route("ns/2", "org/base", vec![rule_to("base")]),
        model_route("ns/3", "plain", vec![rule_to("as-is")]),
    ];
    let state = with(Plan { targets: vec![base, as_is], routes, ..Plan::default() });
    for (name, rewrite, adapter, index_model) in [
        ("m", Some("org/base"), None, "org/base"),
        ("org/base", None, None, "org/base"),
        ("lora", None, Some("lora"), "org/base"),
        ("plain", None, None, "as-is"),
    ] {
        let found = named(&state, name).expect(name);
        let adapter_name = found.adapter.as_ref().map(AdapterName::as_str);
        assert_eq!((found.rewrite(), adapter_name), (rewrite, adapter), "{name}");
        assert_eq!(found.target.index_model.as_str(), index_model);
    }
    let found = named(&state, "m").expect("m");
    assert_eq!((found.timeout, found.target.retry), (timeout, retry));
    assert_eq!(found.target.endpoints().next().map(|e| e.adapters.clone()), Some(vec!["lora".into()]));
}

/// Worked example F: seven of ten go to v1, each request by itself.
#[test]
fn weights_share_requests_out() {
    let canary = PlanRule { to: vec![(to("ns", "v1"), 70), (to("ns", "v2"), 30)], ..PlanRule::default() };
    let state = with(Plan {
        targets: vec![server("ns", "v1"), server("ns", "v2")],
        routes: vec![model_route("ns/r", "m", vec![canary])],
        ..Plan::default()
    });
    let mut rng = StdRng::seed_from_u64(11);
    let mut draw = || match state.resolve(&chat("m"), &mut rng) {
        Ok(Routed::To(resolved)) => resolved.target.id.name.name.to_string(),
        other => panic!("{other:?}"),
    };
    let drawn: Vec<String> = (0..10_000).map(|_| draw()).collect();
    let first = drawn.iter().filter(|name| *name == "v1").count();
    assert!(first.abs_diff(7_000) < 230, "{first}: five standard deviations are 229");
    let repeats = drawn.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(repeats.abs_diff(5_800) < 300, "{repeats} repeats: the draws are not independent");
}

#[test]
fn model_names_count_under_v1_only() {
    let state = with(Plan {
        targets: vec![server("ns", "s")],
        routes: vec![model_route("ns/r", "m", vec![rule_to("s")])],
        ..Plan::default()
    });
    for (path, target) in
        [("/v1/x", "s"), ("/v1%2Fx", "s"), ("/v1", "no match"), ("/v2/x", "no match"), ("//v1/x", "no match")]
    {
        assert_eq!(went(route(&state, &RouteQuery { path, ..chat("m") })), target, "{path}");
    }
    assert_eq!(went(route(&state, &RouteQuery { model: None, ..chat("m") })), "no match");
}

/// K8S-06, K8S-07: what a plan no longer says is gone, whatever was said before.
#[test]
fn nothing_is_left_of_a_route_that_changed_its_name() {
    let plan = |model| Plan {
        targets: vec![server("ns", "s")],
        routes: vec![model_route("ns/r", model, vec![rule_to("s")])],
        ..Plan::default()
    };
    let state = with(plan("old"));
    state.replace(plan("new"));
    assert_eq!([went(named(&state, "old")), went(named(&state, "new"))], ["no match", "s"]);
    assert_eq!(state.models().len(), 1);
}

/// One pod, two targets: it has one entry in the index, under the name that its engine is called by.
#[test]
fn a_target_without_a_served_name_is_filed_where_its_endpoints_are() {
    let pool = PlanTarget { endpoints: vec![planned("ns-base")], ..server("ns", "pool") };
    let mut base = PlanTarget { served: Some("org/base".into()), ..server("ns", "base") };
    base.index_model = "org/base".into();
    for targets in [vec![pool.clone(), base.clone()], vec![base, pool.clone()]] {
        let state = with(Plan { targets, ..Plan::default() });
        let filed =
            |name| -> Arc<Target> { state.target(&TargetId::model_server("ns", name)).expect("a target") };
        assert_eq!(filed("pool").index_model.as_str(), "org/base");
        assert_eq!(state.endpoints().len(), 1);
        assert_eq!(kvasir_core::EndpointDirectory::endpoints_of(&*state, &"org/base".into()).len(), 1);
    }
    let alone = with(Plan { targets: vec![pool], ..Plan::default() });
    let id = TargetId::model_server("ns", "pool");
    assert_eq!(alone.target(&id).map(|target| target.index_model.clone()), Some("pool".into()));
}
