use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;
use http::Method;
use kvasir_core::{
    Address, Completeness, EndpointId, EngineKind, OwnerSlot, Role, SideClient as _, SideRequest,
    SideResponse, UpstreamTls,
};
use kvasir_gateway::Doors;
use kvasir_gateway::listener::{Grace, Served};
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::resolved::AccessLog;
use kvasir_state::PlanEndpoint;
use kvasir_state::plan::{
    ObjectName, PlanAttachment, PlanBackend, PlanGateway, PlanHttpRoute, PlanHttpRule, PlanListener,
    PlanRoute, PlanRule, PlanTarget, PlanTo, TargetId,
};
use kvasir_upstream::HyperSideClient;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::house::Furniture;

const MODEL: &str = "mock-model";

/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(60);

/// A house with a household, without a scraper.
struct Rig {
    house: House,
    household: Arc<Household>,
    learning: Learning,
    stop: CancellationToken,
}

fn rig(settings: Settings) -> Rig {
    let (settings, stop) = (Arc::new(settings), CancellationToken::new());
    let house = house::build(&settings, Furniture::default()).unwrap();
    let sharing = Sharing::start(&house, &settings, &stop);
    let (household, learning) = Household::new(&house, &settings, &sharing, &stop);
    Rig { house, household, learning, stop }
}

fn settings() -> Settings {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Settings {
        listen: any,
        metrics_listen: any,
        admin_listen: any,
        access_log: AccessLog { enabled: false, ..Settings::default().access_log },
        drain_settle: Duration::ZERO,
        ..Settings::default()
    }
}

impl Rig {
    fn source(&self, slot: OwnerSlot) -> Option<(String, Completeness)> {
        let stats = self.house.gateway.index.stats();
        let owner = stats.into_iter().find(|owner| owner.slot == slot)?;
        Some((owner.source, owner.completeness))
    }

    fn slot(&self, pod: &str) -> OwnerSlot {
        self.house.gateway.state.endpoint(&id(pod, 0)).unwrap().slot
    }

    fn waiting(&self) -> usize {
        self.household.inside.lock().waiting.len()
    }

    /// Until the engine's events are followed and its whole past is known.
    async fn followed(&self, slot: OwnerSlot) {
        let followed = |(source, completeness): (String, Completeness)| {
            source.starts_with("events from") && completeness == Completeness::Exact
        };
        eventually("the events are followed", || self.source(slot).is_some_and(followed)).await;
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GUARD, "it never came to be that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn id(pod: &str, rank: u32) -> EndpointId {
    EndpointId::new("ns", pod, 8000, rank)
}

fn planned(pod: &str, url: &str) -> PlanEndpoint {
    PlanEndpoint {
        id: id(pod, 0),
        address: Address::parse(url).unwrap(),
        engine: EngineKind::Vllm,
        role: Role::Both,
        pin_rank: false,
        labels: BTreeMap::new(),
        started_at: Some(1),
        ready: true,
    }
}

/// One ModelServer with these pods, and a ModelRoute to it.
fn plan(pods: Vec<PlanEndpoint>) -> Plan {
    named_plan(MODEL, pods)
}

fn named_plan(model: &str, pods: Vec<PlanEndpoint>) -> Plan {
    let server = TargetId::model_server("ns", model);
    let rule = PlanRule { to: vec![(PlanTo::Target(server.clone()), 1)], ..PlanRule::default() };
    let route = PlanRoute {
        id: ObjectName::new("ns", model),
        model: Some(model.into()),
        adapters: Vec::new(),
        parents: None,
        rules: vec![rule],
        refused: None,
    };
    let target = PlanTarget { served: Some(model.into()), ..PlanTarget::new(server, model.into(), pods) };
    Plan { targets: vec![target], routes: vec![route], ..Plan::default() }
}

async fn engine() -> Engine {
    let config =
        EngineConfig { decode_us_per_token: 0.0, prefill_us_per_token: 0.0, ..EngineConfig::default() };
    Engine::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_is_learned_about_when_it_comes_and_forgotten_when_it_leaves() {
    let (mut rig, engine) = (rig(settings()), engine().await);
    rig.household.apply(Plan::default());
    rig.learning.first_knowledge().await;
    rig.household.apply(plan(vec![planned("a", &engine.url())]));
    let slot = rig.slot("a");
    rig.followed(slot).await;
    // The same again is nothing new.
    rig.household.apply(plan(vec![planned("a", &engine.url())]));
    assert_eq!(rig.slot("a"), slot);
    assert!(rig.source(slot).unwrap().0.starts_with("events from"));

    rig.household.apply(Plan::default());
    let index = Arc::clone(&rig.house.gateway.index);
    eventually("the index has forgotten it", || index.stats().is_empty()).await;
    assert!(rig.household.inside.lock().tenants.is_empty());
    // Once nobody writes to the number any more, another endpoint has it, and begins with nothing.
    let state = Arc::clone(&rig.house.gateway.state);
    let gone = TargetId::model_server("ns", MODEL);
    assert!(state.target(&gone).is_none());
    let mut number = 0;
    eventually("the number is given out again", || {
        number += 1;
        rig.household.apply(plan(vec![planned(&format!("b{number}"), &engine.url())]));
        rig.slot(&format!("b{number}")) == slot
    })
    .await;
    rig.followed(slot).await;
    rig.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_engine_is_another_owner() {
    let (rig, engine) = (rig(settings()), engine().await);
    rig.household.apply(plan(vec![planned("a", &engine.url())]));
    let before = rig.slot("a");
    rig.followed(before).await;
    let restarted = PlanEndpoint { started_at: Some(2), ..planned("a", &engine.url()) };
    rig.household.apply(plan(vec![restarted]));
    let after = rig.slot("a");
    assert_ne!(after, before);
    rig.followed(after).await;
    eventually("the former owner is forgotten", || rig.source(before).is_none()).await;
    rig.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_not_ready_is_not_asked() {
    let (mut rig, engine) = (rig(settings()), engine().await);
    let starting = PlanEndpoint { ready: false, ..planned("a", &engine.url()) };
    rig.household.apply(plan(vec![starting.clone()]));
    let slot = rig.slot("a");
    assert_eq!((rig.waiting(), *rig.household.first.borrow()), (1, Some(0)));
    // Nobody waits for it either.
    rig.learning.first_knowledge().await;
    assert!(engine.requests().is_empty());
    assert_eq!(rig.source(slot).unwrap().0, PLACEMENTS);

    rig.household.apply(plan(vec![planned("a", &engine.url())]));
    assert_eq!((rig.waiting(), *rig.household.first.borrow()), (0, Some(0)));
    rig.followed(slot).await;
    // What is known of its cache outlives a moment of not being ready.
    rig.household.apply(plan(vec![starting]));
    assert_eq!((rig.slot("a"), rig.waiting()), (slot, 0));
    assert!(rig.source(slot).unwrap().0.starts_with("events from"));
    rig.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_of_one_engine_are_one_site_and_a_change_begins_it_anew() {
    let (rig, engine) = (rig(settings()), engine().await);
    let rank = |rank| PlanEndpoint { id: id("a", rank), pin_rank: true, ..planned("a", &engine.url()) };
    rig.household.apply(plan(vec![rank(0), rank(1)]));
    let (first, second) = (rig.slot("a"), rig.house.gateway.state.endpoint(&id("a", 1)).unwrap().slot);
    assert_eq!(rig.household.inside.lock().tenants.len(), 1);
    rig.followed(first).await;
    rig.household.apply(plan(vec![rank(0)]));
    assert_eq!(rig.slot("a"), first);
    eventually("the second rank is forgotten", || rig.source(second).is_none()).await;
    rig.followed(first).await;
    rig.household.apply(Plan::default());
    eventually("both are", || rig.source(first).is_none()).await;
    rig.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokenizers_follow_the_models_of_the_plan() {
    let rig = rig(settings());
    let models = || {
        let status = rig.house.gateway.tokens.status();
        status.into_iter().map(|model| model.model.to_string()).collect::<Vec<_>>()
    };
    rig.household.apply(named_plan("m", Vec::new()));
    assert_eq!(models(), ["m"]);
    let mut both = named_plan("m", Vec::new());
    both.targets.extend(named_plan("n", Vec::new()).targets);
    rig.household.apply(both);
    assert_eq!(models(), ["m", "n"]);
    rig.household.apply(named_plan("n", Vec::new()));
    assert_eq!(models(), ["n"]);
    rig.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_of_the_settings_come_before_those_of_plans() {
    let mut settings = settings();
    let url = "http://127.0.0.1:9";
    settings.models = vec![kvasir_settings::resolved::ModelSettings {
        name: "m".into(),
        served_name: Some("ours".into()),
        aliases: Vec::new(),
        engine: EngineKind::Vllm,
        tokenizer: None,
        chat_template: None,
        adapters: Vec::new(),
        connector: None,
        endpoints: vec![kvasir_settings::resolved::EndpointSettings::new(Address::parse(url).unwrap())],
    }];
    let rig = rig(settings);
    for plan in [Plan::default(), named_plan("m", vec![planned("a", url)])] {
        rig.household.apply(plan);
        let state = &rig.house.gateway.state;
        let names: Vec<String> = state.index_models().iter().map(ToString::to_string).collect();
        assert!(names.contains(&"ours".to_owned()), "{names:?}");
        let own = state.endpoint(&EndpointId::new("default", "127.0.0.1", 9, 0)).unwrap();
        assert_eq!((own.model.as_str(), own.slot), ("ours", OwnerSlot(0)));
    }
    rig.stop.cancel();
}

/// A household with open doors.
struct Open {
    rig: Rig,
    main: SocketAddr,
    served: JoinHandle<Served>,
}

fn open(settings: Settings) -> Open {
    let doors = Doors::bind(settings.listen, settings.metrics_listen, settings.admin_listen).unwrap();
    let [main, ..] = doors.addresses().unwrap();
    let rig = rig(settings);
    let (gateway, stop) = (Arc::clone(&rig.house.gateway), rig.stop.clone());
    let grace = Grace { settle: Duration::ZERO, drain: GUARD };
    let served = tokio::spawn(doors.serve(gateway, stop, CancellationToken::new(), grace));
    Open { rig, main, served }
}

async fn call(port: u16, method: Method, path: &str, body: &'static [u8]) -> Option<SideResponse> {
    let request = SideRequest {
        method,
        url: format!("http://127.0.0.1:{port}{path}"),
        tls: None,
        body: Bytes::from_static(body),
        timeout: GUARD,
        max_bytes: 8 << 20,
    };
    // A client of its own each time: connections that are kept would outlive their port.
    HyperSideClient::default().call(request).await.ok()
}

async fn status(port: u16, method: Method, path: &str) -> u16 {
    const BODY: &[u8] = br#"{"model":"mock-model","prompt":"a","max_tokens":1}"#;
    let body = if method == Method::POST { BODY } else { b"" };
    call(port, method, path, body).await.map_or(0, |answer| answer.status.as_u16())
}

async fn status_becomes(port: u16, wanted: u16) {
    let begun = Instant::now();
    while status(port, Method::POST, "/v1/completions").await != wanted {
        assert!(begun.elapsed() < GUARD, "{wanted} never came");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_before_the_first_plan_are_asked_to_come_again() {
    let engine = engine().await;
    let open = open(settings());
    let (port, readiness) = (open.main.port(), &open.rig.house.gateway.readiness);
    readiness.await_routes();
    let gate = readiness.wait_for("kubernetes: modelroutes");
    readiness.set_ready();
    for (method, path) in [(Method::POST, "/v1/completions"), (Method::GET, "/any")] {
        let answer = call(port, method, path, br#"{"model":"mock-model","prompt":"a"}"#).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.headers["retry-after"].to_str().unwrap()), (503, "1"));
    }
    let ready = call(port, Method::GET, "/readyz", b"").await.unwrap();
    assert_eq!(ready.status.as_u16(), 503);
    assert_eq!(&*ready.body, br#"{"message":"router is not ready","pending":["kubernetes: modelroutes"]}"#);
    assert_eq!(status(port, Method::GET, "/healthz").await, 200);

    open.rig.household.apply(plan(vec![planned("a", &engine.url())]));
    gate.open();
    assert_eq!(status(port, Method::GET, "/readyz").await, 200);
    assert_eq!(status(port, Method::POST, "/v1/completions").await, 200);
    assert_eq!(status(port, Method::GET, "/any").await, 404);
    open.rig.stop.cancel();
    assert_eq!(open.served.await.unwrap(), Served::Drained);
}

fn listener(port: u16, hostname: Option<&str>) -> PlanListener {
    PlanListener { name: "http".into(), port, hostname: hostname.map(Into::into) }
}

/// The plan, with a Gateway in front.
fn behind(mut plan: Plan, listeners: Vec<PlanListener>) -> Plan {
    plan.gateways = Some(vec![PlanGateway { id: ObjectName::new("ns", "g"), listeners }]);
    plan
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_of_gateways_open_and_close_beside_the_main_port() {
    let engine = engine().await;
    let open = open(Settings { metrics_on_router_port: true, ..settings() });
    let (main, port, other) = (open.main.port(), free_port(), free_port());
    let apply = |listeners| {
        let plan = plan(vec![planned("a", &engine.url())]);
        open.rig.household.apply(behind(plan, listeners));
    };
    apply(vec![listener(port, None)]);
    status_becomes(port, 200).await;
    assert_eq!(status(main, Method::POST, "/v1/completions").await, 404, "it is no listener's port");
    for (path, code) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
        assert_eq!(status(main, Method::GET, path).await, code, "{path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(status(port, Method::GET, path).await, 404, "{path} is told at the router's own port");
    }
    // Another host on the same port: the socket stays, the table changes.
    apply(vec![listener(port, Some("elsewhere.test")), listener(other, None)]);
    assert_eq!(status(port, Method::POST, "/v1/completions").await, 404);
    status_becomes(other, 200).await;
    apply(vec![listener(other, None)]);
    status_becomes(port, 0).await;
    assert_eq!(status(other, Method::POST, "/v1/completions").await, 200);
    open.rig.stop.cancel();
    assert_eq!(open.served.await.unwrap(), Served::Drained);
    assert_eq!(status(other, Method::GET, "/healthz").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_cannot_be_opened_is_told_of() {
    let open = open(settings());
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let mut failed = open.rig.house.gateway.ports.failed();
    open.rig.household.apply(behind(plan(Vec::new()), vec![listener(taken, None)]));
    failed.wait_for(|failed| failed.contains_key(&taken)).await.unwrap();
    open.rig.household.apply(behind(plan(Vec::new()), Vec::new()));
    failed.wait_for(BTreeMap::is_empty).await.unwrap();
    open.rig.stop.cancel();
    open.served.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_access_log_names_gateway_route_and_pool() {
    let (engine, folder) = (engine().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("access.log");
    let access_log = AccessLog { enabled: true, json: true, output: file.to_str().unwrap().to_owned() };
    let open = open(Settings { access_log, ..settings() });
    let main = open.main.port();
    let pool = TargetId::inference_pool("ns", "pool");
    let rule = PlanHttpRule {
        backends: vec![PlanBackend::new(PlanTo::Target(pool.clone()), 1)],
        ..PlanHttpRule::default()
    };
    let route = PlanHttpRoute {
        id: ObjectName::new("ns", "http-route"),
        created: 1,
        parents: vec![PlanAttachment {
            gateway: ObjectName::new("ns", "g"),
            listener: "http".into(),
            port: main,
        }],
        hostnames: Vec::new(),
        rules: vec![rule],
    };
    let target = PlanTarget::new(pool, "pool".into(), vec![planned("a", &engine.url())]);
    let plan = Plan { targets: vec![target], http_routes: vec![route], ..Plan::default() };
    open.rig.household.apply(behind(plan, vec![listener(main, None)]));
    assert_eq!(status(main, Method::POST, "/v1/completions").await, 200);
    open.rig.stop.cancel();
    open.served.await.unwrap();
    open.rig.house.gateway.access_log.as_ref().unwrap().flush();
    let text = std::fs::read_to_string(&file).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    for (field, value) in [
        ("gateway", "ns/g"),
        ("http_route", "ns/http-route"),
        ("inference_pool", "ns/pool"),
        ("selected_pod", "ns/a:8000"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert!(line.get("model_server").is_none() && line.get("model_route").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_server_with_tls_are_asked_over_tls() {
    let rig = rig(settings());
    let with = |tls: Option<UpstreamTls>| {
        let mut plan = plan(vec![planned("a", "http://127.0.0.1:9")]);
        plan.targets[0].tls = tls;
        plan
    };
    rig.household.apply(with(Some(UpstreamTls::Unverified)));
    let endpoint = || rig.house.gateway.state.endpoint(&id("a", 0)).unwrap();
    let slot = endpoint().slot;
    assert_eq!(endpoint().address.url(), "https://127.0.0.1:9");
    let named = Some(UpstreamTls::Verified("engine.test".into()));
    rig.household.apply(with(named.clone()));
    // The same engine, spoken to in another way.
    assert_eq!((endpoint().address.tls.clone(), endpoint().slot), (named, slot));
    rig.household.apply(with(None));
    assert_eq!((endpoint().address.url().as_str(), endpoint().slot), ("http://127.0.0.1:9", slot));
    rig.stop.cancel();
}

/// A way to `engine` that speaks TLS, with a certificate that nobody signed.
async fn behind_tls(engine: &Engine) -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(["engine.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, engine) = (listener.local_addr().unwrap(), engine.address());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(stream).await else { return };
                let Ok(mut far) = TcpStream::connect(engine).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_behind_tls_is_learned_about_and_served() {
    let engine = engine().await;
    let address = behind_tls(&engine).await;
    let open = open(settings());
    let with = |tls| {
        let mut plan = plan(vec![planned("a", &format!("http://{address}"))]);
        plan.targets[0].tls = Some(tls);
        plan
    };
    open.rig.household.apply(with(UpstreamTls::Unverified));
    // Its event sources are asked for over TLS.
    open.rig.followed(open.rig.slot("a")).await;
    assert_eq!(status(open.main.port(), Method::POST, "/v1/completions").await, 200);
    // Whom nobody trusts is not spoken to where that is asked for.
    open.rig.household.apply(with(UpstreamTls::Verified("engine.test".into())));
    assert_eq!(status(open.main.port(), Method::POST, "/v1/completions").await, 503);
    open.rig.stop.cancel();
    open.served.await.unwrap();
}

/// A fleet of this size in one plan, again and again: most of a plan is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_endpoints_are_no_reason_to_wait() {
    let rig = rig(settings());
    let pods = |started_at| {
        let pod = |number: usize| PlanEndpoint {
            ready: false,
            started_at: Some(if number == 7 { started_at } else { 1 }),
            ..planned(&format!("pod-{number}"), "http://127.0.0.1:9")
        };
        plan((0..2_000).map(pod).collect())
    };
    rig.household.apply(pods(1));
    let begun = Instant::now();
    for started_at in 2..22 {
        rig.household.apply(pods(started_at));
    }
    let each = begun.elapsed() / 20;
    tracing::info!(?each, "a plan with one change among 2,000 endpoints");
    assert!(each < Duration::from_millis(500), "{each:?}");
    rig.stop.cancel();
}
