//! parentRefs: which Gateways a route serves.

use kvasir_state::plan::PlanParent;

use super::*;
use crate::translate::testing::{named, translate_in_gateway_mode};

const GATEWAYS: &str = "---
kind: GatewayClass
metadata: {name: kthena-router}
spec: {controllerName: volcano.sh/kthena-router}
---
kind: Gateway
metadata: {name: near}
spec:
  gatewayClassName: kthena-router
  listeners:
  - {name: http, port: 8080, protocol: HTTP}
  - {name: http-too, port: 8080, protocol: HTTP, hostname: a.example.com}
  - {name: other, port: 8081, protocol: HTTP}
  - {name: secure, port: 8443, protocol: HTTPS}
---
kind: Gateway
metadata: {name: far, namespace: far}
spec:
  gatewayClassName: kthena-router
  listeners: [{name: http, port: 9080, protocol: HTTP}]
---
kind: Gateway
metadata: {name: foreign}
spec:
  gatewayClassName: somebody-else
  listeners: [{name: http, port: 80, protocol: HTTP}]
";

fn route_with(references: &str) -> String {
    model_route(
        "r",
        &format!(
            "{{modelName: m, parentRefs: {references}, rules: [{{targetModels: [{{modelServerName: a}}]}}]}}"
        ),
    )
}

fn in_gateway_mode(references: &str) -> Translation {
    translate_in_gateway_mode(&format!("{SERVERS}{GATEWAYS}{}", route_with(references)))
}

fn parent(gateway: &str, section: Option<&str>) -> PlanParent {
    PlanParent { gateway: named(gateway), section: section.map(Into::into), port: None }
}

fn on_port(parent: PlanParent, port: u16) -> PlanParent {
    PlanParent { port: Some(port), ..parent }
}

#[test]
fn without_gateways_a_route_with_references_takes_nothing() {
    let translation = with_servers(&route_with("[{name: near, sectionName: http}]"));
    assert_eq!(route(&translation, "r").parents, Some(vec![parent("near", Some("http"))]));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "NoMatchingParent"));
    assert!(message.contains("--enable-gateway-api") && message.contains("parentRefs"), "{message}");
}

#[test]
fn a_reference_means_a_gateway_of_ours_by_group_kind_and_namespace() {
    for (references, planned) in [
        ("[{name: near}]", vec![parent("near", None)]),
        (
            "[{name: near, namespace: default, group: gateway.networking.k8s.io, kind: Gateway}]",
            vec![parent("near", None)],
        ),
        ("[{name: far, namespace: far}]", vec![parent("far/far", None)]),
        ("[{name: near}, {name: far, namespace: far}]", vec![parent("near", None), parent("far/far", None)]),
        ("[{name: near, sectionName: other}]", vec![parent("near", Some("other"))]),
        ("[{name: near, port: 8080}]", vec![on_port(parent("near", None), 8080)]),
        ("[{name: near, port: 8080, sectionName: http}]", vec![on_port(parent("near", Some("http")), 8080)]),
    ] {
        let translation = in_gateway_mode(references);
        assert_eq!(route(&translation, "r").parents, Some(planned), "{references}");
        assert_eq!(accepted(&translation), ("True", "Accepted", "In use."), "{references}");
    }
}

#[test]
fn references_to_nothing_of_ours_are_told() {
    for (reference, part) in [
        ("{name: far}", "(default/far) does not exist"),
        ("{name: foreign}", "(default/foreign) is none of class kthena-router"),
        ("{name: near, group: \"\", kind: Service}", "spec.parentRefs[0] is no Gateway"),
        ("{name: near, kind: ListenerSet}", "is no Gateway"),
        ("{name: near, sectionName: absent}", "has no listener for HTTP of name \"absent\""),
        ("{name: near, sectionName: secure}", "has no listener for HTTP of name \"secure\""),
        ("{name: near, port: 9080}", "has no listener for HTTP on port 9080"),
        ("{name: near, port: 8081, sectionName: http}", "of name \"http\" on port 8081"),
    ] {
        let translation = in_gateway_mode(&format!("[{reference}]"));
        assert_eq!(route(&translation, "r").parents, Some(vec![]), "{reference}");
        let (value, reason, message) = accepted(&translation);
        assert_eq!((value, reason), ("False", "NoMatchingParent"), "{reference}");
        assert!(message.contains(part), "{message}");

        let translation = in_gateway_mode(&format!("[{{name: near}}, {reference}]"));
        assert_eq!(route(&translation, "r").parents, Some(vec![parent("near", None)]), "{reference}");
        let (value, _, message) = accepted(&translation);
        assert_eq!(value, "True", "one good reference is enough");
        assert!(message.contains("Without effect: spec.parentRefs[1]"), "{message}");
    }
}

#[test]
fn without_references_a_route_serves_the_gateways_of_its_namespace() {
    let translation = in_gateway_mode("[]");
    assert_eq!(route(&translation, "r").parents, None);
    assert_eq!(accepted(&translation).0, "True");
    let elsewhere = GATEWAYS.replace("name: near", "name: near, namespace: elsewhere");
    let translation = translate_in_gateway_mode(&format!("{SERVERS}{elsewhere}{}", route_with("[]")));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "NoMatchingParent"));
    assert!(message.contains("default has none of class kthena-router"), "{message}");
}

#[test]
fn a_class_of_another_controller_has_no_gateway_of_ours() {
    let theirs = GATEWAYS.replace("volcano.sh/kthena-router", "example.com/other");
    let yaml = format!("{SERVERS}{theirs}{}", route_with("[{name: near}]"));
    let translation = translate_in_gateway_mode(&yaml);
    assert_eq!(route(&translation, "r").parents, Some(Vec::new()));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "NoMatchingParent"));
    assert!(message.contains("of class kthena-router, which is not served"), "{message}");
}
