//! Users in turn.

use kvasir_settings::resolved::FairnessSettings;
use kvasir_suite::eventually;

use crate::scene::{
    NUMBER, USER, ask, engine, occupy, one_at_a_time, order_of, outcome, router, serve, waiting,
};

/// Six requests of each of two users wait, all of the first before all of the second.
async fn order_of_service(fairness: FairnessSettings) -> (Vec<String>, Vec<String>) {
    let engine = engine().await;
    let router = router(&engine, fairness).await;
    let mut all = vec![occupy(&router, &engine, &[(USER, "first")]).await];
    for number in 0..12 {
        let user = if number < 6 { "alice" } else { "bob" };
        all.push(ask(&router, &[(USER, user), (NUMBER, &number.to_string())]));
        waiting(&router, number + 1).await;
    }
    serve(&engine, 12).await;
    for asked in all {
        assert_eq!(outcome(asked).await.0, 200);
    }
    waiting(&router, 0).await;
    (order_of(&engine, USER, 1), order_of(&engine, NUMBER, 1))
}

fn count(order: &[String], user: &str) -> usize {
    order.iter().filter(|served| *served == user).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_users_share_alike_and_each_is_served_in_order() {
    let (users, numbers) = order_of_service(one_at_a_time()).await;
    for turns in [2, 4, 6, 8, 10] {
        assert_eq!(count(&users[..turns], "alice"), turns / 2, "{users:?}");
    }
    for user in ["alice", "bob"] {
        let own: Vec<u32> = users
            .iter()
            .zip(&numbers)
            .filter(|(served, _)| *served == user)
            .map(|(_, number)| number.parse().unwrap())
            .collect();
        assert!(own.is_sorted(), "{user}: {own:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_twice_the_weight_has_twice_the_turns() {
    let weights = [("alice".to_owned(), 2.0)].into();
    let (users, _) = order_of_service(FairnessSettings { user_weights: weights, ..one_at_a_time() }).await;
    assert_eq!((count(&users[..6], "alice"), count(&users[..6], "bob")), (4, 2), "{users:?}");
}

/// Without the header nobody is told from another: one line.
#[tokio::test(flavor = "multi_thread")]
async fn without_identity_it_is_first_come_first_served() {
    let (_, numbers) = order_of_service(FairnessSettings { user_header: None, ..one_at_a_time() }).await;
    let expected: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
}

/// Who used nothing of late comes before who used much, whoever came first; and the wait is told in the access log's
/// duration and in kthena's metrics.
#[tokio::test(flavor = "multi_thread")]
async fn use_of_the_past_counts() {
    let engine = engine().await;
    let router = router(&engine, one_at_a_time()).await;
    let used = occupy(&router, &engine, &[(USER, "heavy")]).await;
    engine.proceed();
    assert_eq!(outcome(used).await.0, 200);
    let running = occupy(&router, &engine, &[(USER, "other")]).await;
    let late = ask(&router, &[(USER, "heavy"), (NUMBER, "0")]);
    waiting(&router, 1).await;
    let light = ask(&router, &[(USER, "light"), (NUMBER, "1")]);
    waiting(&router, 2).await;
    serve(&engine, 2).await;
    assert_eq!(order_of(&engine, USER, 2), ["light", "heavy"]);
    for asked in [running, late, light] {
        assert_eq!(outcome(asked).await.0, 200);
    }
    let dequeued = r#"kthena_router_fairness_queue_dequeue_total{model="test-model",user_id="_all"}"#;
    assert_eq!(router.metric(dequeued), Some(4.0));
    let waits = r#"kthena_router_fairness_queue_duration_seconds_count{model="test-model",user_id="_all"}"#;
    assert_eq!(router.metric(waits), Some(4.0));
    assert!(!router.metrics_page().contains("heavy"), "no user is a label");
}

/// Nobody says what an answer cost whose client left in the middle of it; it was not for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_in_the_middle_of_an_answer_is_charged() {
    let engine = engine().await;
    let router = router(&engine, one_at_a_time()).await;
    let left = occupy(&router, &engine, &[(USER, "leaver")]).await;
    left.abort();
    eventually("the engine is told", || engine.left() == 1).await;
    let running = occupy(&router, &engine, &[(USER, "other")]).await;
    let late = ask(&router, &[(USER, "leaver")]);
    waiting(&router, 1).await;
    let light = ask(&router, &[(USER, "light")]);
    waiting(&router, 2).await;
    serve(&engine, 2).await;
    assert_eq!(order_of(&engine, USER, 2), ["light", "leaver"]);
    for asked in [running, late, light] {
        assert_eq!(outcome(asked).await.0, 200);
    }
}
