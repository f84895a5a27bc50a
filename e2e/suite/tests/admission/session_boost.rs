//! Conversations that go on before those that begin, and the two gates before them.

use std::time::{Duration, Instant};

use kvasir_core::{EngineSample, SampleSink as _};
use kvasir_settings::resolved::{AdmissionSettings, SessionBoostSettings};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router};
use kvasir_suite::scripted::Scripted;

use crate::scene::{
    LONG, NUMBER, arrived, ask, ask_for, engine, occupy, order_of, outcome, serve, settings_of,
};

const SESSION: &str = "x-session-id";

fn one_for_each_pod() -> SessionBoostSettings {
    SessionBoostSettings {
        inflight_per_pod: 1,
        timeout: Some(LONG),
        ageing: None,
        ..SessionBoostSettings::default()
    }
}

async fn router(engines: &[&Scripted]) -> Router {
    router_with(engines, one_for_each_pod()).await
}

async fn router_with(engines: &[&Scripted], boost: SessionBoostSettings) -> Router {
    let mut settings = settings_of(engines, AdmissionSettings::SessionBoost(boost));
    settings.models[0].aliases = vec!["alias".into()];
    Router::start(settings).await.unwrap()
}

async fn waiting(router: &Router, model: &str, number: usize) {
    let series = format!(r#"kthena_router_session_boost_queue_size{{model="{model}"}}"#);
    eventually(&format!("{number} wait"), || router.metric(&series).unwrap_or(0.0) == number as f64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_before_others_begin() {
    let engine = engine().await;
    let router = router(&[&engine]).await;
    for session in ["older", "newer"] {
        let turn = occupy(&router, &engine, &[(SESSION, session)]).await;
        engine.proceed();
        assert_eq!(outcome(turn).await.0, 200);
    }
    let mut all = vec![occupy(&router, &engine, &[]).await];
    for (number, session) in
        [None, Some("unknown"), Some("older"), Some("newer"), None].into_iter().enumerate()
    {
        let name = number.to_string();
        let mut headers = vec![(NUMBER, name.as_str())];
        headers.extend(session.map(|session| (SESSION, session)));
        all.push(ask(&router, &headers));
        waiting(&router, MODEL, number + 1).await;
    }
    serve(&engine, 5).await;
    assert_eq!(order_of(&engine, NUMBER, 3), ["3", "2", "0", "1", "4"]);
    for asked in all {
        assert_eq!(outcome(asked).await.0, 200);
    }
}

/// The places are those of the pods that the alias leads to, though no engine lists the alias.
#[tokio::test(flavor = "multi_thread")]
async fn an_alias_has_the_places_of_its_models_pods() {
    let (one, other) = (engine().await, engine().await);
    let router = router(&[&one, &other]).await;
    let mut all: Vec<_> = (0..2).map(|_| ask_for(&router, "alias", &[])).collect();
    let running = || one.arrived().len() + other.arrived().len();
    eventually("two run", || running() == 2).await;
    all.push(ask_for(&router, "alias", &[]));
    waiting(&router, "alias", 1).await;
    assert_eq!(running(), 2);
    one.proceed();
    other.proceed();
    eventually("the third runs", || running() == 3).await;
    one.proceed();
    other.proceed();
    for asked in all {
        assert_eq!(outcome(asked).await.0, 200);
    }
}

/// While every engine has a queue of its own, nobody begins; as soon as one has none, it is noticed, though nothing
/// ends here.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_begins_while_every_engine_has_a_queue() {
    let engine = engine().await;
    let router = router(&[&engine]).await;
    let id = router.gateway.state.endpoints()[0].id.clone();
    let tell = |waiting| {
        router.gateway.state.sampled(&id, Ok(EngineSample { waiting, ..EngineSample::default() }));
    };
    tell(3);
    let asked = ask(&router, &[]);
    waiting(&router, MODEL, 1).await;
    assert_eq!(engine.arrived().len(), 0);
    tell(0);
    arrived(&engine, 1).await;
    engine.proceed();
    assert_eq!(outcome(asked).await.0, 200);
}

async fn nobody_runs(router: &Router) {
    let series = format!(r#"kthena_router_session_boost_queue_inflight{{model="{MODEL}"}}"#);
    eventually("nobody runs", || router.metric(&series) == Some(0.0)).await;
}

/// The next turn has the place that is kept for it at once, while somebody else waits before it who is not let in.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_kept_for_the_next_turn_of_a_conversation() {
    let engine = engine().await;
    let router =
        router_with(&[&engine], SessionBoostSettings { grace_period: LONG, ..one_for_each_pod() }).await;
    let turn = occupy(&router, &engine, &[(SESSION, "talk"), (NUMBER, "first")]).await;
    let other = ask(&router, &[(NUMBER, "other")]);
    waiting(&router, MODEL, 1).await;
    engine.proceed();
    assert_eq!(outcome(turn).await.0, 200);
    nobody_runs(&router).await;
    let next = occupy(&router, &engine, &[(SESSION, "talk"), (NUMBER, "next")]).await;
    engine.proceed();
    assert_eq!(outcome(next).await.0, 200);
    assert_eq!(order_of(&engine, NUMBER, 0), ["first", "next"]);
    other.abort();
    waiting(&router, MODEL, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_nobody_comes_for_is_given_to_the_next_in_line() {
    let engine = engine().await;
    let grace_period = Duration::from_millis(100);
    let router = router_with(&[&engine], SessionBoostSettings { grace_period, ..one_for_each_pod() }).await;
    let turn = occupy(&router, &engine, &[(SESSION, "talk")]).await;
    let other = ask(&router, &[]);
    waiting(&router, MODEL, 1).await;
    let told = Instant::now();
    engine.proceed();
    assert_eq!(outcome(turn).await.0, 200);
    arrived(&engine, 2).await;
    assert!(told.elapsed() >= grace_period);
    engine.proceed();
    assert_eq!(outcome(other).await.0, 200);
}
