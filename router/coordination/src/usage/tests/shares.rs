//! Shares of users over two replicas that each serve whoever had least, as far as they know.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
/// Users, what each is due, and where each has requests.
const USERS: [(u64, u64, [bool; 2]); 4] =
    [(1, 1, [true, true]), (2, 2, [true, true]), (3, 3, [true, false]), (4, 3, [false, true])];

/// Serves, and remembers for a minute what it served.
struct Server {
    at: usize,
    board: Arc<Board>,
    served: Vec<(Instant, u64, u64)>,
}

impl Server {
    /// Serves one request, of the user who had least per what it is due.
    fn serve(&mut self, now: Instant, cost: u64) -> u64 {
        self.served.retain(|(at, ..)| now.saturating_duration_since(*at) <= MINUTE);
        let mut had: BTreeMap<u64, u64> =
            self.board.heard().into_iter().map(|(user, cost, _)| (user, cost)).collect();
        for (_, user, cost) in &self.served {
            *had.entry(*user).or_default() += cost;
        }
        let here = USERS.iter().filter(|(.., places)| places[self.at]);
        let next = here.min_by_key(|(user, due, _)| had.get(user).copied().unwrap_or(0) / due);
        let user = next.map_or(0, |(user, ..)| *user);
        self.served.push((now, user, cost));
        self.board.used(user, cost);
        user
    }
}

#[tokio::test]
async fn users_get_what_they_are_due_over_both_replicas() {
    let (server, clock) = (TestServer::start().await, TestClock::new());
    let redis = server.redis().await;
    let mut rng = StdRng::seed_from_u64(3);
    let (mut servers, mut exchanges) = (Vec::new(), Vec::new());
    for at in 0..2 {
        let (board, exchange) = replica_of(MINUTE, &redis, &clock);
        servers.push(Server { at, board, served: Vec::new() });
        exchanges.push(exchange);
    }
    let mut got: BTreeMap<u64, u64> = BTreeMap::new();
    for tenth in 0..1200 {
        for (server, exchange) in servers.iter_mut().zip(&mut exchanges) {
            for _ in 0..4 {
                // Heavy-tailed: most are small, few are fifty times as large.
                let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.3).min(50.0);
                let cost = (200_000.0 * tail) as u64;
                let user = server.serve(clock.now(), cost);
                if tenth >= 600 {
                    *got.entry(user).or_default() += cost;
                }
            }
            exchange.exchange().await;
        }
        clock.pass_time(Duration::from_millis(100));
    }
    let total: u64 = got.values().sum();
    for (user, due, _) in USERS {
        let (share, due) = (got[&user] as f64 / total as f64, due as f64 / 9.0);
        assert!((share / due - 1.0).abs() < 0.05, "{user} has {share:.4}, is due {due:.4}: {got:?}");
    }
}
