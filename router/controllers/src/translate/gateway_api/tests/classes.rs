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
        // Another router of the cluster has our controller's name and a class of its own.
        (class("another", OURS), "another", None, None),
        (class("another", OURS), "kthena-router", Some(true), None),
        (class("another", THEIRS), "another", None, None),
        (class("kthena-router", THEIRS), "kthena-router", None, None),
        (
            class("kthena-router", &parameters),
            "kthena-router",
            Some(false),
            Some("Accepted=False/InvalidParameters"),
        ),
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
    assert!(all.is_sorted() && all.len() <= 64 && all.contains(&"SupportInferencePool"));
    // Their conformance tests need Services as backends.
    assert!(!all.contains(&"HTTPRoute") && !all.contains(&"ReferenceGrant"), "{all:?}");
    let few = features(&Options { inference_extension: false, ..options() });
    assert_eq!(few, ["Gateway", "GatewayHTTPListenerIsolation", "GatewayPort8080"]);
}

#[test]
fn two_routers_with_a_class_each_share_no_gateway() {
    let both = format!("{}{}", class("kthena-router", OURS), class("another", OURS));
    let gateways = gateway("kthena-router") + &gateway("another").replace("name: gw", "name: other");
    let served = |name: &str| {
        let options = Options { gateway_class: name.to_owned(), ..options() };
        let world = world_with(&format!("{both}{gateways}"), &options);
        let classes: Vec<String> = world
            .translation
            .statuses
            .iter()
            .filter(|status| status.kind == StatusKind::GatewayClass)
            .map(|status| status.name.to_string())
            .collect();
        (world.listeners(), classes)
    };
    assert_eq!(
        served("kthena-router"),
        (vec!["default/gw/http *:80".to_owned()], vec!["/kthena-router".to_owned()])
    );
    assert_eq!(served("another"), (vec!["default/other/http *:80".to_owned()], vec!["/another".to_owned()]));
}
