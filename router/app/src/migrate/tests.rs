use std::collections::BTreeSet;

use serde_json::json;

use super::rules::{Fate, RULES};
use super::*;

/// Our chart's schema, to hold the right side of the rules.
const SCHEMA: &str = include_str!("../../../../charts/kvasir/values.schema.json");

fn migrated(yaml: &str) -> Migration {
    migrate(&serde_saphyr::from_str(yaml).unwrap()).unwrap()
}

#[test]
fn values_find_their_place() {
    let migration = migrated(
        "global: {certManagementMode: cert-manager}
networking:
  kthenaRouter:
    replicas: 3
    metrics: {port: 9191}
    resource: {limits: {cpu: 2}}
    image: {repository: somewhere/kthena-router, tag: v1, pullPolicy: Always}
    fairness: {enabled: true, windowSize: 1h, maxConcurrent: 8}
    sessionBoost: {enabled: false, header: X-Chat}
    gatewayAPI: {enabled: true, inferenceExtension: true}
    tokenizerService: {enabled: true, mode: standalone, models: {qwen3: Qwen/Qwen3-0.6B}}
",
    );
    let ours = json!({
        "global": {"certManagementMode": "cert-manager"},
        "router": {
            "replicas": 3,
            "metrics": {"port": 9191},
            "resource": {"limits": {"cpu": 2}},
            "image": {"pullPolicy": "Always"},
            "fairness": {"enabled": true, "windowSize": "1h", "maxConcurrent": 8},
            "sessionBoost": {"enabled": false, "header": "X-Chat"},
            "gatewayAPI": {"enabled": true, "inferenceExtension": true},
        },
        "tokenizerService": {"enabled": true, "mode": "standalone", "models": {"qwen3": "Qwen/Qwen3-0.6B"}},
    });
    assert_eq!(Value::Object(migration.values), ours);
    assert_eq!(migration.notes.len(), 1, "{:?}", migration.notes);
    assert_eq!(migration.notes[0].0, "networking.kthenaRouter.image.repository");
    assert!(migration.unavailable.is_empty());
}

#[test]
fn a_value_is_taken_away_alone() {
    let Value::Object(mut values) = json!({"a": {"b": {"c": 1, "d": 2}}}) else { unreachable!() };
    take(&mut values, "a.b.c");
    take(&mut values, "a.x.c");
    assert_eq!(Value::Object(values), json!({"a": {"b": {"d": 2}}}));
}

#[test]
fn nothing_is_lost_in_silence() {
    let migration = migrated(
        "workload: {enabled: true}
networking:
  kthenaRouter:
    tls: {enabled: true, dnsName: a.example.com}
    nodeSelektor: x
",
    );
    let paths = |list: &[(String, String)]| list.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&migration.unavailable), ["networking.kthenaRouter.tls.enabled"]);
    assert_eq!(paths(&migration.notes), ["workload", "networking.kthenaRouter.nodeSelektor"]);
    assert!(migrate(&json!([1])).is_err());
    assert!(migrate(&Value::Null).unwrap().values.is_empty());
}

#[test]
fn every_rule_leads_to_a_value_of_our_chart() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut known = BTreeSet::new();
    for (path, fate) in RULES {
        assert!(known.insert(path), "{path} has two rules");
        if let Fate::Becomes(ours) = fate {
            let mut node = &schema;
            for part in ours.split('.') {
                node = &node["properties"][part];
            }
            assert!(node.is_object(), "{path} becomes {ours}, which the chart does not have");
        }
    }
}
