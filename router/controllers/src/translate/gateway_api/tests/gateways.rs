//! What a Gateway and its listeners say.

use super::*;

fn gateway(fields: &str, listeners: &str) -> String {
    format!(
        "---\nkind: Gateway\nmetadata: {{name: gw, generation: 4}}\n\
         spec: {{gatewayClassName: kthena-router{fields}, listeners: [{listeners}]}}\n"
    )
}

const HTTP: &str = "{name: http, port: 80, protocol: HTTP}";
const GOOD_GATEWAY: &str = "Accepted=True/Accepted Programmed=True/Programmed";
const GOOD_LISTENER: &str = concat!(
    "Accepted=True/Accepted Programmed=True/Programmed ",
    "ResolvedRefs=True/ResolvedRefs Conflicted=False/NoConflicts"
);

#[test]
fn a_good_gateway() {
    let world = world(&gateway("", HTTP));
    let (conditions, addresses, listeners) = world.gateway("gw");
    assert_eq!(conditions, GOOD_GATEWAY);
    assert!(addresses.is_empty());
    assert_eq!(short(&listeners[0].conditions), GOOD_LISTENER);
    assert_eq!((listeners[0].name.as_str(), listeners[0].attached_routes), ("http", 0));
    assert_eq!(status(&world.translation, StatusKind::Gateway, "gw").generation, Some(4));
}

#[test]
fn a_port_that_cannot_be_opened_is_served_and_said() {
    let failed = [(80, "permission denied".to_owned())].into();
    let world = world_with(&gateway("", HTTP), &Options { failed_ports: failed, ..options() });
    let (conditions, _, listeners) = world.gateway("gw");
    assert_eq!(conditions, "Accepted=True/Accepted Programmed=False/Pending");
    assert_eq!(short(&listeners[0].conditions), GOOD_LISTENER.replace("True/Programmed", "False/Pending"));
    let message = listeners[0].conditions.iter().find(|verdict| verdict.reason == "Pending");
    assert!(message.is_some_and(|verdict| verdict.message.contains("permission denied")));
    assert_eq!(world.listeners(), ["default/gw/http *:80"], "it is tried again");
}

#[test]
fn listeners_that_cannot_be_served() {
    let taken = Options { taken_ports: vec![9090, 15000], ..options() };
    for (listener, reason) in [
        ("{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: TLS, tls: {mode: Passthrough}}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: TCP}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: UDP}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: example.com/bar}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: http}", "UnsupportedProtocol"),
        ("{name: l, port: 443, protocol: HTTP, tls: {}}", "UnsupportedValue"),
        ("{name: l, port: 9090, protocol: HTTP}", "PortUnavailable"),
        ("{name: l, port: 0, protocol: HTTP}", "PortUnavailable"),
    ] {
        let bad = format!(
            "Accepted=False/{reason} Programmed=False/Invalid ResolvedRefs=True/ResolvedRefs Conflicted=False/NoConflicts"
        );
        let alone = world_with(&gateway("", listener), &taken);
        let (conditions, _, listeners) = alone.gateway("gw");
        assert_eq!(conditions, "Accepted=False/ListenersNotValid Programmed=False/Invalid", "{listener}");
        assert_eq!(short(&listeners[0].conditions), bad, "{listener}");
        assert!(alone.listeners().is_empty());
        let beside = world_with(&gateway("", &format!("{HTTP}, {listener}")), &taken);
        let (conditions, _, listeners) = beside.gateway("gw");
        assert_eq!(conditions, "Accepted=True/ListenersNotValid Programmed=True/Programmed", "{listener}");
        assert_eq!(short(&listeners[0].conditions), GOOD_LISTENER, "{listener}");
        assert_eq!(short(&listeners[1].conditions), bad, "{listener}");
        assert_eq!(beside.listeners(), ["default/gw/http *:80"]);
    }
}

#[test]
fn kinds_of_routes() {
    let good = "True/ResolvedRefs";
    let bad = "False/InvalidRouteKinds";
    let http_route = "gateway.networking.k8s.io/HTTPRoute";
    let model_route = "networking.serving.volcano.sh/ModelRoute";
    for (extension, kinds, resolved, supported) in [
        (true, "", good, vec![http_route]),
        (true, "{kind: HTTPRoute}", good, vec![http_route]),
        (true, "{group: gateway.networking.k8s.io, kind: HTTPRoute}", good, vec![http_route]),
        (true, "{kind: TLSRoute}", bad, vec![]),
        (true, "{group: example.com, kind: HTTPRoute}", bad, vec![]),
        (true, "{kind: TLSRoute}, {kind: HTTPRoute}, {kind: HTTPRoute}", bad, vec![http_route]),
        (true, "{group: networking.serving.volcano.sh, kind: ModelRoute}", good, vec![model_route]),
        (false, "", good, vec![]),
        (false, "{kind: HTTPRoute}", bad, vec![]),
        (false, "{group: networking.serving.volcano.sh, kind: ModelRoute}", good, vec![model_route]),
    ] {
        let listener =
            format!("{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{kinds: [{kinds}]}}}}");
        let world =
            world_with(&gateway("", &listener), &Options { inference_extension: extension, ..options() });
        let (conditions, _, listeners) = world.gateway("gw");
        assert_eq!(conditions, GOOD_GATEWAY, "{kinds}");
        let said = short(&listeners[0].conditions);
        assert!(said.contains(&format!("ResolvedRefs={resolved}")), "{kinds}: {said}");
        assert!(said.starts_with("Accepted=True/Accepted Programmed=True/Programmed"), "{kinds}: {said}");
        let kinds: Vec<String> = listeners[0]
            .supported_kinds
            .iter()
            .map(|kind| format!("{}/{}", kind.group.as_deref().unwrap_or_default(), kind.kind))
            .collect();
        assert_eq!(kinds, supported);
    }
}

#[test]
fn addresses() {
    let known = Options { addresses: vec!["10.0.0.1".to_owned(), "llm.example".to_owned()], ..options() };
    let unusable = "Accepted=True/Accepted Programmed=False/AddressNotUsable";
    let all = vec!["IPAddress 10.0.0.1", "Hostname llm.example"];
    for (wanted, conditions, given) in [
        ("", GOOD_GATEWAY, all.clone()),
        ("{value: 10.0.0.1}", GOOD_GATEWAY, vec![all[0]]),
        ("{type: IPAddress}", GOOD_GATEWAY, vec![all[0]]),
        ("{type: Hostname, value: llm.example}, {value: 10.0.0.1}", GOOD_GATEWAY, all.clone()),
        ("{type: Hostname, value: 10.0.0.1}", unusable, vec![]),
        ("{value: 10.0.0.1}, {value: 10.0.0.2}", unusable, vec![all[0]]),
        (
            "{type: NamedAddress, value: a}",
            "Accepted=False/UnsupportedAddress Programmed=False/Invalid",
            vec![],
        ),
        (
            "{type: example.com/x, value: a}",
            "Accepted=False/UnsupportedAddress Programmed=False/Invalid",
            vec![],
        ),
    ] {
        let world = world_with(&gateway(&format!(", addresses: [{wanted}]"), HTTP), &known);
        let (said, addresses, listeners) = world.gateway("gw");
        assert_eq!(
            (said.as_str(), addresses),
            (conditions, given.iter().map(|a| (*a).to_owned()).collect()),
            "{wanted}"
        );
        let served = conditions == GOOD_GATEWAY;
        assert_eq!(!world.listeners().is_empty(), served, "{wanted}");
        let programmed = if served { "Programmed=True/Programmed" } else { "Programmed=False/Invalid" };
        let said = short(&listeners[0].conditions);
        assert!(said.starts_with(&format!("Accepted=True/Accepted {programmed}")), "{wanted}: {said}");
    }
}

#[test]
fn parameters_from_an_object_are_refused() {
    let fields = ", infrastructure: {parametersRef: {group: g, kind: k, name: object}}";
    let world = world(&gateway(fields, HTTP));
    assert_eq!(world.gateway("gw").0, "Accepted=False/InvalidParameters Programmed=False/Invalid");
    assert!(world.listeners().is_empty());
    let labels = ", infrastructure: {labels: {a: b}}";
    assert_eq!(super::world(&gateway(labels, HTTP)).gateway("gw").0, GOOD_GATEWAY);
}

#[test]
fn a_gateway_that_cannot_be_read_is_passed_over() {
    let world = world(&format!(
        "{GATEWAY}{}",
        gateway("", "{name: l, port: http, protocol: HTTP}").replace("gw", "bad")
    ));
    let (name, sentence) = &world.translation.skipped[0];
    assert_eq!(name.to_string(), "default/bad");
    assert!(sentence.contains("spec.listeners[0].port"), "{sentence}");
    assert_eq!(world.listeners(), ["default/gw/http *:80"]);
}

/// Without the inference extension HTTPRoutes and pools are none of our business.
#[test]
fn without_the_extension_gateways_serve_model_routes_only() {
    let yaml = format!("{GATEWAY}{POOLS}{}", route("r", &rule("matches: []", "v1")));
    let world = world_with(&yaml, &Options { inference_extension: false, ..options() });
    assert!(!world.has_status(StatusKind::HttpRoute) && !world.has_status(StatusKind::InferencePool));
    assert!(world.translation.plan.http_routes.is_empty());
    let (conditions, _, listeners) = world.gateway("gw");
    assert_eq!((conditions.as_str(), listeners[0].attached_routes), (GOOD_GATEWAY, 0));
    assert_eq!(post("/").goes(&world), "no match");
}
