//! The roles of a rendered release, held against what an account asked for.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kvasir_suite::cluster::Call;
use serde_json::Value;

/// Nothing was refused to the user, and every rule was needed. `calls` are everybody's.
pub fn judge(roles: &[Role<'_>], user: &str, calls: &[Call]) {
    let calls: Vec<&Call> = calls.iter().filter(|call| call.user == user).collect();
    let refused = refused_to(user, calls.iter().copied());
    assert!(refused.is_empty(), "refused to {user}: {refused:#?}");
    let mut unused = Vec::new();
    for role in roles {
        for grant in role.grants() {
            if !calls.iter().any(|call| grant.is_used_by(call)) {
                unused.push(format!("{}: {grant:?}", role.name));
            }
        }
    }
    assert!(unused.is_empty(), "granted to {user} and not used:\n{}", unused.join("\n"));
}

/// The calls of a user that no role allowed.
pub fn refused_to<'a>(user: &str, calls: impl Iterator<Item = &'a Call>) -> Vec<&'a Call> {
    calls.filter(|call| call.user == user && call.is_refused).collect()
}

/// A role that is rendered.
pub struct Role<'a> {
    pub name: &'a str,
    /// Its own; `None` for a ClusterRole.
    pub namespace: Option<&'a str>,
    pub rules: Vec<PolicyRule>,
}

/// The smallest thing that a role can say.
#[derive(Debug)]
struct Allowed {
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// `None`: whatever the object's name.
    name: Option<String>,
}

impl Allowed {
    fn is_used_by(&self, call: &Call) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == call.namespace)
            && self.group == call.group
            && self.resource == call.resource
            && self.verb == call.verb
            && self.name.as_ref().is_none_or(|name| *name == call.name)
    }
}

impl Role<'_> {
    fn grants(&self) -> Vec<Allowed> {
        let mut grants = Vec::new();
        for rule in &self.rules {
            let names = rule.resource_names.iter().flatten().cloned().map(Some);
            let mut names: Vec<_> = names.collect();
            if names.is_empty() {
                names.push(None);
            }
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        grants.extend(names.iter().map(|name| Allowed {
                            namespace: self.namespace.map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        grants
    }
}

/// All roles that are rendered, each of which is bound where it counts.
pub fn roles(objects: &[Value]) -> Vec<Role<'_>> {
    let bindings = objects.iter().filter(|object| object["roleRef"].is_object());
    let bound: BTreeMap<&str, &str> = bindings
        .map(|binding| (binding["roleRef"]["name"].as_str().unwrap(), binding["kind"].as_str().unwrap()))
        .collect();
    let roles = objects.iter().filter(|object| {
        object["rules"].is_array() && object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))
    });
    let roles: Vec<Role<'_>> = roles
        .map(|role| {
            let (name, namespace) =
                (role["metadata"]["name"].as_str().unwrap(), role["metadata"]["namespace"].as_str());
            let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
            let wide = bound[name] == "ClusterRoleBinding";
            assert_eq!(wide, namespace.is_none(), "{name} is bound for more or less than it is");
            let words = rules.iter().flat_map(|rule| {
                rule.verbs
                    .iter()
                    .chain(rule.resources.iter().flatten())
                    .chain(rule.api_groups.iter().flatten())
            });
            assert!(words.clone().all(|word| !word.contains('*')), "{name} grants whatever there is");
            Role { name, namespace, rules }
        })
        .collect();
    assert!(!roles.is_empty());
    roles
}
