//! Which listeners take a route.

use super::*;

fn gateway(listeners: &str) -> String {
    format!(
        "---\nkind: Gateway\nmetadata: {{name: gw, namespace: infra}}\n\
         spec: {{gatewayClassName: kthena-router, listeners: [{listeners}]}}\n"
    )
}

/// A route of a namespace with a parent and hosts, to the pool `v1` of its own namespace.
fn from(namespace: &str, parent: &str, hostnames: &str) -> String {
    format!(
        "---\nkind: InferencePool\nmetadata: {{name: v1, namespace: {namespace}}}\n\
         spec: {{selector: {{matchLabels: {{app: v1}}}}, targetPorts: [{{number: 1}}]}}\n\
         ---\nkind: HTTPRoute\nmetadata: {{name: r, namespace: {namespace}}}\n\
         spec: {{parentRefs: [{parent}], hostnames: [{hostnames}], rules: [{}]}}\n",
        rule("matches: []", "v1")
    )
}

fn refused(reason: &str) -> String {
    format!("Accepted=False/{reason} ResolvedRefs=True/ResolvedRefs")
}

/// How many routes each listener counts.
fn counts(world: &World) -> Vec<(String, i32)> {
    let (.., listeners) = world.gateway("infra/gw");
    listeners.into_iter().map(|listener| (listener.name, listener.attached_routes)).collect()
}

#[test]
fn namespaces() {
    let labelled = "---\nkind: Namespace\nmetadata: {name: apps, labels: {team: a, env: prod}}\n";
    let in_selector = "selector: {matchExpressions: [{key: team, operator: In, values: [a, b]}]}";
    for (namespaces, allowed) in [
        ("", false),
        ("namespaces: {}", false),
        ("namespaces: {from: Same}", false),
        ("namespaces: {from: All}", true),
        ("namespaces: {from: None}", false),
        ("namespaces: {from: Selector}", false),
        ("namespaces: {from: Selector, selector: {}}", true),
        ("namespaces: {from: Selector, selector: {matchLabels: {team: a}}}", true),
        ("namespaces: {from: Selector, selector: {matchLabels: {team: b}}}", false),
        (&format!("namespaces: {{from: Selector, {in_selector}}}"), true),
        (&format!("namespaces: {{from: Same, {in_selector}}}"), false),
    ] {
        let listener = format!("{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{{namespaces}}}}}");
        let route = from("apps", "{name: gw, namespace: infra}", "");
        let world = world(&format!("{}{labelled}{route}", gateway(&listener)));
        let wanted = if allowed { GOOD.to_owned() } else { refused("NotAllowedByListeners") };
        assert_eq!(world.route("apps/r"), wanted, "{namespaces}");
        let went = post("/").goes(&world);
        assert_eq!(went, if allowed { "v1" } else { "no match" }, "{namespaces}");
        assert_eq!(counts(&world), [("http".to_owned(), i32::from(allowed))], "{namespaces}");
    }
    // A namespace that is not known has no labels to select by; and the Gateway's own is the same.
    let selector =
        "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {}}}}";
    let world = world(&format!("{}{}", gateway(selector), from("apps", "{name: gw, namespace: infra}", "")));
    assert_eq!(world.route("apps/r"), refused("NotAllowedByListeners"));
    let same = "{name: http, port: 80, protocol: HTTP}";
    let world = super::world(&format!("{}{}", gateway(same), from("infra", "{name: gw}", "")));
    assert_eq!(world.route("infra/r"), GOOD);
}

#[test]
fn sections_ports_and_kinds() {
    let listeners = "{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP}, \
                     {name: c, port: 8080, protocol: HTTP, hostname: c.com}, \
                     {name: tls, port: 443, protocol: HTTPS}, \
                     {name: kinds, port: 90, protocol: HTTP, allowedRoutes: {kinds: [{kind: TLSRoute}]}}";
    for (parent, wanted, places) in [
        ("{name: gw}", Ok(()), vec!["a:80", "b:8080", "c:8080"]),
        ("{name: gw, sectionName: a}", Ok(()), vec!["a:80"]),
        ("{name: gw, sectionName: \"\"}", Ok(()), vec!["a:80", "b:8080", "c:8080"]),
        ("{name: gw, port: 8080}", Ok(()), vec!["b:8080", "c:8080"]),
        ("{name: gw, port: 8080, sectionName: c}", Ok(()), vec!["c:8080"]),
        ("{name: gw, port: 80, sectionName: c}", Err("NoMatchingParent"), vec![]),
        ("{name: gw, port: 81}", Err("NoMatchingParent"), vec![]),
        ("{name: gw, sectionName: x}", Err("NoMatchingParent"), vec![]),
        ("{name: gw, sectionName: tls}", Err("NoMatchingParent"), vec![]),
        ("{name: gw, sectionName: kinds}", Err("NotAllowedByListeners"), vec![]),
    ] {
        let world = world(&format!("{}{}", gateway(listeners), from("infra", parent, "")));
        let wanted = wanted.map_or_else(refused, |()| GOOD.to_owned());
        assert_eq!(world.route("infra/r"), wanted, "{parent}");
        let mut planned: Vec<String> = world
            .translation
            .plan
            .http_routes
            .iter()
            .flat_map(|route| &route.parents)
            .map(|place| format!("{}:{}", place.listener, place.port))
            .collect();
        planned.sort();
        assert_eq!(planned, places, "{parent}");
        let counted: Vec<String> =
            counts(&world).into_iter().filter(|(_, count)| *count == 1).map(|(name, _)| name).collect();
        let names: Vec<&str> = places.iter().filter_map(|place| place.split(':').next()).collect();
        assert_eq!(counted, names, "{parent}");
    }
}

#[test]
fn parents_of_others_have_no_status_and_each_of_ours_has_its_own() {
    let parents = "{name: nobody}, {group: \"\", kind: Service, name: gw}, {kind: ListenerSet, name: gw}, \
                   {name: gw, namespace: other}, {name: theirs}, {name: gw, sectionName: a}, \
                   {name: gw, sectionName: x}";
    let theirs = "---\nkind: Gateway\nmetadata: {name: theirs, namespace: infra}\n\
                  spec: {gatewayClassName: nginx, listeners: [{name: http, port: 80, protocol: HTTP}]}\n";
    let ours = gateway("{name: a, port: 80, protocol: HTTP}");
    let world = world(&format!("{ours}{theirs}{}", from("infra", parents, "")));
    let said = world.parents(StatusKind::HttpRoute, "infra/r");
    let said: Vec<(&str, String)> = said.iter().map(|(name, said)| (name.as_str(), short(said))).collect();
    assert_eq!(said, [("gw", GOOD.to_owned()), ("gw", refused("NoMatchingParent"))]);
    let alone = super::world(&from("infra", "{name: gw}", ""));
    assert!(alone.parents(StatusKind::HttpRoute, "infra/r").is_empty(), "an empty list takes ours away");
}

#[test]
fn two_references_to_one_gateway_count_a_route_once() {
    let listeners = "{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: HTTP}";
    let parents = "{name: gw, sectionName: a}, {name: gw, port: 80}, {name: gw, sectionName: b}";
    let world = world(&format!("{}{}", gateway(listeners), from("infra", parents, "")));
    assert_eq!(counts(&world), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(world.translation.plan.http_routes.len(), 1);
    assert_eq!(world.translation.plan.http_routes[0].parents.len(), 2);
}

/// The listeners and routes of the conformance suite's case of intersecting hosts.
#[test]
fn hosts_of_listener_and_route_are_intersected() {
    let listeners = "{name: exact, port: 80, protocol: HTTP, hostname: very.specific.com}, \
                     {name: wild, port: 80, protocol: HTTP, hostname: '*.wildcard.io'}, \
                     {name: another, port: 80, protocol: HTTP, hostname: '*.anotherwildcard.io'}";
    for (hostnames, accepted, goes, stays) in [
        (
            "non.matching.com, '*.nonmatchingwildcard.io', very.specific.com",
            true,
            vec!["very.specific.com", "VERY.specific.com:80"],
            vec!["non.matching.com", "foo.nonmatchingwildcard.io", "foo.wildcard.io"],
        ),
        (
            "non.matching.com, wildcard.io, foo.wildcard.io, bar.wildcard.io, foo.bar.wildcard.io",
            true,
            vec!["foo.wildcard.io", "bar.wildcard.io", "foo.bar.wildcard.io"],
            vec!["non.matching.com", "wildcard.io", "other.wildcard.io", "very.specific.com"],
        ),
        ("'*.specific.com'", true, vec!["very.specific.com"], vec!["non.specific.com"]),
        (
            "'*.anotherwildcard.io'",
            true,
            vec!["one.anotherwildcard.io", "two.one.anotherwildcard.io"],
            vec!["anotherwildcard.io", "foo.wildcard.io"],
        ),
        ("", true, vec!["very.specific.com", "a.wildcard.io", "a.anotherwildcard.io"], vec!["wildcard.io"]),
        ("specific.but.wrong.com, wildcard.io", false, vec![], vec!["specific.but.wrong.com", "wildcard.io"]),
    ] {
        let world = world(&format!("{}{}", gateway(listeners), from("infra", "{name: gw}", hostnames)));
        let wanted = if accepted { GOOD.to_owned() } else { refused("NoMatchingListenerHostname") };
        assert_eq!(world.route("infra/r"), wanted, "{hostnames}");
        for host in goes {
            assert_eq!(Ask { host, ..post("/") }.goes(&world), "v1", "{hostnames}: {host}");
        }
        for host in stays {
            assert_ne!(Ask { host, ..post("/") }.goes(&world), "v1", "{hostnames}: {host}");
        }
    }
}

/// At each listener the common hosts decide about precedence: the narrower route of two goes first.
#[test]
fn a_route_is_planned_with_the_hosts_of_each_listener() {
    let listeners = "{name: a, port: 80, protocol: HTTP, hostname: '*.example.com'}, \
                     {name: b, port: 81, protocol: HTTP}, {name: c, port: 82, protocol: HTTP, hostname: x.org}";
    let world = world(&format!("{}{}", gateway(listeners), from("infra", "{name: gw}", "'*.com', '*.org'")));
    let planned: Vec<(Vec<&str>, Vec<&str>)> = world
        .translation
        .plan
        .http_routes
        .iter()
        .map(|route| {
            (
                route.hostnames.iter().map(|host| &**host).collect(),
                route.parents.iter().map(|p| &*p.listener).collect(),
            )
        })
        .collect();
    assert_eq!(
        planned,
        [(vec!["*.com", "*.org"], vec!["b"]), (vec!["*.example.com"], vec!["a"]), (vec!["x.org"], vec!["c"])]
    );
}

/// Each listener has the requests for its hosts to itself, also those that none of its routes takes.
#[test]
fn listeners_are_isolated() {
    let listeners = "{name: empty, port: 80, protocol: HTTP}, \
                     {name: wild, port: 80, protocol: HTTP, hostname: '*.example.com'}, \
                     {name: narrow, port: 80, protocol: HTTP, hostname: '*.foo.example.com'}, \
                     {name: exact, port: 80, protocol: HTTP, hostname: abc.foo.example.com}";
    for section in ["empty", "wild", "narrow", "exact"] {
        let parent = format!("{{name: gw, sectionName: {section}}}");
        let world = world(&format!("{}{}", gateway(listeners), from("infra", &parent, "")));
        for (host, listener) in [
            ("bar.com", "empty"),
            ("example.com", "empty"),
            ("bar.example.com", "wild"),
            ("bar.foo.example.com", "narrow"),
            ("abc.foo.example.com", "exact"),
        ] {
            let wanted = if section == listener { "v1" } else { "no match" };
            assert_eq!(Ask { host, ..post("/") }.goes(&world), wanted, "{section}: {host}");
        }
    }
}

/// A listener that is not served counts the routes that a sibling of it accepted.
#[test]
fn a_conflicted_listener_counts_accepted_routes() {
    let listeners = "{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}, \
                     {name: c, port: 81, protocol: HTTP}";
    let world = world(&format!("{}{}", gateway(listeners), from("infra", "{name: gw}", "")));
    assert_eq!(world.route("infra/r"), GOOD);
    assert_eq!(counts(&world), [("a".to_owned(), 1), ("b".to_owned(), 1), ("c".to_owned(), 1)]);
    assert_eq!(post("/").goes(&world), "no listener");
    assert_eq!(Ask { port: 81, ..post("/") }.goes(&world), "v1");
    let alone = super::world(&format!(
        "{}{}",
        gateway("{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}"),
        from("infra", "{name: gw}", "")
    ));
    assert_eq!(alone.route("infra/r"), refused("NoMatchingParent"));
    assert_eq!(counts(&alone), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
}
