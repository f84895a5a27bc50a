//! The validating webhook behind a real API server: what authors are told, and how its certificate lives.

mod rules;
mod site;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kvasir_suite::cluster::{Cluster, Crds, PodDraft, apply, install_crds};
use kvasir_suite::echo::{Echo, loopback};
use kvasir_suite::router::Router;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::dropin::deployment::SECRET;
use crate::process::{chat_status, until};
use crate::routers::free_port;
use site::{Said, Site, described, object, part, route, version};

/// A cluster whose definitions let everything through: there the webhook alone speaks.
async fn lenient() -> &'static Cluster {
    static LENIENT: OnceCell<Cluster> = OnceCell::const_new();
    LENIENT
        .get_or_init(|| async {
            let cluster = Cluster::start().await.unwrap();
            let client = cluster.client().await.unwrap();
            install_crds(&client, Crds::Ours).await.unwrap();
            loosen(&client).await;
            cluster
        })
        .await
}

async fn loosen(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for plural in ["modelroutes", "modelservers", "externalmodelproviders"] {
        let name = format!("{plural}.networking.serving.volcano.sh");
        let definition = definitions.get(&name).await.unwrap();
        let mut written = serde_json::to_value(definition).unwrap();
        for version in written["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        let definition = serde_json::from_value(written).unwrap();
        definitions.replace(&name, &PostParams::default(), &definition).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_is_told_in_kthenas_words() {
    let site = Site::new(lenient().await).await;
    let rules = rules::all();
    for kind in ["ModelRoute", "ModelServer", "ExternalModelProvider"] {
        let anything = object(kind, json!({"anything": true}));
        until("the definition lets everything through", async || {
            site.write(&anything).await.message.is_none()
        })
        .await;
    }
    let port = free_port();
    site.ask_at(port).await;
    let router = site.router("router", port).await;
    site.is_asked().await;
    let mut wrong = Vec::new();
    for rule in &rules {
        let expected = rule.refusal();
        let found = site.write(&rule.object).await.message.unwrap_or_default();
        let fits = match expected.strip_suffix("...") {
            Some(beginning) => found.starts_with(beginning) && found.len() > beginning.len(),
            None => found == expected,
        };
        if !fits {
            wrong.push(format!("{}\nexpected {expected:?}\nfound    {found:?}", rule.object["spec"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rules.len(), wrong.join("\n\n"));
    router.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_our_definitions_each_rule_is_kept_and_good_objects_pass_with_warnings() {
    let site = Site::new(Cluster::shared().await.unwrap()).await;
    let port = free_port();
    site.ask_at(port).await;
    let router = site.router("router", port).await;
    site.is_asked().await;
    for rule in rules::all() {
        assert!(site.write(&rule.object).await.message.is_some(), "{} passes", rule.object);
    }

    let unserved = |field: &str, what: &str, whom: &str| {
        vec![format!("{field}: {what} is not served yet; requests to {whom} are answered with status 503")]
    };
    let limit = json!({"modelName": "m", "rateLimit": {"inputTokensPerUnit": 1}, "rules": []});
    let elsewhere = json!({"modelName": "m", "rules": [
        {"targetModels": [{"modelServerName": "s"}, {"externalModelProviderName": "p"}]}]});
    let group = json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 1}, "workloadSelector": {
        "matchLabels": {"app": "a"},
        "pdGroup": {"groupKey": "g", "prefillLabels": {"r": "p"}, "decodeLabels": {"r": "d"}}}});
    let cases = [
        (
            route(json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}]})),
            Vec::new(),
        ),
        (route(limit), unserved("spec.rateLimit", "a rate limit", "this route")),
        (
            route(elsewhere),
            unserved(
                "spec.rules[0].targetModels[1].externalModelProviderName",
                "an external provider",
                "this target",
            ),
        ),
        (
            object("ModelServer", group),
            vec![
                "spec.kvConnector is absent: http is used, which asks the engines for no KV transfer; set its type to \
                 what the engines have"
                    .to_owned(),
            ],
        ),
        (
            object("ExternalModelProvider", json!({"baseURL": "https://models.example"})),
            unserved("spec", "an external provider", "a route that names this provider"),
        ),
    ];
    for (object, warnings) in cases {
        let said = site.write(&object).await;
        assert_eq!((said.message, said.warnings), (None, warnings), "{object}");
    }
    // A change is looked at like a new object.
    let good = route(json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}]}));
    apply(&site.client, &site.space, &good.to_string()).await.unwrap();
    let bad = good.to_string().replace(r#""modelServerName":"s""#, r#""modelServerName":"s","weight":0"#);
    let error = apply(&site.client, &site.space, &bad).await.unwrap_err();
    assert!(format!("{error:#}").contains("total weight must be greater than zero"), "{error:#}");
    router.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_one_authority_and_heal_together() {
    let site = Site::new(Cluster::shared().await.unwrap()).await;
    let ports = [free_port(), free_port()];
    site.ask_at(ports[0]).await;
    let (first, second) = tokio::join!(site.router("first", ports[0]), site.router("second", ports[1]));
    for router in [&first, &second] {
        until("the replica is trusted", async || described(router).await["trusted"] == "yes").await;
    }
    let secret = site.secret().await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let authorities = part(&secret, "ca.crt");
    assert_eq!(certificates(&authorities).len(), 1, "both stand on one");
    for part_name in ["tls.crt", "tls.key", "ca.key"] {
        assert!(!part(&secret, part_name).is_empty(), "{part_name}");
    }
    assert_eq!(site.trusted().await, Some(ByteString(authorities.clone())));
    let serves = async |port: u16, secret: &k8s_openapi::api::core::v1::Secret| {
        let served = shake_hands(&site, port, &part(secret, "ca.crt")).await;
        served.is_some_and(|served| served == certificates(&part(secret, "tls.crt")))
    };
    for port in ports {
        until("the replica serves what is stored", async || serves(port, &secret).await).await;
    }
    site.is_asked().await;
    site.ask_at(ports[1]).await;
    site.is_asked().await;

    // Until the last replica has looked again, no author is turned away, whichever replica is asked.
    let good = route(json!({"modelName": "m", "rules": []}));
    site.secrets().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let mut asked = 0;
    until("both replicas serve another certificate", async || {
        site.ask_at(ports[asked % 2]).await;
        asked += 1;
        let said = site.write(&good).await;
        assert_eq!(said.message, None, "asked {asked} times");
        let Some(secret) = site.secret().await else { return false };
        serves(ports[0], &secret).await && serves(ports[1], &secret).await
    })
    .await;
    let secret = site.secret().await.unwrap();
    let now = part(&secret, "ca.crt");
    assert_eq!(certificates(&now).len(), 2, "the former authority stays trusted");
    assert_eq!(certificates(&now)[1..], certificates(&authorities));
    until("everybody trusts both", async || site.trusted().await == Some(ByteString(now.clone()))).await;
    stop([first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_runs_out_is_replaced_in_its_place() {
    let site = Site::new(Cluster::shared().await.unwrap()).await;
    let old = Issued::by_us(&site.name(), Duration::from_secs(10 * 24 * 3600));
    apply(&site.client, &site.space, &old.secret(Some("generated")).to_string()).await.unwrap();
    let port = free_port();
    site.ask_at(port).await;
    let router = site.router("router", port).await;
    site.is_asked().await;
    let secret = site.secret().await.unwrap();
    assert_ne!(part(&secret, "tls.crt"), old.chain.as_bytes(), "a third of its life was left");
    let authorities = certificates(&part(&secret, "ca.crt"));
    assert!(authorities.contains(&certificates(old.authority.as_bytes())[0]), "who trusted it goes on");
    assert_eq!(site.trusted().await, Some(ByteString(part(&secret, "ca.crt"))));
    router.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_kthena_made_is_used_and_left_alone() {
    let site = Site::new(Cluster::shared().await.unwrap()).await;
    let theirs = Issued::by_us(&site.name(), Duration::from_secs(3650 * 24 * 3600));
    let made = apply(&site.client, &site.space, &theirs.secret(None).to_string()).await.unwrap().remove(0);
    let port = free_port();
    site.ask_at(port).await;
    let router = site.router("router", port).await;
    site.is_asked().await;
    let secret = site.secret().await.unwrap();
    assert_eq!(Some(version(&secret)), made.metadata.resource_version, "nobody has written it");
    assert_eq!(site.trusted().await, Some(ByteString(theirs.authority.clone().into_bytes())));
    let served = shake_hands(&site, port, theirs.authority.as_bytes()).await;
    assert_eq!(served, Some(certificates(theirs.chain.as_bytes())));
    router.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_webhook_nothing_is_written_and_requests_are_served() {
    let site = Site::new(Cluster::shared().await.unwrap()).await;
    let engine = Echo::start("engine", (loopback(), 0).into(), Vec::new(), None).await.unwrap();
    let server = json!({"inferenceEngine": "vLLM", "workloadSelector": {"matchLabels": {"app": "engine"}},
        "workloadPort": {"port": engine.address.port()}});
    let target = route(json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "case"}]}]}));
    for object in [object("ModelServer", server), target.clone()] {
        apply(&site.client, &site.space, &object.to_string()).await.unwrap();
    }
    let pod = PodDraft::new("engine", &engine.address.ip().to_string()).label("app", "engine");
    pod.create(&site.client, &site.space).await.unwrap();
    // Somebody has the webhook's port.
    let squatter = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = squatter.local_addr().unwrap().port();
    site.ask_at(port).await;
    let router = site.router("router", port).await;
    until("a request is answered", async || chat_status(router.inference.port(), "m").await == 200).await;
    let problems = described(&router).await["problems"].clone();
    let is_said =
        |problems: &Value| problems[0].as_str().is_some_and(|text| text.starts_with("cannot listen at"));
    assert!(is_said(&problems), "{problems}");
    drop(squatter);
    // Nobody has it now, for some seconds.
    let mut fresh = target.clone();
    fresh["metadata"]["name"] = json!("fresh");
    let refused =
        |said: &Said| said.message.as_ref().is_some_and(|text| text.contains("failed calling webhook"));
    let mut closed = 0;
    until("the webhook is there", async || {
        let said = site.write(&fresh).await;
        closed += usize::from(refused(&said));
        assert_eq!(chat_status(router.inference.port(), "m").await, 200);
        said.message.is_none()
    })
    .await;
    site.is_asked().await;
    router.stop().await.unwrap();

    assert!(closed > 0, "it was never asked in vain");
    let said = site.write(&fresh).await;
    assert!(refused(&said), "who fails closed lets nothing through: {said:?}");
    let other = site.router("other", free_port()).await;
    until("a request is answered", async || chat_status(other.inference.port(), "m").await == 200).await;
    assert!(refused(&site.write(&fresh).await), "nobody is where the API server asks");
    other.stop().await.unwrap();
}

async fn stop(routers: [Router; 2]) {
    for router in routers {
        router.stop().await.unwrap();
    }
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap()
}

/// The chain that is served at a port, if who trusts these authorities takes it for the webhook.
async fn shake_hands(site: &Site, port: u16, authorities: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities) {
        roots.add(authority).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap();
    let name = ServerName::try_from(site.name()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let chain = stream.get_ref().1.peer_certificates()?;
    Some(chain.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

/// A certificate with its authority, as a Secret holds it.
struct Issued {
    chain: String,
    key: String,
    authority: String,
    authority_key: String,
}

impl Issued {
    /// One that was made a year ago and has so much time left.
    fn by_us(name: &str, left: Duration) -> Self {
        let now = rcgen::date_time_ymd(1970, 1, 1) + SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let year = Duration::from_secs(365 * 24 * 3600);
        let authority_key = KeyPair::generate().unwrap();
        let mut described = CertificateParams::default();
        described.distinguished_name.remove(DnType::CommonName);
        described.distinguished_name.push(DnType::OrganizationName, "Volcano");
        described.distinguished_name.push(DnType::CommonName, "kthena-webhook-ca");
        described.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        described.not_before = now - year;
        described.not_after = now + year * 9;
        let authority = described.self_signed(&authority_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned(), format!("{name}.cluster.local")]).unwrap();
        params.not_before = now - year;
        params.not_after = now + left;
        let issuer = Issuer::new(described, &authority_key);
        let chain = params.signed_by(&key, &issuer).unwrap().pem();
        Self { chain, key: key.serialize_pem(), authority, authority_key: authority_key.serialize_pem() }
    }

    fn secret(&self, label: Option<&str>) -> Value {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET},
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": self.chain, "tls.key": self.key, "ca.crt": self.authority}});
        if let Some(label) = label {
            secret["metadata"]["labels"] = json!({"kvasir.io/webhook-certificate": label});
            secret["stringData"]["ca.key"] = json!(self.authority_key);
        }
        secret
    }
}
