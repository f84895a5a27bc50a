//! Every user of one model: what each used, is charged now, and used elsewhere.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kvasir_core::{UsageKey, UsageShare};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sha2::{Digest, Sha256};

use crate::options::FairnessOptions;
use crate::slab::{NONE, Slab};
use crate::spend::Spend;
use crate::window::{Calendar, Window};

/// The account of all requests of nobody known. Always there.
pub(crate) const ANONYMOUS: u32 = 0;

/// What others used, as last heard; read when an account is opened.
#[derive(Debug, Default)]
pub(crate) struct PeerBook {
    used: RwLock<HashMap<UsageKey, Spend>>,
    /// Whether replicas are told what is used here: what a new model's requests use counts from the first on.
    telling: AtomicBool,
}

impl PeerBook {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, HashMap<UsageKey, Spend>> {
        self.used.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, HashMap<UsageKey, Spend>> {
        self.used.write()
    }

    /// From now on replicas are told.
    pub(crate) fn tell(&self) {
        self.telling.store(true, Ordering::Relaxed);
    }
}

/// One user.
#[derive(Debug)]
pub(crate) struct Account {
    key: UsageKey,
    /// What the user is due, relative to 1.
    weight: f64,
    /// What requests that ended here used.
    settled: Window,
    /// What requests that run now are charged.
    charged: Spend,
    /// What others used.
    peers: Spend,
    /// Requests that wait, oldest first: a chain through the waiters.
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) waiting: u32,
    /// Whether its place in the order may have changed.
    dirty: bool,
    expiry: Option<u32>,
    /// Its place among those that could be forgotten; none while something of it waits or runs.
    idle: Option<(u64, u64)>,
}

impl Account {
    fn open(key: UsageKey, weight: f64, peers: Spend) -> Self {
        Self {
            key,
            weight,
            settled: Window::default(),
            charged: Spend::default(),
            peers,
            head: NONE,
            tail: NONE,
            waiting: 0,
            dirty: false,
            expiry: None,
            idle: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    names: Names,
    options: Arc<FairnessOptions>,
    peers: Arc<PeerBook>,
    calendar: Calendar,
    accounts: Slab<Account>,
    /// Accounts by the hash of their user's name; names are not kept.
    keys: HashMap<UsageKey, u32>,
    /// When something of an account is to be forgotten: at most one entry for each.
    expiries: BTreeSet<(u32, u32)>,
    /// Accounts that could be forgotten, by what would be lost: use first, then how long ago it was touched.
    idle: BTreeSet<(u64, u64, u32)>,
    touches: u64,
    /// Accounts with requests waiting whose place in the order may have changed.
    dirty: Vec<u32>,
    /// What was settled since the replicas were last told; `None` until somebody asks.
    untold: Option<HashMap<UsageKey, Spend>>,
}

impl Ledger {
    pub(crate) fn new(
        model: &str,
        options: Arc<FairnessOptions>,
        peers: Arc<PeerBook>,
        now: Instant,
    ) -> Self {
        let names = Names::of(model);
        let calendar = Calendar::new(now, options.window_size);
        let mut accounts = Slab::new();
        let key = names.key(None);
        let used = peers.read().get(&key).copied().unwrap_or_default();
        let number = accounts.insert(Account::open(key, 1.0, used));
        let untold = peers.telling.load(Ordering::Relaxed).then(HashMap::new);
        Self {
            names,
            options,
            peers,
            calendar,
            accounts,
            keys: HashMap::from([(key, number)]),
            expiries: BTreeSet::new(),
            idle: BTreeSet::new(),
            touches: 0,
            dirty: Vec::new(),
            untold,
        }
    }

    pub(crate) fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// The account of a user, opened if need be. What it is for must begin to wait or to run before anything else is
    /// asked.
    pub(crate) fn account(&mut self, user: Option<&str>) -> u32 {
        let Some(user) = user else { return ANONYMOUS };
        let key = self.names.key(Some(user));
        if let Some(&number) = self.keys.get(&key) {
            self.occupied(number);
            return number;
        }
        // The account of nobody known is no user.
        if self.accounts.len() > self.options.max_users && !self.forget_the_least() {
            return ANONYMOUS;
        }
        let weight = self.options.user_weights.get(user).copied().unwrap_or(1.0);
        let peers = self.peers.read().get(&key).copied().unwrap_or_default();
        let number = self.accounts.insert(Account::open(key, weight, peers));
        self.keys.insert(key, number);
        number
    }

    /// The account of a user, if there is one.
    pub(crate) fn find(&self, user: Option<&str>) -> Option<&Account> {
        self.get(*self.keys.get(&self.names.key(user))?)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Account> {
        self.accounts.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Account> {
        self.accounts.get_mut(number)
    }

    /// How much a user has had, in units of priority for a weight of 1.
    pub(crate) fn level(&self, number: u32) -> f64 {
        let Some(account) = self.accounts.get(number) else { return 0.0 };
        let spend = account.settled.total() + account.charged + account.peers;
        let tokens = spend.cost as f64 / 1000.0;
        let options = &self.options;
        let priority = options.priority_token_weight * tokens
            + options.priority_request_num_weight * f64::from(spend.requests);
        priority / account.weight
    }

    /// A request of the account begins to run.
    pub(crate) fn charge(&mut self, number: u32, cost: u64) {
        if let Some(account) = self.accounts.get_mut(number) {
            account.charged = account.charged + Spend::one(cost);
        }
        self.changed(number);
    }

    /// A request that was charged `cost` ended, having used `used`.
    pub(crate) fn settle(&mut self, number: u32, cost: u64, used: Spend, now: Instant) {
        let bucket = self.calendar.bucket(now);
        let Some(account) = self.accounts.get_mut(number) else { return };
        account.charged = account.charged - Spend::one(cost);
        account.settled.add(bucket, used);
        let key = account.key;
        let most = 2 * self.options.max_users;
        if let Some(untold) = &mut self.untold
            && !used.is_nothing()
            && (untold.len() < most || untold.contains_key(&key))
        {
            let sum = untold.entry(key).or_default();
            *sum = *sum + used;
        }
        self.book_expiry(number);
        self.changed(number);
        self.rest(number);
    }

    /// Forgets what is older than the window. Costs what there is to forget.
    pub(crate) fn advance(&mut self, now: Instant) {
        let bucket = self.calendar.bucket(now);
        while let Some(&(due, number)) = self.expiries.first()
            && due <= bucket
        {
            self.expiries.pop_first();
            if let Some(account) = self.accounts.get_mut(number) {
                account.expiry = None;
                account.settled.expire(&self.calendar, bucket);
            }
            self.book_expiry(number);
            self.changed(number);
            self.rest(number);
        }
    }

    /// What others used changed so.
    pub(crate) fn set_peers(&mut self, changes: &[(UsageKey, Spend)]) {
        for (key, spend) in changes {
            if let Some(&number) = self.keys.get(key)
                && let Some(account) = self.accounts.get_mut(number)
            {
                account.peers = *spend;
                self.changed(number);
            }
        }
    }

    /// Accounts whose place in the order may have changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> Vec<u32> {
        let dirty = std::mem::take(&mut self.dirty);
        for number in &dirty {
            if let Some(account) = self.accounts.get_mut(*number) {
                account.dirty = false;
            }
        }
        dirty
    }

    /// What was settled since the last call; from the first call on it is kept for the next.
    pub(crate) fn take_untold(&mut self) -> impl Iterator<Item = UsageShare> + use<> {
        let untold = self.untold.replace(HashMap::new()).unwrap_or_default();
        untold.into_iter().map(|(key, spend)| share(key, spend))
    }

    /// What requests that run now are charged.
    pub(crate) fn running(&self) -> impl Iterator<Item = UsageShare> {
        let accounts = self.accounts.iter().map(|(_, account)| account);
        accounts
            .filter(|account| !account.charged.is_nothing())
            .map(|account| share(account.key, account.charged))
    }

    /// The account's place in the order may have changed.
    pub(crate) fn changed(&mut self, number: u32) {
        if let Some(account) = self.accounts.get_mut(number)
            && account.head != NONE
            && !account.dirty
        {
            account.dirty = true;
            self.dirty.push(number);
        }
    }

    /// Something of the account waits or runs from now on.
    fn occupied(&mut self, number: u32) {
        if let Some(account) = self.accounts.get_mut(number)
            && let Some((cost, touched)) = account.idle.take()
        {
            self.idle.remove(&(cost, touched, number));
        }
    }

    /// Closes the account if nothing of it waits, runs or counts, and marks it as idle if only its use is left.
    pub(crate) fn rest(&mut self, number: u32) {
        self.occupied(number);
        let Some(account) = self.accounts.get_mut(number) else { return };
        if number == ANONYMOUS || account.head != NONE || account.charged.requests > 0 {
            return;
        }
        if account.settled.total().is_nothing() {
            self.forget(number);
            return;
        }
        self.touches += 1;
        let cost = account.settled.total().cost;
        account.idle = Some((cost, self.touches));
        self.idle.insert((cost, self.touches, number));
    }

    fn forget_the_least(&mut self) -> bool {
        let Some(&(_, _, number)) = self.idle.first() else { return false };
        self.forget(number);
        true
    }

    fn forget(&mut self, number: u32) {
        self.occupied(number);
        let Some(account) = self.accounts.remove(number) else { return };
        if let Some(due) = account.expiry {
            self.expiries.remove(&(due, number));
        }
        self.keys.remove(&account.key);
    }

    fn book_expiry(&mut self, number: u32) {
        let Some(account) = self.accounts.get_mut(number) else { return };
        let due = account.settled.next_expiry(&self.calendar);
        if due == account.expiry {
            return;
        }
        if let Some(old) = std::mem::replace(&mut account.expiry, due) {
            self.expiries.remove(&(old, number));
        }
        if let Some(due) = due {
            self.expiries.insert((due, number));
        }
    }
}

fn share(key: UsageKey, spend: Spend) -> UsageShare {
    UsageShare { key, cost: spend.cost, requests: spend.requests }
}

/// Makes the [`UsageKey`]s of one model's users.
#[derive(Clone, Debug)]
pub(crate) struct Names(Sha256);

impl Names {
    /// The lengths keep apart what would read the same in a row.
    pub(crate) fn of(model: &str) -> Self {
        Self(Sha256::new_with_prefix((model.len() as u64).to_le_bytes()).chain_update(model))
    }

    pub(crate) fn key(&self, user: Option<&str>) -> UsageKey {
        let mut hash = self.0.clone();
        if let Some(user) = user {
            hash.update((user.len() as u64).to_le_bytes());
            hash.update(user);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        UsageKey(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
mod tests;
