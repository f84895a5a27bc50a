//! Shares under contention, of one admission and of two that tell each other.

use std::collections::HashMap;
use std::time::Duration;

use kvasir_core::{Usage, UsageBoard};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// A user who always has so many requests waiting at an admission.
struct Client {
    name: &'static str,
    at: usize,
    requests: usize,
}

fn client(name: &'static str, at: usize) -> Client {
    Client { name, at, requests: 12 }
}

/// Tokens by user since the count began.
type Served = Arc<Mutex<HashMap<&'static str, u64>>>;

/// Heavy-tailed: most requests are small, few are fifty times as large.
fn size(rng: &mut StdRng) -> Usage {
    let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.3).min(50.0);
    let prompt_tokens = (200.0 * tail) as u64;
    Usage { prompt_tokens, completion_tokens: rng.random_range(1..400), cached_tokens: None }
}

async fn keep_asking(admission: Arc<Admission>, name: &'static str, seed: u64, served: Served) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        let usage = size(&mut rng);
        let ask = Ask {
            model: "m",
            user: Some(name),
            session: None,
            prompt_tokens: usage.prompt_tokens as u32,
            max_tokens: None,
        };
        let Ok(mut permit) = admission.admit(ask).await else { return };
        let weighted = usage.prompt_tokens + 2 * usage.completion_tokens;
        tokio::time::sleep(Duration::from_micros(200 * weighted)).await;
        permit.settle(Some(&usage), true);
        *served.lock().entry(name).or_default() += weighted;
    }
}

/// What each user gets of all that is served within the window, once the window has gone by twice.
async fn shares(options: FairnessOptions, clients: &[Client], told: bool) -> HashMap<&'static str, f64> {
    let window = options.window_size;
    let admissions: Vec<_> = (0..2).map(|_| fairness(options.clone()).admission).collect();
    let served = Served::default();
    let mut seed = 0;
    for client in clients {
        for _ in 0..client.requests {
            seed += 1;
            let admission = Arc::clone(&admissions[client.at]);
            tokio::spawn(keep_asking(admission, client.name, seed, Arc::clone(&served)));
        }
    }
    let exchange = told.then(|| tokio::spawn(exchange(admissions.clone())));
    tokio::time::sleep(2 * window).await;
    served.lock().clear();
    tokio::time::sleep(window).await;
    let served = served.lock().clone();
    drop(exchange.inspect(JoinHandle::abort));
    admissions.iter().for_each(|admission| admission.close());
    let total: u64 = served.values().sum();
    served.into_iter().map(|(name, tokens)| (name, tokens as f64 / total as f64)).collect()
}

/// Two boards that meet every 100 ms, as if by Redis.
async fn exchange(admissions: Vec<Arc<Admission>>) {
    let mut logs: [Vec<(tokio::time::Instant, kvasir_core::UsageShare)>; 2] = Default::default();
    loop {
        let now = tokio::time::Instant::now();
        let mut totals = Vec::new();
        for (admission, log) in admissions.iter().zip(&mut logs) {
            log.extend(admission.take_settled().into_iter().map(|share| (now, share)));
            log.retain(|(at, _)| now - *at <= admission.window());
            let mut total: Vec<_> = log.iter().map(|(_, share)| *share).collect();
            total.extend(admission.running());
            totals.push(total);
        }
        admissions[0].set_peers(&totals[1]);
        admissions[1].set_peers(&totals[0]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn options(max_concurrent: usize) -> FairnessOptions {
    let weights = [("one", 1.0), ("two", 2.0), ("three", 3.0), ("other three", 3.0)];
    FairnessOptions {
        max_concurrent,
        user_weights: weights.map(|(name, weight)| (name.to_owned(), weight)).into(),
        window_size: Duration::from_secs(60),
        ..FairnessOptions::default()
    }
}

fn assert_shares(shares: &HashMap<&str, f64>, wanted: &[(&str, f64)]) {
    let total: f64 = wanted.iter().map(|(_, part)| part).sum();
    for (name, part) in wanted {
        let (share, due) = (shares.get(name).copied().unwrap_or_default(), part / total);
        assert!((share / due - 1.0).abs() < 0.05, "{name} has {share:.4}, is due {due:.4}: {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shares_follow_weights() {
    let clients = ["one", "two", "three"].map(|name| client(name, 0));
    let shares = shares(options(8), &clients, false).await;
    assert_shares(&shares, &[("one", 1.0), ("two", 2.0), ("three", 3.0)]);
}

#[tokio::test(start_paused = true)]
async fn more_requests_do_not_buy_a_larger_share() {
    let mut clients = ["a", "b", "c", "d"].map(|name| client(name, 0));
    clients[0].requests = 200;
    let shares = shares(options(4), &clients, false).await;
    assert_shares(&shares, &[("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn shares_follow_weights_over_two_replicas() {
    let clients = [
        client("one", 0),
        client("one", 1),
        client("two", 0),
        client("two", 1),
        client("three", 0),
        client("other three", 1),
    ];
    let wanted = [("one", 1.0), ("two", 2.0), ("three", 3.0), ("other three", 3.0)];
    assert_shares(&shares(options(4), &clients, true).await, &wanted);
    // Without a word between them each sees half of what the first two use.
    let apart = shares(options(4), &clients, false).await;
    assert!(apart["one"] > 1.3 / 9.0 && apart["three"] < 2.5 / 9.0, "{apart:?}");
}

#[tokio::test(start_paused = true)]
async fn who_asks_everywhere_gets_no_more() {
    let clients = [client("a", 0), client("a", 1), client("b", 0), client("c", 1)];
    let shares = shares(options(4), &clients, true).await;
    assert_shares(&shares, &[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
}
