//! Backends: kinds, namespaces, grants, pools that are not there.

use super::*;

/// A route of one rule with this backend, beside a pool of another namespace and what else is said.
fn backed(backend: &str, more: &str) -> World {
    let foreign = "---\nkind: InferencePool\nmetadata: {name: theirs, namespace: other}\n\
                   spec: {selector: {matchLabels: {app: t}}, targetPorts: [{number: 1}]}\n";
    routed(&format!("{}{foreign}{more}", route("r", &format!("{{backendRefs: [{backend}]}}"))))
}

fn grant(namespace: &str, from: &str, to: &str) -> String {
    format!(
        "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: {namespace}}}\n\
         spec: {{from: [{from}], to: [{to}]}}\n"
    )
}

const FROM: &str = "{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}";
const TO: &str = "{group: inference.networking.k8s.io, kind: InferencePool}";
const NO_POOL: &str = "refused: a backend other than an InferencePool";

#[test]
fn kinds_that_cannot_be_a_backend() {
    for (backend, reason, went) in [
        ("{name: v1, port: 8080}", "InvalidKind", NO_POOL),
        ("{kind: Service, name: v1, port: 8080}", "InvalidKind", NO_POOL),
        ("{group: inference.networking.k8s.io, name: v1}", "InvalidKind", NO_POOL),
        ("{kind: InferencePool, name: v1}", "InvalidKind", NO_POOL),
        ("{group: x-k8s.io, kind: InferencePool, name: v1}", "InvalidKind", NO_POOL),
        ("{group: unknown.example.com, kind: NonExistent, name: v1}", "InvalidKind", NO_POOL),
        (
            "{group: inference.networking.k8s.io, kind: InferencePool, name: nobody}",
            "BackendNotFound",
            "no target",
        ),
    ] {
        let world = backed(backend, "");
        let wanted = format!("Accepted=True/Accepted ResolvedRefs=False/{reason}");
        assert_eq!(world.route("r"), wanted, "{backend}");
        let message = world.message("r", "ResolvedRefs");
        assert!(message.starts_with("spec.rules[0].backendRefs[0]: "), "{message}");
        assert_eq!(post("/").goes(&world), went, "{backend}");
    }
}

/// A pool has its own ports: the reference's says nothing, right or wrong.
#[test]
fn the_port_of_a_reference_to_a_pool_says_nothing() {
    for port in ["", ", port: 8000", ", port: 9999"] {
        let backend = pool("v1").replace('}', &format!("{port}}}"));
        let world = backed(&backend, "");
        assert_eq!((world.route("r").as_str(), post("/").goes(&world).as_str()), (GOOD, "v1"));
    }
}

#[test]
fn a_pool_that_cannot_be_read_is_not_found() {
    let broken =
        "---\nkind: InferencePool\nmetadata: {name: broken}\nspec: {targetPorts: [{number: http}]}\n";
    let world = backed(&pool("broken"), broken);
    assert_eq!(world.route("r"), "Accepted=True/Accepted ResolvedRefs=False/BackendNotFound");
    assert!(world.message("r", "ResolvedRefs").contains("cannot be read: spec"));
    assert_eq!(post("/").goes(&world), "no target");
}

#[test]
fn another_namespace_needs_a_grant() {
    let theirs = "{group: inference.networking.k8s.io, kind: InferencePool, name: theirs, namespace: other}";
    let named = |name: &str| TO.replace('}', &format!(", name: {name}}}"));
    for (grants, granted) in [
        (String::new(), false),
        (grant("other", FROM, TO), true),
        (grant("other", FROM, &named("theirs")), true),
        (grant("other", FROM, &named("another")), false),
        (grant("default", FROM, TO), false),
        (grant("other", &FROM.replace("namespace: default", "namespace: third"), TO), false),
        (grant("other", &FROM.replace("HTTPRoute", "GRPCRoute"), TO), false),
        (grant("other", &FROM.replace("gateway.networking.k8s.io", "x.io"), TO), false),
        (grant("other", FROM, "{group: \"\", kind: Service}"), false),
        (
            grant(
                "other",
                &format!("{}, {FROM}", FROM.replace("default", "x")),
                &format!("{}, {TO}", named("x")),
            ),
            true,
        ),
        // One that cannot be read grants nothing.
        (grant("other", "{kind: HTTPRoute}", TO), false),
    ] {
        let world = backed(theirs, &grants);
        let wanted = if granted {
            (GOOD, "theirs")
        } else {
            (
                "Accepted=True/Accepted ResolvedRefs=False/RefNotPermitted",
                "refused: a backend of another namespace without a ReferenceGrant",
            )
        };
        assert_eq!((world.route("r").as_str(), post("/").goes(&world).as_str()), wanted, "{grants}");
    }
}

/// What is missing takes its share and gives it to nobody else; the good rule beside it serves on.
#[test]
fn a_rule_with_a_bad_backend_costs_its_share_only() {
    let rules = [
        format!(
            "{{matches: [{{path: {{value: /half}}}}], backendRefs: [{}, {{name: s, port: 80}}]}}",
            pool("v1")
        ),
        rule("matches: [{path: {value: /good}}]", "v2"),
    ];
    let world = routed(&route("r", &rules.join(", ")));
    assert_eq!(world.route("r"), "Accepted=True/Accepted ResolvedRefs=False/InvalidKind");
    assert_eq!(post("/good").goes(&world), "v2");
    let went: Vec<String> = (0..400).map(|seed| Ask { seed, ..post("/half") }.goes(&world)).collect();
    let good = went.iter().filter(|went| *went == "v1").count();
    assert!(good.abs_diff(200) < 60, "{good}");
    assert_eq!(went.iter().filter(|went| *went == NO_POOL).count(), 400 - good);
}
