use http::{HeaderMap, HeaderName, Method};
use kvasir_state::plan::{PlanTarget, TargetId};
use kvasir_state::{NoRoute, Resolved, RouteQuery, Routed, State};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::status::{ListenerSaid, Said, StatusKind, Verdict};
use crate::translate::testing::{objects, state, status};

mod attachment;
mod backends;
mod classes;
mod conflicts;
mod examples;
mod filters;
mod gateways;
mod matching;
mod pools;
mod refused;

/// A Gateway `gw` of namespace `default` that takes routes of its own namespace on port 80.
const GATEWAY: &str = "
---
kind: Gateway
metadata: {name: gw}
spec: {gatewayClassName: kthena-router, listeners: [{name: http, port: 80, protocol: HTTP}]}
";

/// Pools `v1`, `v2` and `v3` of namespace `default`.
const POOLS: &str = "
---
kind: InferencePool
metadata: {name: v1}
spec: {selector: {matchLabels: {app: v1}}, targetPorts: [{number: 8000}]}
---
kind: InferencePool
metadata: {name: v2}
spec: {selector: {matchLabels: {app: v2}}, targetPorts: [{number: 8000}]}
---
kind: InferencePool
metadata: {name: v3}
spec: {selector: {matchLabels: {app: v3}}, targetPorts: [{number: 8000}]}
";

/// What came of objects.
struct World {
    translation: Translation,
    state: State,
}

fn options() -> Options {
    Options { gateway_api: true, inference_extension: true, ..Options::default() }
}

/// Translates objects, each pool being a target without endpoints.
fn world(yaml: &str) -> World {
    world_with(yaml, &options())
}

fn world_with(yaml: &str, options: &Options) -> World {
    let objects = objects(yaml);
    let mut translation = Translation::default();
    for (name, read) in &objects.inference_pools {
        if read.0.is_ok() {
            let id = TargetId::inference_pool(&*name.namespace, &*name.name);
            translation.plan.targets.push(PlanTarget::new(id, (&*name.name).into(), Vec::new()));
        }
    }
    translate(&objects, options, &mut translation);
    let state = state(&translation);
    World { translation, state }
}

/// A Gateway, pools, and HTTPRoutes of them.
fn routed(routes: &str) -> World {
    world(&format!("{GATEWAY}{POOLS}{routes}"))
}

/// An HTTPRoute of the Gateway `gw` with these rules, as one line of YAML.
fn route(name: &str, rules: &str) -> String {
    format!(
        "---\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec: {{parentRefs: [{{name: gw}}], rules: [{rules}]}}\n"
    )
}

/// A reference to a pool, as one line of YAML.
fn pool(name: &str) -> String {
    format!("{{group: inference.networking.k8s.io, kind: InferencePool, name: {name}}}")
}

/// A rule with one pool, as one line of YAML.
fn rule(fields: &str, to: &str) -> String {
    format!("{{{fields}, backendRefs: [{}]}}", pool(to))
}

/// Conditions in short: `Accepted=True/Accepted`.
fn short(conditions: &[Verdict]) -> String {
    let short: Vec<String> = conditions
        .iter()
        .map(|verdict| format!("{}={}/{}", verdict.kind, verdict.value, verdict.reason))
        .collect();
    short.join(" ")
}

impl World {
    /// What an object says at each parent: the parent's name and the conditions.
    fn parents(&self, kind: StatusKind, name: &str) -> Vec<(String, Vec<Verdict>)> {
        let Said::Parents(parents) = &status(&self.translation, kind, name).said else {
            panic!("{name} has no parents")
        };
        let one = |said: &crate::status::ParentSaid| (said.parent.name.clone(), said.conditions.clone());
        parents.iter().map(one).collect()
    }

    /// The conditions of an HTTPRoute at its only parent, in short.
    fn route(&self, name: &str) -> String {
        let parents = self.parents(StatusKind::HttpRoute, name);
        assert_eq!(parents.len(), 1, "{name}: {parents:?}");
        short(&parents[0].1)
    }

    /// The message of one condition of an HTTPRoute at its first parent.
    fn message(&self, name: &str, condition: &str) -> String {
        let parents = self.parents(StatusKind::HttpRoute, name);
        let mut verdicts = parents[0].1.iter();
        verdicts.find(|verdict| verdict.kind == condition).expect("the condition is there").message.clone()
    }

    /// A Gateway's conditions in short, its addresses, and its listeners.
    fn gateway(&self, name: &str) -> (String, Vec<String>, Vec<ListenerSaid>) {
        let status = status(&self.translation, StatusKind::Gateway, name);
        let Said::Gateway { conditions, addresses, listeners } = &status.said else {
            panic!("{name} says something else")
        };
        let addresses = addresses.iter().map(|address| {
            format!(
                "{} {}",
                address.kind.as_deref().unwrap_or_default(),
                address.value.as_deref().unwrap_or_default()
            )
        });
        (short(conditions), addresses.collect(), listeners.clone())
    }

    fn has_status(&self, kind: StatusKind) -> bool {
        self.translation.statuses.iter().any(|status| status.kind == kind)
    }

    /// Where requests on a port can come in by: `gateway/listener`, hosts included.
    fn listeners(&self) -> Vec<String> {
        let gateways = self.translation.plan.gateways.as_ref().expect("Gateway mode");
        let all = gateways.iter().flat_map(|gateway| {
            gateway.listeners.iter().map(move |listener| {
                let host = listener.hostname.as_deref().unwrap_or("*");
                format!("{}/{} {host}:{}", gateway.id, listener.name, listener.port)
            })
        });
        all.collect()
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Ask<'a> {
    port: u16,
    host: &'a str,
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a [(&'a str, &'a str)],
    model: Option<&'a str>,
    seed: u64,
}

/// A POST of a path on port 80.
fn post(path: &str) -> Ask<'_> {
    Ask {
        port: 80,
        host: "example.org",
        method: "POST",
        path,
        query: None,
        headers: &[],
        model: None,
        seed: 1,
    }
}

impl Ask<'_> {
    fn answer(&self, world: &World) -> Result<Routed, NoRoute> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            headers.append(name.parse::<HeaderName>().expect("a header"), value.parse().expect("a value"));
        }
        let query = RouteQuery {
            port: self.port,
            host: self.host,
            method: &self.method.parse::<Method>().expect("a method"),
            path: self.path,
            query: self.query,
            headers: &headers,
            model: self.model,
        };
        world.state.resolve(&query, &mut StdRng::seed_from_u64(self.seed))
    }

    /// The pool's name, or in a few words why there is none.
    fn goes(&self, world: &World) -> String {
        match self.answer(world) {
            Ok(Routed::To(resolved)) => resolved.target.id.name.name.to_string(),
            Ok(Routed::Elsewhere(redirect)) => format!("{} {}", redirect.status, redirect.location),
            Err(NoRoute::Refused { what, .. }) => format!("refused: {what}"),
            Err(NoRoute::NoMatch) => "no match".to_owned(),
            Err(NoRoute::NoListener) => "no listener".to_owned(),
            Err(NoRoute::NoTarget { .. }) => "no target".to_owned(),
            Err(NoRoute::NoBackend { .. }) => "no backend".to_owned(),
        }
    }

    fn resolved(&self, world: &World) -> Resolved {
        match self.answer(world) {
            Ok(Routed::To(resolved)) => resolved,
            other => panic!("{self:?}: {other:?}"),
        }
    }
}

const GOOD: &str = "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs";
