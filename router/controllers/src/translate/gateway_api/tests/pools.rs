//! What InferencePools say.

use super::*;

fn said(world: &World, name: &str) -> Vec<(String, String)> {
    let parents = world.parents(StatusKind::InferencePool, name);
    parents.into_iter().map(|(gateway, conditions)| (gateway, short(&conditions))).collect()
}

fn two_gateways(parents: &str, rules: &str) -> World {
    let second = GATEWAY.replace("name: gw", "name: second").replace("port: 80", "port: 81");
    let route = route("r", rules).replace("[{name: gw}]", &format!("[{parents}]"));
    world(&format!("{GATEWAY}{second}{POOLS}{route}"))
}

#[test]
fn a_pool_speaks_of_the_gateways_where_an_accepted_route_names_it() {
    let to_first = rule("matches: []", "v1");
    let good = |gateways: &[&str]| -> Vec<(String, String)> {
        gateways.iter().map(|gateway| ((*gateway).to_owned(), GOOD.to_owned())).collect()
    };
    for (parents, rules, gateways) in [
        ("{name: gw}", to_first.clone(), vec!["gw"]),
        ("{name: gw}, {name: second}", to_first.clone(), vec!["gw", "second"]),
        ("{name: gw, sectionName: nowhere}, {name: second}", to_first.clone(), vec!["second"]),
        ("{name: nobody}", to_first.clone(), vec![]),
        ("{name: gw}", rule("filters: [{type: CORS}]", "v1"), vec![]),
        ("{name: gw}", rule("matches: []", "v2"), vec![]),
        ("{name: gw}", format!("{to_first}, {}", rule("filters: [{type: CORS}]", "v2")), vec!["gw"]),
    ] {
        let world = two_gateways(parents, &rules);
        assert_eq!(said(&world, "v1"), good(&gateways), "{parents} {rules}");
        assert!(said(&world, "v3").is_empty(), "nobody names it");
    }
}

#[test]
fn the_parent_is_named_in_full() {
    let world = two_gateways("{name: gw}", &rule("matches: []", "v1"));
    let Said::Parents(parents) = &status(&world.translation, StatusKind::InferencePool, "v1").said else {
        panic!("no parents")
    };
    let parent = serde_json::to_value(&parents[0].parent).expect("a value");
    let wanted = serde_json::json!({
        "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default", "name": "gw",
    });
    assert_eq!(parent, wanted);
}

#[test]
fn a_reference_without_leave_ties_a_pool_to_nothing() {
    let foreign = "---\nkind: InferencePool\nmetadata: {name: theirs, namespace: other}\n\
                   spec: {selector: {matchLabels: {app: t}}, targetPorts: [{number: 1}]}\n";
    let backend = pool("theirs").replace('}', ", namespace: other}");
    let world = routed(&format!("{foreign}{}", route("r", &format!("{{backendRefs: [{backend}]}}"))));
    assert!(said(&world, "other/theirs").is_empty());
}

#[test]
fn endpoint_pickers_are_not_asked_but_must_be_possible() {
    for (picker, resolved) in [
        ("", "True/ResolvedRefs"),
        (", endpointPickerRef: {name: nobody, port: {number: 9002}}", "True/ResolvedRefs"),
        (", endpointPickerRef: {group: \"\", kind: Service, name: nobody}", "True/ResolvedRefs"),
        (", endpointPickerRef: {kind: Deployment, name: object}", "False/InvalidExtensionRef"),
        (", endpointPickerRef: {group: apps, kind: Service, name: object}", "False/InvalidExtensionRef"),
    ] {
        let pools = POOLS.replacen("spec: {", &format!("spec: {{{}", picker.trim_start_matches(", ")), 1);
        let pools =
            if picker.is_empty() { POOLS.to_owned() } else { pools.replacen("}selector", "}, selector", 1) };
        let world = world(&format!("{GATEWAY}{pools}{}", route("r", &rule("matches: []", "v1"))));
        let wanted = format!("Accepted=True/Accepted ResolvedRefs={resolved}");
        assert_eq!(said(&world, "v1"), [("gw".to_owned(), wanted)], "{picker}");
        assert_eq!(post("/").goes(&world), "v1", "{picker}");
    }
}

#[test]
fn an_unreadable_pool_names_the_field() {
    let broken = "---\nkind: InferencePool\nmetadata: {name: broken}\n\
                  spec: {selector: {}, targetPorts: [{number: http}]}\n";
    let world = routed(&format!("{broken}{}", route("r", &rule("matches: []", "broken"))));
    let parents = world.parents(StatusKind::InferencePool, "broken");
    assert_eq!(short(&parents[0].1), "Accepted=False/Invalid");
    assert!(parents[0].1[0].message.starts_with("spec.targetPorts[0].number: "), "{parents:?}");
}

#[test]
fn a_pool_that_asks_for_what_is_not_done_is_not_accepted() {
    let objects = objects(&format!("{GATEWAY}{POOLS}{}", route("r", &rule("matches: []", "v1"))));
    let mut translation = Translation::default();
    let mut target = PlanTarget::new(TargetId::inference_pool("default", "v1"), "v1".into(), Vec::new());
    target.refused = Some("an appProtocol other than http");
    translation.plan.targets.push(target);
    translate(&objects, &options(), &mut translation);
    let state = state(&translation);
    let world = World { translation, state };
    let wanted = "Accepted=False/NotSupportedByParent ResolvedRefs=True/ResolvedRefs";
    assert_eq!(said(&world, "v1"), [("gw".to_owned(), wanted.to_owned())]);
    assert_eq!(post("/").goes(&world), "refused: an appProtocol other than http");
}
