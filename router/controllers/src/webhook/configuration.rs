//! Which part of the webhook configuration does not trust us yet.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};

/// With this annotation cert-manager writes the authorities.
const INJECTED: &str = "cert-manager.io/inject-ca-from";

/// What a configuration needs.
#[derive(Clone, PartialEq, Debug)]
pub enum Needed {
    /// Another tool writes its authorities.
    Injected,
    /// Every hook trusts them already.
    Nothing,
    /// This strategic merge patch. It names only hooks that differ, by their names, so that no other field of them and no
    /// other hook is touched, whatever happens to the list meanwhile.
    Patch(Value),
}

/// What the configuration needs, so that every hook of it trusts `authorities` (PEM) and no others.
pub fn needed(configuration: &ValidatingWebhookConfiguration, authorities: &[u8]) -> Needed {
    let annotations = configuration.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(INJECTED)) {
        return Needed::Injected;
    }
    let trusted = ByteString(authorities.to_vec());
    let patches: Vec<Value> = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|hook| hook.client_config.ca_bundle.as_ref() != Some(&trusted))
        .map(|hook| json!({"name": hook.name, "clientConfig": {"caBundle": trusted}}))
        .collect();
    if patches.is_empty() { Needed::Nothing } else { Needed::Patch(json!({"webhooks": patches})) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(annotations: Value, bundles: &[Option<&str>]) -> ValidatingWebhookConfiguration {
        let hooks: Vec<Value> = bundles
            .iter()
            .enumerate()
            .map(|(index, bundle)| {
                let mut hook = json!({
                    "name": format!("hook{index}.test"), "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"name": "s", "namespace": "n"}},
                });
                if let Some(bundle) = bundle {
                    hook["clientConfig"]["caBundle"] = json!(bundle);
                }
                hook
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": annotations}, "webhooks": hooks,
        }))
        .unwrap()
    }

    #[test]
    fn only_hooks_that_differ_are_patched() {
        // "CA" in base64 is Q0E=.
        let found = needed(&configuration(json!({}), &[None, Some("Q0E="), Some("b2xk"), Some("")]), b"CA");
        let patch =
            |index: u8| json!({"name": format!("hook{index}.test"), "clientConfig": {"caBundle": "Q0E="}});
        assert_eq!(found, Needed::Patch(json!({"webhooks": [patch(0), patch(2), patch(3)]})));
    }

    #[test]
    fn one_that_trusts_already_needs_nothing() {
        assert_eq!(needed(&configuration(json!({}), &[Some("Q0E=")]), b"CA"), Needed::Nothing);
        assert_eq!(needed(&configuration(json!({}), &[]), b"CA"), Needed::Nothing);
        assert_eq!(needed(&ValidatingWebhookConfiguration::default(), b"CA"), Needed::Nothing);
    }

    #[test]
    fn one_that_cert_manager_writes_is_left_alone() {
        let annotated = configuration(json!({"cert-manager.io/inject-ca-from": "n/c"}), &[None]);
        assert_eq!(needed(&annotated, b"CA"), Needed::Injected);
        let other = configuration(json!({"cert-manager.io/other": "n/c"}), &[None]);
        assert!(matches!(needed(&other, b"CA"), Needed::Patch(_)));
    }
}
