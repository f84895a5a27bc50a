//! Which Gateways are ours.

use super::*;

fn class(name: &str, fields: &str) -> String {
    format!("---\nkind: GatewayClass\nmetadata: {{name: {name}, generation: 7}}\nspec: {{{fields}}}\n")
}

fn gateway(class: &str) -> String {
    format!(
        "---\nkind: Gateway\nmetadata: {{name: gw}}\nspec: {{gatewayClassName: {class}, \
         listeners: [{{name: http, port: 80, protocol: HTTP}}]}}\n"
    )
}

const OURS: &str = "controllerName: volcano.sh/kthena-router";
const THEIRS: &str = "controllerName: example.com/other";

#[test]
fn a_gateway_is_ours_by_its_class() {
    let parameters = format!("{OURS}, parametersRef: {{group: g, kind: k, name: object}}");
    for (classes, named, served, accepted) in [
        (String::new(), "kthena-router", Some(true), None),
        (String::new(), "another", None, None),
        (class("kthena-router", OURS), "kthena-router", Some(true), Some("Accepted=True/Accepted")),
        (class("another", OURS), "another", Some(true), Some("Accepted=True/Accepted")),
        (class("another", THEIRS), "another", None, None),
        (class("kthena-router", THEIRS), "kthena-router", None, None),
        (class("another", &parameters), "another", Some(false), Some("Accepted=False/InvalidParameters")),
        (
            class("kthena-router", "controllerName: 5"),
            "kthena-router",
            Some(false),
            Some("Accepted=False/Invalid"),
        ),
        (class("another", "controllerName: 5"), "another", None, None),
    ] {
        let world = world(&format!("{classes}{}", gateway(named)));
        assert_eq!(world.has_status(StatusKind::Gateway), served.is_some(), "{classes}{named}");
        assert_eq!(!world.listeners().is_empty(), served == Some(true), "{classes}{named}");
        if served == Some(false) {
            assert!(world.gateway("gw").0.starts_with("Accepted=False/Invalid Programmed=False/Invalid"));
        }
        let said: Vec<_> = world
            .translation
            .statuses
            .iter()
            .filter(|status| status.kind == StatusKind::GatewayClass)
            .collect();
        let short: Vec<_> = said
            .iter()
            .map(|status| match &status.said {
                Said::GatewayClass { conditions, .. } => short(conditions),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(short, accepted.into_iter().collect::<Vec<_>>(), "{classes}");
        assert!(said.iter().all(|status| status.generation == Some(7)));
    }
}

#[test]
fn a_gateway_whose_class_changes_away_is_dropped() {
    let before = world(&gateway("kthena-router"));
    assert_eq!(before.listeners(), ["default/gw/http *:80"]);
    let after = world(&gateway("nginx"));
    assert!(after.listeners().is_empty() && after.translation.statuses.is_empty());
    assert_eq!(after.translation.plan.gateways, Some(Vec::new()));
}

#[test]
fn an_unreadable_class_names_the_field() {
    let world = world(&class("kthena-router", "controllerName: 5"));
    let Said::GatewayClass { conditions, .. } =
        &status(&world.translation, StatusKind::GatewayClass, "/kthena-router").said
    else {
        panic!("no class")
    };
    assert!(conditions[0].message.starts_with("spec.controllerName: "), "{conditions:?}");
    assert_eq!(world.translation.skipped.len(), 1);
}

#[test]
fn features_are_in_ascending_order_and_those_of_routes_are_switched() {
    let features = |options: &Options| {
        let world = world_with(&class("kthena-router", OURS), options);
        match &world.translation.statuses[0].said {
            Said::GatewayClass { features, .. } => features.clone(),
            other => panic!("{other:?}"),
        }
    };
    let all = features(&options());
    assert!(
        all.is_sorted() && all.len() <= 64 && all.contains(&"HTTPRoute") && all.contains(&"ReferenceGrant")
    );
    let few = features(&Options { inference_extension: false, ..options() });
    assert_eq!(few, ["Gateway", "GatewayHTTPListenerIsolation", "GatewayPort8080"]);
}
