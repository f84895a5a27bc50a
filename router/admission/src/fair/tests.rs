use std::collections::HashMap;
use std::time::Duration;

use kvasir_core::Usage;
use proptest::prelude::*;

use super::*;
use crate::ledger::Names;
use crate::waiters::Waiter;

struct Bench {
    line: FairLine,
    waiters: Waiters,
    now: Instant,
    arrivals: u64,
    peers: Arc<PeerBook>,
}

fn bench(options: FairnessOptions) -> Bench {
    let now = Instant::now();
    let peers = Arc::<PeerBook>::default();
    let line = FairLine::new("m", Arc::new(options.sane()), Arc::clone(&peers), now);
    Bench { line, waiters: Waiters::new(), now, arrivals: 0, peers }
}

impl Bench {
    fn claim(&mut self, user: Option<&str>, tokens: u32) -> Claim {
        let ask = Ask { model: "m", user, session: None, prompt_tokens: tokens, max_tokens: Some(0) };
        self.line.claim(&ask, self.now)
    }

    fn enter(&mut self, user: Option<&str>, tokens: u32) -> u32 {
        let claim = self.claim(user, tokens);
        self.arrivals += 1;
        let number = self.waiters.insert(Waiter::new(claim, self.arrivals, self.now));
        self.line.enter(&mut self.waiters, number);
        number
    }

    /// The first in line begins. Its number of arrival, and its claim.
    fn begin_first(&mut self) -> Option<(u64, Claim)> {
        let number = self.line.first(&self.waiters, self.now)?;
        let mut claim = self.waiters.get(number)?.claim;
        self.line.begin(&mut claim);
        self.leave(number);
        self.waiters.remove(number).map(|waiter| (waiter.arrival, claim))
    }

    fn leave(&mut self, number: u32) {
        self.line.leave(&mut self.waiters, number);
    }

    fn used(&mut self, user: Option<&str>, tokens: u32) {
        let mut claim = self.claim(user, tokens);
        self.line.begin(&mut claim);
        self.line.end(&claim, Ending::Untold, self.now);
    }

    /// The arrivals in the order in which they begin, when nothing ends meanwhile.
    fn drain(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.begin_first()).map(|(arrival, _)| arrival).collect()
    }
}

fn still() -> FairnessOptions {
    FairnessOptions { ageing: 0.0, ..FairnessOptions::default() }
}

#[test]
fn who_used_less_goes_first_and_a_burst_counts_at_once() {
    let mut bench = bench(still());
    bench.used(Some("a"), 250);
    for (user, requests) in [("a", 3), ("b", 4)] {
        for _ in 0..requests {
            bench.enter(Some(user), 100);
        }
    }
    // b has 0, 100, 200 and then 300, when a has 250.
    assert_eq!(bench.drain(), [4, 5, 6, 1, 7, 2, 3]);
}

#[test]
fn the_true_use_takes_the_place_of_the_estimate() {
    let mut bench = bench(still());
    let mut claim = bench.claim(Some("a"), 1000);
    bench.line.begin(&mut claim);
    let account = claim.account;
    assert_eq!(bench.line.ledger.level(account), 1000.0);
    let usage = Usage { prompt_tokens: 10, completion_tokens: 20, cached_tokens: None };
    bench.line.end(&claim, Ending::Told { usage: Some(usage), succeeded: true }, bench.now);
    assert_eq!(bench.line.ledger.level(account), 50.0);
    let ends = [
        (Ending::Told { usage: None, succeeded: true }, 150.0),
        (Ending::Told { usage: None, succeeded: false }, 150.0),
        (Ending::NeverBegan, 150.0),
        (Ending::Untold, 250.0),
    ];
    for (ending, level) in ends {
        let mut claim = bench.claim(Some("a"), 100);
        bench.line.begin(&mut claim);
        bench.line.end(&claim, ending, bench.now);
        assert_eq!(bench.line.ledger.level(account), level, "{ending:?}");
    }
}

#[test]
fn the_output_estimate_is_learned_and_limited() {
    let mut bench = bench(still());
    let claim = bench.claim(Some("a"), 0);
    let usage = Usage { prompt_tokens: 0, completion_tokens: 40, cached_tokens: None };
    bench.line.begin(&mut { claim });
    bench.line.end(&claim, Ending::Told { usage: Some(usage), succeeded: true }, bench.now);
    for (max_tokens, cost) in [(None, 180_000), (Some(10), 120_000)] {
        let ask = Ask { model: "m", user: Some("b"), session: None, prompt_tokens: 100, max_tokens };
        let mut claim = bench.line.claim(&ask, bench.now);
        bench.line.begin(&mut claim);
        assert_eq!(claim.cost, cost);
    }
}

#[test]
fn waiting_makes_up_for_use() {
    let mut bench = bench(FairnessOptions { ageing: 10.0, ..FairnessOptions::default() });
    bench.used(Some("heavy"), 1000);
    bench.enter(Some("heavy"), 1);
    let begun = bench.now;
    // Somebody new comes every second, and one request begins.
    for second in 1..1000 {
        bench.now = begun + Duration::from_secs(second);
        bench.enter(Some(&format!("new{second}")), 1);
        if bench.begin_first().is_some_and(|(arrival, _)| arrival == 1) {
            assert_eq!(second, 100, "1000 tokens are 100 seconds");
            return;
        }
    }
    panic!("it starved");
}

#[test]
fn nobody_known_is_last_among_equals_and_does_not_starve() {
    let mut bench =
        bench(FairnessOptions { ageing: 10.0, anonymous_handicap: 100.0, ..FairnessOptions::default() });
    bench.enter(None, 1);
    bench.enter(None, 1);
    bench.enter(Some("a"), 1);
    assert_eq!(bench.drain(), [3, 1, 2]);
    bench.now += Duration::from_secs(1000);
    bench.enter(None, 1);
    let begun = bench.now;
    for second in 1..1000 {
        bench.now = begun + Duration::from_secs(second);
        bench.enter(Some(&format!("new{second}")), 1);
        if bench.begin_first().is_some_and(|(arrival, _)| arrival == 4) {
            assert_eq!(second, 11, "the handicap is 10 seconds, and a tie is lost");
            return;
        }
    }
    panic!("it starved");
}

/// What a test does.
#[derive(Clone, Debug)]
enum Step {
    Enter(u8, u32),
    Leave(prop::sample::Index),
    Begin,
    End(prop::sample::Index, u32),
    Peers(u8, u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..6, 0_u32..500).prop_map(|(user, tokens)| Step::Enter(user, tokens)),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
        3 => Just(Step::Begin),
        2 => (any::<prop::sample::Index>(), 0_u32..900).prop_map(|(which, tokens)| Step::End(which, tokens)),
        1 => (0_u8..6, 0_u64..2000).prop_map(|(user, tokens)| Step::Peers(user, tokens)),
        2 => (0_u64..20_000).prop_map(Step::Pass),
    ]
}

fn user(number: u8) -> Option<String> {
    (number > 0).then(|| format!("u{number}"))
}

/// The same queue as it is described, every answer found by looking at everything.
#[derive(Default)]
struct Plain {
    /// User, arrival, when, slot.
    waiting: Vec<(u8, u64, Instant, u32)>,
    charged: Vec<(u8, Claim)>,
    /// User, when, tokens.
    used: Vec<(u8, u64, f64)>,
    peers: HashMap<u8, f64>,
}

impl Plain {
    /// Use per weight less what the wait is worth, and the ties, of a user's oldest request.
    fn rank(
        &self,
        user: u8,
        options: &FairnessOptions,
        begun: Instant,
        now: Instant,
    ) -> Option<(f64, bool, u64)> {
        let oldest = self.waiting.iter().filter(|waiter| waiter.0 == user).min_by_key(|waiter| waiter.1)?;
        let second = now.saturating_duration_since(begun).as_secs();
        let window = options.window_size.as_secs();
        let used: f64 = self
            .used
            .iter()
            .filter(|use_| use_.0 == user && second - use_.1 <= window)
            .map(|use_| use_.2)
            .sum();
        let charged: f64 = self
            .charged
            .iter()
            .filter(|(of, _)| *of == user)
            .map(|(_, claim)| claim.cost as f64 / 1000.0)
            .sum();
        let weight =
            self::user(user).and_then(|name| options.user_weights.get(&name).copied()).unwrap_or(1.0);
        let handicap = if user == 0 { options.anonymous_handicap } else { 0.0 };
        let waited = now.saturating_duration_since(oldest.2).as_secs_f64();
        let level = (used + charged + self.peers.get(&user).unwrap_or(&0.0)) / weight;
        Some((level + handicap - options.ageing * waited, user == 0, oldest.1))
    }

    /// Who may go first. Sums in another order differ in the last digits, so near ties are all right.
    fn first(&self, options: &FairnessOptions, begun: Instant, now: Instant) -> Vec<u64> {
        let ranks: Vec<_> = (0..6).filter_map(|user| self.rank(user, options, begun, now)).collect();
        let least = ranks.iter().map(|rank| rank.0).fold(f64::INFINITY, f64::min);
        let mut near: Vec<_> = ranks.into_iter().filter(|rank| rank.0 <= least + 1e-6).collect();
        near.sort_by_key(|rank| (rank.1, rank.2));
        near.into_iter().map(|rank| rank.2).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whoever begins is the one that the description names; nobody is lost, doubled or overtaken by their own.
    #[test]
    fn the_line_is_as_described(steps in prop::collection::vec(step(), 1..150), ageing in prop_oneof![Just(0.0), Just(10.0)]) {
        let options = FairnessOptions {
            ageing,
            window_size: Duration::from_secs(30),
            anonymous_handicap: 50.0,
            user_weights: HashMap::from([("u1".to_owned(), 3.0), ("u2".to_owned(), 0.5)]),
            ..FairnessOptions::default()
        };
        let mut bench = bench(options.clone());
        let begun = bench.now;
        let mut plain = Plain::default();
        let mut last = HashMap::new();
        for step in steps {
            match step {
                Step::Enter(number, tokens) => {
                    let slot = bench.enter(user(number).as_deref(), tokens);
                    plain.waiting.push((number, bench.arrivals, bench.now, slot));
                }
                Step::Leave(which) if !plain.waiting.is_empty() => {
                    let (.., slot) = plain.waiting.remove(which.index(plain.waiting.len()));
                    bench.leave(slot);
                    bench.waiters.remove(slot);
                }
                Step::Begin => {
                    let allowed = plain.first(&options, begun, bench.now);
                    let Some((arrival, claim)) = bench.begin_first() else {
                        prop_assert!(plain.waiting.is_empty());
                        continue;
                    };
                    prop_assert!(allowed.contains(&arrival), "{arrival} of {allowed:?}");
                    let index = plain.waiting.iter().position(|waiter| waiter.1 == arrival);
                    prop_assert!(index.is_some(), "{} began and did not wait", arrival);
                    let (number, ..) = plain.waiting.remove(index.unwrap());
                    plain.charged.push((number, claim));
                    prop_assert!(last.insert(number, arrival) < Some(arrival), "a user's own overtook");
                }
                Step::End(which, tokens) if !plain.charged.is_empty() => {
                    let (number, claim) = plain.charged.remove(which.index(plain.charged.len()));
                    let usage = Usage { prompt_tokens: u64::from(tokens), ..Usage::default() };
                    bench.line.end(&claim, Ending::Told { usage: Some(usage), succeeded: true }, bench.now);
                    let second = bench.now.saturating_duration_since(begun).as_secs();
                    plain.used.push((number, second, f64::from(tokens)));
                }
                Step::Peers(number, tokens) => {
                    let (key, spend) = (Names::of("m").key(user(number).as_deref()), Spend::one(tokens * 1000));
                    bench.peers.write().insert(key, spend);
                    bench.line.ledger().set_peers(&[(key, spend)]);
                    plain.peers.insert(number, tokens as f64);
                }
                Step::Pass(millis) => bench.now += Duration::from_millis(millis),
                Step::Leave(_) | Step::End(..) => {}
            }
        }
        prop_assert_eq!(bench.waiters.len(), plain.waiting.len());
        let mut left = bench.drain();
        left.sort_unstable();
        let mut wanted: Vec<u64> = plain.waiting.iter().map(|waiter| waiter.1).collect();
        wanted.sort_unstable();
        prop_assert_eq!(left, wanted);
    }
}
