use std::time::Duration;

use super::*;

struct Book {
    ledger: Ledger,
    peers: Arc<PeerBook>,
    begun: Instant,
}

fn book(options: FairnessOptions) -> Book {
    let (peers, begun) = (Arc::<PeerBook>::default(), Instant::now());
    Book { ledger: Ledger::new("m", Arc::new(options.sane()), Arc::clone(&peers), begun), peers, begun }
}

impl Book {
    /// A request of a user came, ran and ended, all in one second.
    fn used(&mut self, user: Option<&str>, tokens: u64, second: u64) {
        let now = self.begun + Duration::from_secs(second);
        self.ledger.advance(now);
        let account = self.ledger.account(user);
        self.ledger.charge(account, 7);
        self.ledger.settle(account, 7, Spend::one(tokens * 1000), now);
    }

    fn level(&mut self, user: &str) -> Option<f64> {
        let key = Names::of("m").key(Some(user));
        self.ledger.keys.get(&key).map(|number| self.ledger.level(*number))
    }

    fn accounts(&self) -> usize {
        self.ledger.accounts.len()
    }
}

#[test]
fn the_priority_is_kthenas() {
    let weights = |tokens, requests| FairnessOptions {
        priority_token_weight: tokens,
        priority_request_num_weight: requests,
        user_weights: HashMap::from([("due".to_owned(), 2.0)]),
        ..FairnessOptions::default()
    };
    for (tokens, requests, level) in
        [(1.0, 0.0, 200.0), (1.0, 10.0, 230.0), (0.0, 0.0, 200.0), (0.0, 1.0, 3.0)]
    {
        let mut book = book(weights(tokens, requests));
        for user in ["a", "due"] {
            [50, 50, 100].iter().for_each(|tokens| book.used(Some(user), *tokens, 1));
        }
        assert_eq!((book.level("a"), book.level("due")), (Some(level), Some(level / 2.0)));
    }
}

#[test]
fn users_are_forgotten_with_what_they_used() {
    let mut book = book(FairnessOptions::default());
    book.used(Some("a"), 1, 0);
    book.used(Some("b"), 1, 100);
    book.used(None, 1, 100);
    assert_eq!(book.accounts(), 3);
    book.ledger.advance(book.begun + Duration::from_secs(300));
    assert_eq!((book.accounts(), book.level("a")), (3, Some(1.0)));
    book.ledger.advance(book.begun + Duration::from_secs(301));
    assert_eq!((book.accounts(), book.level("a"), book.level("b")), (2, None, Some(1.0)));
    book.ledger.advance(book.begun + Duration::from_secs(1000));
    assert_eq!((book.accounts(), book.ledger.level(ANONYMOUS)), (1, 0.0));
    assert_eq!((book.ledger.keys.len(), book.ledger.idle.len(), book.ledger.expiries.len()), (1, 0, 0));
}

#[test]
fn of_too_many_users_the_idle_one_with_the_least_use_goes() {
    let mut book = book(FairnessOptions { max_users: 3, ..FairnessOptions::default() });
    book.used(Some("much"), 900, 0);
    book.used(Some("least"), 1, 0);
    let busy = book.ledger.account(Some("busy"));
    book.ledger.charge(busy, 0);
    book.used(Some("new"), 50, 1);
    assert_eq!(
        ["much", "least", "busy", "new"].map(|user| book.level(user)),
        [Some(900.0), None, Some(0.0), Some(50.0)]
    );
    // Nobody is idle: the next one counts with those that nobody knows.
    for user in ["much", "new"] {
        let account = book.ledger.account(Some(user));
        book.ledger.charge(account, 0);
    }
    assert_eq!(book.ledger.account(Some("too many")), ANONYMOUS);
    for number in 0..10_000 {
        book.used(Some(&format!("u{number}")), 1, 2);
    }
    assert!(book.accounts() <= 4 && book.ledger.keys.len() <= 4 && book.ledger.idle.len() <= 3);
}

#[test]
fn what_peers_say_counts_and_is_replaced() {
    let mut book = book(FairnessOptions::default());
    let [a, b] = ["a", "b"].map(|user| Names::of("m").key(Some(user)));
    book.used(Some("a"), 10, 0);
    book.peers.write().insert(b, Spend::one(5000));
    book.ledger.set_peers(&[(a, Spend::one(3000)), (b, Spend::one(5000))]);
    assert_eq!((book.level("a"), book.level("b")), (Some(13.0), None));
    book.used(Some("b"), 1, 0);
    assert_eq!(book.level("b"), Some(6.0), "who comes later is known from the book");
    book.ledger.set_peers(&[(a, Spend::default())]);
    assert_eq!(book.level("a"), Some(10.0));
}

#[test]
fn what_ended_is_told_once() {
    let mut book = book(FairnessOptions::default());
    book.used(Some("a"), 10, 0);
    assert_eq!(book.ledger.take_untold().count(), 0, "nobody had asked before");
    book.used(Some("a"), 3, 1);
    book.used(Some("a"), 4, 400);
    book.used(None, 1, 400);
    let running = book.ledger.account(Some("b"));
    book.ledger.charge(running, 9);
    let mut told: Vec<(u64, u32)> =
        book.ledger.take_untold().map(|share| (share.cost, share.requests)).collect();
    told.sort_unstable();
    assert_eq!(told, [(1000, 1), (7000, 2)]);
    assert_eq!(book.ledger.take_untold().count(), 0);
    let charged: Vec<UsageShare> = book.ledger.running().collect();
    assert_eq!(charged, [UsageShare { key: Names::of("m").key(Some("b")), cost: 9, requests: 1 }]);
}

#[test]
fn a_model_that_comes_once_replicas_are_told_is_told_of_from_its_first_request_on() {
    let (peers, begun) = (Arc::<PeerBook>::default(), Instant::now());
    peers.tell();
    let ledger = Ledger::new("m", Arc::new(FairnessOptions::default().sane()), Arc::clone(&peers), begun);
    let mut book = Book { ledger, peers, begun };
    book.used(Some("a"), 10, 0);
    assert_eq!(book.ledger.take_untold().count(), 1);
}

#[test]
fn keys_tell_users_and_models_apart() {
    let keys = [
        Names::of("m").key(Some("a")),
        Names::of("m").key(Some("b")),
        Names::of("n").key(Some("a")),
        Names::of("ma").key(Some("")),
        Names::of("m").key(Some("")),
        Names::of("m").key(None),
    ];
    let distinct: BTreeSet<UsageKey> = keys.into_iter().collect();
    assert_eq!(distinct.len(), keys.len());
    assert_eq!(Names::of("m").key(Some("a")), keys[0], "every replica makes the same");
}
