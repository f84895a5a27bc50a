//! The tables against a model that looks at everything.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::plan::{PlanAttachment, PlanBackend, PlanHttpMatch, PlanHttpRoute, PlanHttpRule, PlanPath};

const HOSTS: [&str; 5] = ["a.x.test", "b.x.test", "*.x.test", "*.test", "c.test"];
const PATHS: [&str; 8] = ["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b", "/a//b"];

fn path() -> impl Strategy<Value = PlanPath> {
    let text = prop::sample::select(&PATHS[..]);
    prop_oneof![
        1 => text.clone().prop_map(|path| PlanPath::Exact(path.into())),
        4 => text.prop_map(|path| PlanPath::Prefix(path.into())),
        1 => prop::sample::select(vec!["^/a", "b$", "/"])
            .prop_map(|pattern| PlanPath::Regex(Regex::new(pattern).expect("a good pattern"))),
        1 => Just(PlanPath::Never),
    ]
}

fn tests(names: &'static [&'static str]) -> impl Strategy<Value = Vec<(Arc<str>, StringTest)>> {
    prop::sample::subsequence(names, 0..=names.len()).prop_flat_map(|names| {
        let values = prop::collection::vec(prop::sample::select(vec!["1", "2"]), names.len());
        values.prop_map(move |values| {
            let pairs = names.iter().zip(values);
            pairs.map(|(name, value)| ((*name).into(), StringTest::Exact(value.into()))).collect()
        })
    })
}

fn matching() -> impl Strategy<Value = PlanHttpMatch> {
    let method = prop::option::weighted(0.3, prop::sample::select(vec![Method::GET, Method::POST]));
    (path(), method, tests(&["h", "i"]), tests(&["q"]))
        .prop_map(|(path, method, headers, query)| PlanHttpMatch { path, method, headers, query })
}

fn http_route() -> impl Strategy<Value = PlanHttpRoute> {
    let rules = prop::collection::vec(prop::collection::vec(matching(), 0..3), 1..4);
    let hostnames = prop::sample::subsequence(&HOSTS[..], 0..3);
    (rules, hostnames, 0..3_i64).prop_map(|(rules, hostnames, created)| PlanHttpRoute {
        id: object("ns/unnamed"),
        created,
        parents: vec![PlanAttachment { gateway: object("ns/g"), listener: "l".into(), port: 8080 }],
        hostnames: hostnames.into_iter().map(Into::into).collect(),
        rules: rules.into_iter().map(|matches| PlanHttpRule { matches, ..PlanHttpRule::default() }).collect(),
    })
}

/// Names routes apart, and gives each rule a target that tells it.
fn tell_apart(mut routes: Vec<PlanHttpRoute>) -> Vec<PlanHttpRoute> {
    for (number, route) in routes.iter_mut().enumerate() {
        route.id = object(&format!("ns/{}", (b'z' - number as u8) as char));
        for (rule, planned) in route.rules.iter_mut().enumerate() {
            planned.backends = vec![PlanBackend::new(to("ns", &format!("{number}.{rule}")), 1)];
        }
    }
    routes
}

fn prefix_fits(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

fn pair_fits(tests: &[(Arc<str>, StringTest)], value: impl Fn(&str) -> Option<String>) -> bool {
    tests.iter().all(|(name, test)| value(name).is_some_and(|value| test.passes(&value)))
}

/// The target of the best match by Gateway API's rules, found by looking at all.
fn best(routes: &[PlanHttpRoute], query: &RouteQuery<'_>) -> String {
    let mut found = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        let fitting = route.hostnames.iter().filter_map(|hostname| match hostname.strip_prefix('*') {
            Some(suffix) => query.host.ends_with(suffix).then_some((1, suffix.len())),
            None => (**hostname == *query.host).then_some((2, hostname.len())),
        });
        let host = if route.hostnames.is_empty() { Some((0, 0)) } else { fitting.max() };
        let Some(host) = host else { continue };
        for (rule, planned) in route.rules.iter().enumerate() {
            let all = [PlanHttpMatch::default()];
            let matches = if planned.matches.is_empty() { &all[..] } else { &planned.matches };
            for (position, m) in matches.iter().enumerate() {
                let kind = match &m.path {
                    PlanPath::Exact(path) => (**path == *query.path).then_some((2, path.len())),
                    PlanPath::Prefix(path) => {
                        prefix_fits(path, query.path).then(|| (1, path.trim_end_matches('/').len()))
                    }
                    PlanPath::Regex(regex) => regex.is_match(query.path).then_some((0, 0)),
                    PlanPath::Never => None,
                };
                let Some(kind) = kind else { continue };
                let header = |name: &str| Some(query.headers.get(name)?.to_str().ok()?.to_owned());
                let parameter = |name: &str| {
                    query.query?.split('&').find_map(|pair| {
                        pair.split_once('=')
                            .filter(|(key, _)| *key == name)
                            .map(|(_, value)| value.to_owned())
                    })
                };
                if m.method.as_ref().is_none_or(|method| method == query.method)
                    && pair_fits(&m.headers, header)
                    && pair_fits(&m.query, parameter)
                {
                    let beside = (m.method.is_some(), m.headers.len(), m.query.len());
                    let order = Reverse((route.created, route.id.clone(), rule, position));
                    found.push((host, kind, beside, order, format!("{number}.{rule}")));
                }
            }
        }
    }
    found.sort();
    found.pop().map_or_else(|| "no match".to_owned(), |(.., target)| target)
}

fn model_routes() -> impl Strategy<Value = Vec<PlanRoute>> {
    let name = || prop::sample::select(vec!["", "m", "n", "o"]);
    let condition = prop_oneof![Just(None), Just(Some("/v1/a")), Just(Some("/v1/b"))];
    let rules = prop::collection::vec((condition, 0..2_u32), 0..3);
    let adapters = prop::sample::subsequence(vec!["n", "o", "p"], 0..3);
    prop::collection::vec((name(), adapters, rules), 1..6).prop_map(|routes| {
        let planned = routes.into_iter().enumerate().map(|(number, (model, adapters, rules))| {
            let rules = rules.into_iter().enumerate().map(|(rule, (uri, weight))| PlanRule {
                uri: uri.map(|uri| StringTest::Exact(uri.into())),
                to: vec![(to("ns", &format!("{number}.{rule}")), weight)],
                ..PlanRule::default()
            });
            PlanRoute {
                adapters: adapters.into_iter().map(Into::into).collect(),
                ..model_route(&format!("ns/{number}"), model, rules.collect())
            }
        });
        planned.collect()
    })
}

/// kthena's choice, found by looking at all.
fn chosen(routes: &[PlanRoute], name: &str, path: &str) -> String {
    let base: Vec<&PlanRoute> =
        routes.iter().filter(|r| r.model.as_ref().is_some_and(|model| model.as_str() == name)).collect();
    let lora = routes.iter().filter(|r| r.adapters.iter().any(|adapter| adapter.as_str() == name)).collect();
    for route in if base.is_empty() { lora } else { base } {
        let first = route.rules.iter().find(|rule| rule.uri.as_ref().is_none_or(|test| test.passes(path)));
        if let Some((PlanTo::Target(id), 1..)) = first.and_then(|rule| rule.to.first()) {
            return id.name.name.to_string();
        }
    }
    "no match".to_owned()
}

fn targets(names: impl IntoIterator<Item = String>) -> Vec<PlanTarget> {
    names.into_iter().map(|name| server("ns", &name)).collect()
}

fn all_names(routes: usize) -> impl Iterator<Item = String> {
    (0..routes).flat_map(|route| (0..4).map(move |rule| format!("{route}.{rule}")))
}

proptest! {
    #[test]
    fn the_table_finds_the_best_match(
        routes in prop::collection::vec(http_route(), 1..6).prop_map(tell_apart),
        asked in prop::collection::vec((0..PATHS.len() + 2, 0..4_usize, 0..3_usize, any::<bool>(), 0..3_usize), 8),
    ) {
        let state = with(Plan {
            targets: targets(all_names(routes.len())),
            http_routes: routes.clone(),
            gateways: Some(vec![gateway("ns/g", &[("l", 8080, None)])]),
            ..Plan::default()
        });
        for (path, host, header, get, parameter) in asked {
            let mut headers = HeaderMap::new();
            if header > 0 {
                headers.insert("h", HeaderValue::from(header));
                headers.insert("i", HeaderValue::from(1));
            }
            let query = RouteQuery {
                path: PATHS.get(path).copied().unwrap_or(["/a/b/", "/zz"][path % 2]),
                host: ["a.x.test", "deep.b.x.test", "c.test", "elsewhere"][host],
                method: if get { &Method::GET } else { &Method::POST },
                headers: &headers,
                query: [None, Some("q=1"), Some("z=0&q=2&q=1")][parameter],
                model: None,
                ..chat("")
            };
            prop_assert_eq!(went(route(&state, &query)), best(&routes, &query), "{:?}", query);
        }
    }

    #[test]
    fn names_find_the_first_route_that_takes_them(routes in model_routes()) {
        let state = with(Plan { targets: targets(all_names(routes.len())), routes: routes.clone(), ..Plan::default() });
        for name in ["m", "n", "o", "p", "q"] {
            for path in ["/v1/a", "/v1/b", "/v1/c"] {
                let got = went(route(&state, &RouteQuery { path, ..chat(name) }));
                prop_assert_eq!(got, chosen(&routes, name, path), "{} {}", name, path);
            }
        }
    }
}
