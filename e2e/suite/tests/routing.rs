//! Routes as objects of a cluster make them: limits, retries, rewrites and refusals, seen from both ends.

#![expect(clippy::expect_used, reason = "a test that cannot be set up must fail loudly")]

use std::time::{Duration, Instant};

use http::header::{HOST, LOCATION, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Request};
use kvasir_core::{Address, EndpointId, EngineKind, Role};
use kvasir_state::plan::{
    HeaderChanges, ObjectName, PathChange, PlanAttachment, PlanBackend, PlanGateway, PlanHttpMatch,
    PlanHttpRoute, PlanHttpRule, PlanListener, PlanPath, PlanRedirect, PlanRoute, PlanRule, PlanTarget,
    PlanTo, PlanUrlRewrite, RetryPolicy, TargetId,
};
use kvasir_state::{Plan, PlanEndpoint};
use kvasir_suite::client::{get, post, send};
use kvasir_suite::router::{Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};

const CHAT: &str = r#"{"model":"m","messages":[]}"#;
const SOON: Duration = Duration::from_millis(100);

fn good() -> Vec<Step> {
    vec![Step::Send(json_answer("200 OK", r#"{"id":"1","choices":[]}"#)), Step::Again]
}

async fn scripted(script: Vec<Step>) -> anyhow::Result<Scripted> {
    Ok(Scripted::start(script).await?)
}

/// A router without models of its own.
async fn router() -> anyhow::Result<Router> {
    let mut settings = settings(&["http://127.0.0.1:9".to_owned()])?;
    settings.models[0].endpoints.clear();
    Router::start(settings).await
}

fn endpoint(engine: &Scripted) -> PlanEndpoint {
    PlanEndpoint {
        id: EndpointId::new("ns", "pod", engine.address.port(), 0),
        address: Address::parse(&engine.url()).expect("a good URL"),
        engine: EngineKind::Vllm,
        role: Role::Both,
        pin_rank: false,
        labels: Default::default(),
        started_at: Some(1),
        ready: true,
    }
}

fn server() -> TargetId {
    TargetId::model_server("ns", "server")
}

fn pool() -> TargetId {
    TargetId::inference_pool("ns", "pool")
}

fn target(id: TargetId, engines: &[&Scripted]) -> PlanTarget {
    PlanTarget::new(id, "index-name".into(), engines.iter().map(|engine| endpoint(engine)).collect())
}

fn model_route(model: &str, to: PlanTo) -> PlanRoute {
    PlanRoute {
        id: ObjectName::new("ns", format!("route-{model}")),
        model: Some(model.into()),
        adapters: vec![format!("{model}-lora").into()],
        parents: None,
        rules: vec![PlanRule { to: vec![(to, 1)], ..PlanRule::default() }],
        refused: None,
    }
}

fn plan(target: PlanTarget) -> Plan {
    let routes = vec![model_route("m", PlanTo::Target(target.id.clone()))];
    Plan { targets: vec![target], routes, ..Plan::default() }
}

fn under(path: &str, id: TargetId) -> PlanHttpRule {
    let matching = PlanHttpMatch { path: PlanPath::Prefix(path.into()), ..PlanHttpMatch::default() };
    PlanHttpRule {
        matches: vec![matching],
        backends: vec![PlanBackend::new(PlanTo::Target(id), 1)],
        ..PlanHttpRule::default()
    }
}

/// One Gateway on the router's port, one HTTPRoute with these rules, one pool.
fn gateway_plan(router: &Router, pool: PlanTarget, rules: Vec<PlanHttpRule>) -> Plan {
    let (gateway, port) = (ObjectName::new("ns", "gateway"), router.inference.port());
    let parent = PlanAttachment { gateway: gateway.clone(), listener: "http".into(), port };
    let listener = PlanListener { name: "http".into(), port, hostname: None };
    Plan {
        targets: vec![pool],
        http_routes: vec![PlanHttpRoute {
            id: ObjectName::new("ns", "http-route"),
            created: 0,
            parents: vec![parent],
            hostnames: Vec::new(),
            rules,
        }],
        gateways: Some(vec![PlanGateway { id: gateway, listeners: vec![listener] }]),
        ..Plan::default()
    }
}

fn code(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    value["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// Sends a chat for `m`; gives status and error code.
async fn chat(router: &Router) -> anyhow::Result<(u16, String)> {
    let answer = send(router.inference, post("/v1/chat/completions", CHAT)?).await?;
    Ok((answer.status().as_u16(), code(answer.body())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_says_how_long_an_answer_may_take() -> anyhow::Result<()> {
    let (silent, router) = (scripted(vec![Step::Hold]).await?, router().await?);
    router.gateway.state.replace(plan(PlanTarget { timeout: Some(SOON), ..target(server(), &[&silent]) }));
    let begun = Instant::now();
    assert_eq!(chat(&router).await?, (504, "first_byte_timeout".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(5), "the router's own limit is ten minutes");
    assert_eq!(silent.arrived().len(), 1, "nobody asked for another attempt");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_route_says_how_long_all_attempts_may_take() -> anyhow::Result<()> {
    let (silent, router) = (scripted(vec![Step::Hold]).await?, router().await?);
    let rule = PlanHttpRule { timeout: Some(SOON), ..under("/", pool()) };
    router.gateway.state.replace(gateway_plan(&router, target(pool(), &[&silent]), vec![rule]));
    assert_eq!(chat(&router).await?, (504, "first_byte_timeout".to_owned()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_tried_as_often_as_it_asks() -> anyhow::Result<()> {
    let busy =
        vec![Step::Send(json_answer("503 Service Unavailable", r#"{"error":{"code":"busy"}}"#)), Step::Again];
    for (attempts, arrivals) in [(0, 1), (2, 3)] {
        let (busy, router) = (scripted(busy.clone()).await?, router().await?);
        let retry = Some(RetryPolicy { attempts, interval: Duration::from_millis(1) });
        router.gateway.state.replace(plan(PlanTarget { retry, ..target(server(), &[&busy]) }));
        assert_eq!(chat(&router).await?, (503, "busy".to_owned()), "the engine's own last word");
        assert_eq!(busy.arrived().len(), arrivals);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_engine_is_left_for_another_where_the_target_asks() -> anyhow::Result<()> {
    let (silent, quick) = (scripted(vec![Step::Hold]).await?, scripted(good()).await?);
    let router = router().await?;
    let retry = Some(RetryPolicy { attempts: 1, interval: Duration::ZERO });
    let target = PlanTarget { retry, timeout: Some(SOON), ..target(server(), &[&silent, &quick]) };
    router.gateway.state.replace(plan(target));
    for _ in 0..64 {
        assert_eq!(chat(&router).await?.0, 200);
        if !silent.arrived().is_empty() {
            return Ok(());
        }
    }
    anyhow::bail!("the silent engine was never asked")
}

/// A retry may come minutes after the decision: pods that terminate or are gone by then get none.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_service_meanwhile_gets_no_retry() -> anyhow::Result<()> {
    let busy = json_answer("503 Service Unavailable", r#"{"error":{"code":"busy"}}"#);
    for stays in [true, false] {
        let script = || vec![Step::Wait, Step::Send(busy.clone()), Step::Again];
        let (one, other) = (scripted(script()).await?, scripted(script()).await?);
        let router = router().await?;
        router.gateway.state.replace(plan(target(server(), &[&one, &other])));
        let asked = tokio::spawn(send(router.inference, post("/v1/chat/completions", CHAT)?));
        let (first, second) = loop {
            match (one.arrived().len(), other.arrived().len()) {
                (1, 0) => break (&one, &other),
                (0, 1) => break (&other, &one),
                _ => tokio::task::yield_now().await,
            }
        };
        let mut left = target(server(), &[first, second]);
        left.endpoints[1].ready = false;
        left.endpoints.truncate(if stays { 2 } else { 1 });
        router.gateway.state.replace(plan(left));
        // Were it asked, it would answer.
        second.proceed();
        first.proceed();
        let answer = asked.await??;
        assert_eq!((answer.status().as_u16(), code(answer.body())), (503, "busy".to_owned()));
        assert_eq!(second.arrived().len(), 0, "it had left when the retry was due");
        let denied = router.metric(r#"kvasir_retries_denied_total{model="index-name",reason="left"}"#);
        assert_eq!(denied, Some(1.0));
    }
    Ok(())
}

/// A pod that terminates gets no requests, though it alone has what they are about.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_response_brings_no_work_to_a_pod_that_terminates() -> anyhow::Result<()> {
    let stored = json_answer("200 OK", r#"{"id":"resp_a","object":"response"}"#);
    let (engine, router) = (scripted(vec![Step::Send(stored), Step::Again]).await?, router().await?);
    let next = || post("/v1/responses", r#"{"model":"m","input":"more","previous_response_id":"resp_a"}"#);
    router.gateway.state.replace(plan(target(server(), &[&engine])));
    assert_eq!(
        send(router.inference, post("/v1/responses", r#"{"model":"m","input":"x"}"#)?).await?.status(),
        200
    );
    assert_eq!(send(router.inference, next()?).await?.status(), 200);
    let mut terminating = target(server(), &[&engine]);
    terminating.endpoints[0].ready = false;
    router.gateway.state.replace(plan(terminating));
    for request in [next()?, get("/v1/responses/resp_a")?] {
        let refused = send(router.inference, request).await?;
        assert_eq!((refused.status().as_u16(), code(refused.body())), (503, "no_endpoint".to_owned()));
        assert!(refused.headers().contains_key(RETRY_AFTER));
    }
    assert_eq!(engine.arrived().len(), 2);
    router.gateway.state.replace(plan(target(server(), &[&engine])));
    assert_eq!(send(router.inference, get("/v1/responses/resp_a")?).await?.status(), 200, "it came back");
    router.gateway.state.replace(plan(target(server(), &[])));
    assert_eq!(send(router.inference, next()?).await?.status(), 400, "it is gone for good");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn model_and_labels_are_those_of_the_objects() -> anyhow::Result<()> {
    let (engine, router) = (scripted(good()).await?, router().await?);
    router
        .gateway
        .state
        .replace(plan(PlanTarget { served: Some("org/m".into()), ..target(server(), &[&engine]) }));
    for model in ["m", "m-lora"] {
        let body = CHAT.replace("\"m\"", &format!("{model:?}"));
        assert_eq!(send(router.inference, post("/v1/chat/completions", body)?).await?.status(), 200);
    }
    let bodies: Vec<_> = engine.arrived().iter().map(|arrived| arrived.body.clone()).collect();
    assert_eq!(bodies, [CHAT.replace("\"m\"", "\"org/m\""), CHAT.replace("\"m\"", "\"m-lora\"")]);
    let page = router.metrics_page();
    let line =
        page.lines().find(|line| line.starts_with("kthena_router_requests_total") && line.contains("\"m\""));
    let line = line.unwrap_or_default();
    for label in [
        "model_route=\"ns/route-m\"",
        "backend_type=\"model_server\"",
        "backend_name=\"ns/server\"",
        "\"org/m\"",
    ] {
        assert!(line.contains(label), "{label} in {line}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_leads_nowhere_says_why() -> anyhow::Result<()> {
    let router = router().await?;
    let limited = PlanRoute { refused: Some("rateLimit"), ..model_route("m", PlanTo::Target(server())) };
    router.gateway.state.replace(Plan {
        targets: vec![target(server(), &[])],
        routes: vec![limited],
        ..Plan::default()
    });
    assert_eq!(chat(&router).await?, (503, "feature_not_available".to_owned()));
    let dangling = vec![model_route("m", PlanTo::Target(server()))];
    router.gateway.state.replace(Plan { routes: dangling.clone(), ..Plan::default() });
    let answer = send(router.inference, post("/v1/chat/completions", CHAT)?).await?;
    assert_eq!((answer.status().as_u16(), code(answer.body())), (503, "no_endpoint".to_owned()));
    assert!(answer.headers().contains_key(RETRY_AFTER));
    let empty = vec![target(server(), &[])];
    router.gateway.state.replace(Plan { targets: empty, routes: dangling, ..Plan::default() });
    assert_eq!(chat(&router).await?, (503, "no_endpoint".to_owned()));
    router.gateway.state.replace(Plan::default());
    assert_eq!(chat(&router).await?, (404, "model_not_found".to_owned()));
    Ok(())
}

fn changes(set: &[(&'static str, &'static str)], remove: &[&'static str]) -> HeaderChanges {
    HeaderChanges {
        set: set.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect(),
        add: Vec::new(),
        remove: remove.iter().map(|name| HeaderName::from_static(name)).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_route_rewrites_both_ways() -> anyhow::Result<()> {
    let (engine, router) = (scripted(good()).await?, router().await?);
    let mut rule = under("/team", pool());
    rule.filters.rewrite = Some(PlanUrlRewrite {
        hostname: Some(HeaderValue::from_static("engine.internal")),
        path: Some(PathChange::Prefix("/v1/".into())),
    });
    rule.filters.request_headers =
        changes(&[("x-team", "a"), ("authorization", "Bearer ours")], &["x-secret"]);
    rule.filters.response_headers = changes(&[("x-answer", "b")], &["content-type"]);
    router.gateway.state.replace(gateway_plan(&router, target(pool(), &[&engine]), vec![rule]));
    let mut request = post("/team/chat/completions?q=1", r#"{"model":"client-text","messages":[]}"#)?;
    for (name, value) in [("x-secret", "s"), ("x-team", "client"), ("authorization", "Bearer client")] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let answer = send(router.inference, request).await?;
    assert_eq!(answer.status(), 200, "{:?}", answer.body());
    assert_eq!(answer.headers().get("x-answer"), Some(&HeaderValue::from_static("b")));
    assert!(!answer.headers().contains_key("content-type"));
    let arrived = engine.arrived().remove(0);
    let head = arrived.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/chat/completions?q=1 "), "{head}");
    for line in ["host: engine.internal", "x-team: a", "authorization: bearer ours"] {
        assert_eq!(head.lines().filter(|found| *found == line).count(), 1, "{line} in {head}");
    }
    assert!(!head.contains("x-secret") && !head.contains("client"), "{head}");
    assert!(arrived.body.starts_with(br#"{"model":"client-text""#), "a pool keeps the client's name");
    let page = router.metrics_page();
    assert!(page.contains("backend_name=\"ns/pool\"") && page.contains("backend_type=\"inference_pool\""));
    assert!(!page.contains("client-text"), "what a client writes is no label");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_an_http_route_knows_is_forwarded() -> anyhow::Result<()> {
    let (engine, router) = (scripted(good()).await?, router().await?);
    let mut old = under("/old", pool());
    old.filters.redirect = Some(PlanRedirect {
        scheme: Some("https".into()),
        hostname: Some("new.example".into()),
        port: None,
        path: Some(PathChange::Prefix("/new".into())),
        status: 301,
    });
    let rules = vec![under("/v1/files", pool()), old];
    router.gateway.state.replace(gateway_plan(&router, target(pool(), &[&engine]), rules));
    let answer = send(router.inference, get("/v1/files/f1?purpose=x")?).await?;
    assert_eq!(answer.status(), 200);
    let upload = Request::builder().method(Method::PUT).uri("/v1/files/f2").header(HOST, "router");
    let upload = upload.body(http_body_util::Full::new(bytes::Bytes::from_static(b"no JSON")))?;
    assert_eq!(send(router.inference, upload).await?.status(), 200);
    let arrived = engine.arrived();
    assert!(arrived[0].head.starts_with("GET /v1/files/f1?purpose=x "), "{}", arrived[0].head);
    assert!(arrived[1].head.starts_with("PUT /v1/files/f2 ") && arrived[1].body == b"no JSON"[..]);
    for request in [get("/old/page?a=b")?, post("/old/page?a=b", "x".repeat(100_000))?] {
        let answer = send(router.inference, request).await?;
        assert_eq!(answer.status(), 301);
        let location = HeaderValue::from_static("https://new.example/new/page?a=b");
        assert_eq!(answer.headers().get(LOCATION), Some(&location));
    }
    for (request, status, wanted) in [
        (get("/elsewhere")?, 404, "unknown_url"),
        (get("/v1/elsewhere")?, 405, "method_not_allowed"),
        (post("/v1/chat/completions", CHAT)?, 404, "model_not_found"),
    ] {
        let answer = send(router.inference, request).await?;
        assert_eq!((answer.status().as_u16(), code(answer.body()).as_str()), (status, wanted));
    }
    assert_eq!(send(router.inference, get("/healthz")?).await?.status(), 200);
    Ok(())
}
