//! What a swap and a look-up cost with 1,000 ModelRoutes, 1,000 HTTPRoutes, 250 targets and 2,000 endpoints.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Method};
use kvasir_core::{Address, EndpointId, EngineKind, Role, SystemClock};
use kvasir_state::plan::{
    ObjectName, PlanAttachment, PlanBackend, PlanGateway, PlanHttpMatch, PlanHttpRoute, PlanHttpRule,
    PlanListener, PlanPath, PlanRoute, PlanRule, PlanTarget, PlanTo, TargetId,
};
use kvasir_state::{Plan, PlanEndpoint, RouteQuery, Routed, State, StateOptions, StringTest};
use rand::SeedableRng;
use rand::rngs::StdRng;

const ROUTES: usize = 1_000;
const TARGETS: usize = 250;
const PODS_OF_A_TARGET: usize = 8;
const PORT: u16 = 8080;

fn endpoint(target: usize, pod: usize) -> PlanEndpoint {
    let address = format!("http://10.{}.{}.{}:8000", target / 250, target % 250, pod + 1);
    let labels =
        [("app", format!("server-{target}")), ("version", "v1".to_owned()), ("zone", "a".to_owned())];
    PlanEndpoint {
        id: EndpointId::new("default", format!("server-{target}-{pod}"), 8000, 0),
        address: Address::parse(&address).unwrap_or_else(|error| unreachable!("{error}")),
        engine: EngineKind::Vllm,
        role: Role::Both,
        pin_rank: false,
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<BTreeMap<_, _>>(),
        started_at: Some(1_700_000_000),
        ready: true,
    }
}

fn target(number: usize, pods: usize) -> PlanTarget {
    let id = TargetId::model_server("default", format!("server-{number}"));
    let model = format!("org/model-{number}");
    let endpoints = (0..pods).map(|pod| endpoint(number, pod)).collect();
    PlanTarget {
        served: Some(model.as_str().into()),
        ..PlanTarget::new(id, model.as_str().into(), endpoints)
    }
}

fn server(number: usize) -> PlanTo {
    PlanTo::Target(TargetId::model_server("default", format!("server-{}", number % TARGETS)))
}

fn route(number: usize) -> PlanRoute {
    let premium = PlanRule {
        headers: vec![("user-type".into(), StringTest::Exact("premium".into()))],
        to: vec![(server(number), 100)],
        ..PlanRule::default()
    };
    let rest =
        PlanRule { to: vec![(server(number + 1), 70), (server(number + 2), 30)], ..PlanRule::default() };
    PlanRoute {
        id: ObjectName::new("default", format!("route-{number}")),
        model: Some(format!("model-{number}").into()),
        adapters: vec![format!("adapter-{number}").into()],
        parents: None,
        rules: vec![premium, rest],
        refused: None,
    }
}

fn http_route(number: usize) -> PlanHttpRoute {
    let matching = |path| PlanHttpMatch { path, ..PlanHttpMatch::default() };
    let rule = PlanHttpRule {
        matches: vec![
            matching(PlanPath::Prefix(format!("/team-{number}").into())),
            matching(PlanPath::Exact(format!("/only-{number}").into())),
        ],
        backends: vec![PlanBackend::new(server(number), 1)],
        ..PlanHttpRule::default()
    };
    let parent = PlanAttachment {
        gateway: ObjectName::new("default", "gateway"),
        listener: "http".into(),
        port: PORT,
    };
    PlanHttpRoute {
        id: ObjectName::new("default", format!("http-{number}")),
        created: number as i64,
        parents: vec![parent],
        hostnames: Vec::new(),
        rules: vec![rule],
    }
}

fn plan(pods_of_first: usize) -> Plan {
    let pods = |number| if number == 0 { pods_of_first } else { PODS_OF_A_TARGET };
    let listener = PlanListener { name: "http".into(), port: PORT, hostname: None };
    Plan {
        targets: (0..TARGETS).map(|number| target(number, pods(number))).collect(),
        routes: (0..ROUTES).map(route).collect(),
        http_routes: (0..ROUTES).map(http_route).collect(),
        gateways: Some(vec![PlanGateway {
            id: ObjectName::new("default", "gateway"),
            listeners: vec![listener],
        }]),
        ..Plan::default()
    }
}

fn new_state() -> State {
    State::new(Arc::new(SystemClock), StateOptions::default())
}

fn swaps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replace");
    let state = new_state();
    state.replace(plan(PODS_OF_A_TARGET));
    let mut pods = PODS_OF_A_TARGET;
    group.bench_function("one pod came or went", |bench| {
        bench.iter_batched(
            || {
                pods = 2 * PODS_OF_A_TARGET - 1 - pods;
                plan(pods)
            },
            |plan| {
                let changes = state.replace(plan);
                changes.removed.iter().for_each(|gone| state.release_slot(gone.slot));
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("nothing changed", |bench| {
        bench.iter_batched(|| plan(pods), |plan| state.replace(plan), BatchSize::PerIteration);
    });
    group.bench_function("from nothing", |bench| {
        bench.iter_batched(
            || (new_state(), plan(PODS_OF_A_TARGET)),
            |(state, plan)| (state.replace(plan), state),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resolve");
    let state = new_state();
    state.replace(plan(PODS_OF_A_TARGET));
    let mut rng = StdRng::seed_from_u64(7);
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("content-type", "application/json"), ("user-agent", "openai"), ("user-type", "basic")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let query = |path, model| RouteQuery {
        port: PORT,
        host: "models.example.com:8080",
        method: &Method::POST,
        path,
        query: None,
        headers: &headers,
        model,
    };
    for (name, query) in [
        ("ModelRoute", query("/v1/chat/completions", Some("model-700"))),
        ("adapter", query("/v1/chat/completions", Some("adapter-700"))),
        ("HTTPRoute", query("/team-700/v1/chat/completions", None)),
    ] {
        group.bench_function(name, |bench| {
            bench.iter(|| black_box(state.resolve(black_box(&query), &mut rng)))
        });
    }
    let Ok(Routed::To(resolved)) = state.resolve(&query("/v1/chat/completions", Some("model-700")), &mut rng)
    else {
        unreachable!("the plan has the route");
    };
    group
        .bench_function("candidates of eight", |bench| bench.iter(|| black_box(state.candidates(&resolved))));
    group.finish();
}

criterion_group!(benches, swaps, lookups);
criterion_main!(benches);
