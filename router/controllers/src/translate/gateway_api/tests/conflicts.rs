//! Listeners that claim the same.

use super::*;

fn gateway(name: &str, created: &str, listeners: &str) -> String {
    format!(
        "---\nkind: Gateway\nmetadata: {{name: {name}, creationTimestamp: \"2026-01-{created}T00:00:00Z\"}}\n\
         spec: {{gatewayClassName: kthena-router, listeners: [{listeners}]}}\n"
    )
}

/// Each listener: `name Accepted's reason, Conflicted's reason`.
fn said(world: &World, gateway: &str) -> Vec<String> {
    let reason = |listener: &ListenerSaid, kind: &str| {
        let mut verdicts = listener.conditions.iter();
        verdicts.find(|verdict| verdict.kind == kind).expect("the condition is there").reason
    };
    let (.., listeners) = world.gateway(gateway);
    let one = |listener: &ListenerSaid| {
        format!("{} {} {}", listener.name, reason(listener, "Accepted"), reason(listener, "Conflicted"))
    };
    listeners.iter().map(one).collect()
}

#[test]
fn within_a_gateway_nobody_wins() {
    for (listeners, wanted, served) in [
        (
            "{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}",
            vec!["a HostnameConflict HostnameConflict", "b HostnameConflict HostnameConflict"],
            vec![],
        ),
        (
            "{name: a, port: 80, protocol: HTTP, hostname: x.com}, {name: b, port: 80, protocol: HTTP, hostname: X.com}, \
             {name: c, port: 80, protocol: HTTP}",
            vec![
                "a HostnameConflict HostnameConflict",
                "b HostnameConflict HostnameConflict",
                "c Accepted NoConflicts",
            ],
            vec!["default/g/c *:80"],
        ),
        (
            "{name: a, port: 80, protocol: HTTP, hostname: x.com}, {name: b, port: 80, protocol: HTTP, hostname: '*.x.com'}, \
             {name: c, port: 81, protocol: HTTP, hostname: x.com}",
            vec!["a Accepted NoConflicts", "b Accepted NoConflicts", "c Accepted NoConflicts"],
            vec!["default/g/a x.com:80", "default/g/b *.x.com:80", "default/g/c x.com:81"],
        ),
        (
            "{name: a, port: 80, protocol: HTTP, hostname: x.com}, {name: b, port: 80, protocol: HTTPS, hostname: y.com}",
            vec!["a ProtocolConflict ProtocolConflict", "b UnsupportedProtocol ProtocolConflict"],
            vec![],
        ),
        // What is not spoken at all does not take a port from what is.
        (
            "{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: TCP}, {name: c, port: 80, protocol: UDP}",
            vec![
                "a Accepted NoConflicts",
                "b UnsupportedProtocol NoConflicts",
                "c UnsupportedProtocol NoConflicts",
            ],
            vec!["default/g/a *:80"],
        ),
        (
            "{name: a, port: 443, protocol: TLS}, {name: b, port: 443, protocol: HTTPS}",
            vec!["a UnsupportedProtocol NoConflicts", "b UnsupportedProtocol NoConflicts"],
            vec![],
        ),
    ] {
        let world = world(&gateway("g", "01", listeners));
        assert_eq!(said(&world, "g"), wanted, "{listeners}");
        assert_eq!(world.listeners(), served, "{listeners}");
        let (conditions, ..) = world.gateway("g");
        let all_good = wanted.iter().all(|said| said.contains(" Accepted "));
        let wanted = match (all_good, served.is_empty()) {
            (true, _) => "Accepted=True/Accepted",
            (false, false) => "Accepted=True/ListenersNotValid",
            (false, true) => "Accepted=False/ListenersNotValid",
        };
        assert!(conditions.starts_with(wanted), "{listeners}: {conditions}");
    }
}

#[test]
fn between_gateways_the_older_has_it() {
    let listener = "{name: l, port: 80, protocol: HTTP}";
    let world = world(&[gateway("a", "02", listener), gateway("z", "01", listener)].concat());
    assert_eq!(said(&world, "z"), ["l Accepted NoConflicts"]);
    assert_eq!(said(&world, "a"), ["l HostnameConflict HostnameConflict"]);
    assert_eq!(world.listeners(), ["default/z/l *:80"]);
    let (.., listeners) = world.gateway("a");
    assert!(listeners[0].conditions[0].message.contains("default/z"), "{listeners:?}");
    // Of one age, the name decides.
    let world = super::world(&[gateway("b", "01", listener), gateway("a", "01", listener)].concat());
    assert_eq!(world.listeners(), ["default/a/l *:80"]);
}

/// What is not served claims nothing.
#[test]
fn a_refused_gateway_leaves_its_ports_to_others() {
    let listener = "{name: l, port: 80, protocol: HTTP}";
    let refused = gateway("old", "01", listener)
        .replace("spec: {", "spec: {addresses: [{type: NamedAddress, value: x}], ");
    let world = world(&[refused, gateway("new", "02", listener)].concat());
    assert_eq!(world.listeners(), ["default/new/l *:80"]);
    let twice = format!("{listener}, {}", listener.replace("name: l", "name: m"));
    let world = super::world(&[gateway("old", "01", &twice), gateway("new", "02", listener)].concat());
    assert_eq!(world.listeners(), ["default/new/l *:80"]);
}

/// Two Gateways on two ports know nothing of each other, whatever their hosts.
#[test]
fn gateways_on_different_ports() {
    let at = |port: u16| format!("{{name: l, port: {port}, protocol: HTTP}}");
    let world = world(
        &[
            gateway("a", "01", &at(8080)),
            gateway("b", "02", &at(8081)),
            POOLS.to_owned(),
            route("r", &rule("matches: []", "v1")).replace("name: gw", "name: a"),
        ]
        .concat(),
    );
    assert_eq!(Ask { port: 8080, ..post("/") }.goes(&world), "v1");
    assert_eq!(Ask { port: 8081, ..post("/") }.goes(&world), "no match");
    assert_eq!(Ask { port: 8082, ..post("/") }.goes(&world), "no listener");
}
