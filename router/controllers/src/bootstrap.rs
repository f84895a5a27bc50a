//! What a cluster needs before the first Gateway: the class that is ours, and one Gateway of it.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};
use kvasir_api::gateway::{
    AllowedRoutes, Gateway, GatewayClass, GatewayClassSpec, GatewaySpec, Listener, NamespacesFrom,
    RouteNamespaces,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::retry::{BackOff, Complaints};
use crate::translate::Options;
use crate::watch::causes;

/// The name of the Gateway, and of its one listener.
const DEFAULT: &str = "default";
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a call may take.
const CALL_LASTS: Duration = Duration::from_secs(10);

/// Where the Gateway `default` belongs.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The router's own namespace.
    pub(crate) namespace: String,
    /// The one namespace whose objects count; `None` for all.
    pub(crate) watched: Option<String>,
    /// The port of its listener.
    pub(crate) port: u16,
}

/// Makes what is not there, and leaves alone what is. Tries until both are there.
pub(crate) async fn bootstrap(client: Client, options: Options, site: Site) {
    let class = gateway_class(&options);
    let gateway = gateway(&options, &site);
    if gateway.is_none() {
        tracing::warn!(
            namespace = site.namespace,
            watched = site.watched,
            "the Gateway {DEFAULT} is not made: only another namespace is watched; create a Gateway of class {} there",
            options.gateway_class
        );
    }
    let classes: Api<GatewayClass> = Api::all(client.clone());
    let gateways: Api<Gateway> = Api::namespaced(client, &site.namespace);
    let (class, ()) = tokio::join!(until_there(&classes, class), async {
        if let Some(gateway) = gateway {
            until_there(&gateways, gateway).await;
        }
    });
    let theirs = class.spec.controller_name;
    if theirs != options.controller_name {
        tracing::warn!(
            class = options.gateway_class,
            controller = theirs,
            "the GatewayClass belongs to another controller, so no Gateway is served"
        );
    }
}

async fn until_there<K>(api: &Api<K>, wanted: K) -> K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let kind = K::kind(&());
    let name = wanted.name_any();
    let mut back_off = BackOff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut complaints = Complaints::default();
    loop {
        match tokio::time::timeout(CALL_LASTS, there_or_made(api, &name, &wanted)).await {
            Ok(Ok(object)) => return object,
            Ok(Err(error)) => {
                if complaints.due("failed") {
                    tracing::warn!(%kind, name, "cannot be made; it is tried again: {}", causes(&error));
                }
            }
            Err(_) => tracing::debug!(%kind, name, "the API server does not answer"),
        }
        tokio::time::sleep(back_off.wait()).await;
    }
}

async fn there_or_made<K>(api: &Api<K>, name: &str, wanted: &K) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    if let Some(there) = api.get_opt(name).await? {
        return Ok(there);
    }
    // Another replica may be faster; then it is there at the next look.
    let made = api.create(&PostParams::default(), wanted).await?;
    tracing::info!(kind = %K::kind(&()), name, "made");
    Ok(made)
}

fn gateway_class(options: &Options) -> GatewayClass {
    let spec = GatewayClassSpec {
        controller_name: options.controller_name.clone(),
        description: Some("Gateways of the model router".to_owned()),
        ..GatewayClassSpec::default()
    };
    GatewayClass::new(&options.gateway_class, spec)
}

/// The Gateway `default`; `None` where nobody would see it.
fn gateway(options: &Options, site: &Site) -> Option<Gateway> {
    let Site { namespace, watched, port } = site;
    if watched.as_ref().is_some_and(|watched| watched != namespace) {
        return None;
    }
    let from = Some(NamespacesFrom::All);
    let listener = Listener {
        name: DEFAULT.to_owned(),
        port: *port,
        protocol: "HTTP".to_owned(),
        allowed_routes: Some(AllowedRoutes {
            namespaces: Some(RouteNamespaces { from, selector: None }),
            kinds: Vec::new(),
        }),
        ..Listener::default()
    };
    let spec = GatewaySpec {
        gateway_class_name: options.gateway_class.clone(),
        listeners: vec![listener],
        ..GatewaySpec::default()
    };
    let gateway = Gateway::new(DEFAULT, spec);
    let metadata = ObjectMeta { namespace: Some(namespace.clone()), ..gateway.metadata };
    Some(Gateway { metadata, ..gateway })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn site(watched: Option<&str>) -> Site {
        Site { namespace: "serving".to_owned(), watched: watched.map(str::to_owned), port: 8080 }
    }

    #[test]
    fn no_gateway_is_made_where_nobody_looks() {
        let made = |watched| gateway(&Options::default(), &site(watched)).is_some();
        assert!(made(None) && made(Some("serving")));
        assert!(!made(Some("tenant")));
    }

    #[test]
    fn the_objects_are_those_that_kthena_makes() {
        let options = Options::default();
        let class = serde_json::to_value(gateway_class(&options)).expect("serializable");
        assert_eq!(class["metadata"]["name"], "kthena-router");
        assert_eq!(class["spec"]["controllerName"], "volcano.sh/kthena-router");
        let gateway = serde_json::to_value(gateway(&options, &site(None))).expect("serializable");
        assert_eq!(
            gateway,
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "metadata": {"name": "default", "namespace": "serving"},
                "spec": {
                    "gatewayClassName": "kthena-router",
                    "listeners": [{"name": "default", "port": 8080, "protocol": "HTTP",
                        "allowedRoutes": {"namespaces": {"from": "All"}}}],
                },
            })
        );
    }
}
