//! The fairness line: each user's requests in the order of arrival, and among users whoever had least goes first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::claim::{Claim, Ending};
use crate::ledger::{ANONYMOUS, Ledger, PeerBook};
use crate::options::FairnessOptions;
use crate::order::Position;
use crate::permit::Ask;
use crate::slab::NONE;
use crate::spend::{Estimate, Price, Spend};
use crate::waiters::Waiters;

#[derive(Debug)]
pub(crate) struct FairLine {
    options: Arc<FairnessOptions>,
    price: Price,
    estimate: Estimate,
    ledger: Ledger,
    /// One position for each user with requests waiting.
    order: BTreeSet<Position>,
    /// The position of each account, by its number.
    positions: Vec<Option<Position>>,
    /// Accounts by how many requests of theirs wait.
    crowds: BTreeSet<(u32, u32)>,
}

impl FairLine {
    pub(crate) fn new(
        model: &str,
        options: Arc<FairnessOptions>,
        peers: Arc<PeerBook>,
        now: Instant,
    ) -> Self {
        Self {
            price: Price { input: options.input_token_weight, output: options.output_token_weight },
            estimate: Estimate::new(),
            ledger: Ledger::new(model, Arc::clone(&options), peers, now),
            options,
            order: BTreeSet::new(),
            positions: Vec::new(),
            crowds: BTreeSet::new(),
        }
    }

    pub(crate) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// What is kept of a request. It must [`enter`](Self::enter) or [`begin`](Self::begin) next.
    pub(crate) fn claim(&mut self, ask: &Ask<'_>, now: Instant) -> Claim {
        self.ledger.advance(now);
        Claim {
            account: self.ledger.account(ask.user),
            prompt_tokens: ask.prompt_tokens,
            max_tokens: ask.max_tokens,
            session: None,
            cost: 0,
        }
    }

    /// A waiter joins the end of its user's requests.
    pub(crate) fn enter(&mut self, waiters: &mut Waiters, number: u32) {
        let Some(waiter) = waiters.get(number) else { return };
        let account_number = waiter.claim.account;
        let Some(account) = self.ledger.get_mut(account_number) else { return };
        let (last, before) = (account.tail, account.waiting);
        account.tail = number;
        account.waiting += 1;
        if last == NONE {
            account.head = number;
            self.ledger.changed(account_number);
        }
        self.recount(account_number, before, before + 1);
        if let Some(waiter) = waiters.get_mut(number) {
            waiter.previous = last;
        }
        if let Some(last) = waiters.get_mut(last) {
            last.next = number;
        }
    }

    /// A waiter leaves, wherever among its user's requests it is.
    pub(crate) fn leave(&mut self, waiters: &mut Waiters, number: u32) {
        let Some(waiter) = waiters.get(number) else { return };
        let (previous, next, account_number) = (waiter.previous, waiter.next, waiter.claim.account);
        if let Some(before) = waiters.get_mut(previous) {
            before.next = next;
        }
        if let Some(after) = waiters.get_mut(next) {
            after.previous = previous;
        }
        let Some(account) = self.ledger.get_mut(account_number) else { return };
        if account.tail == number {
            account.tail = previous;
        }
        let before = account.waiting;
        account.waiting = before.saturating_sub(1);
        let was_first = account.head == number;
        if was_first {
            account.head = next;
        }
        self.recount(account_number, before, before.saturating_sub(1));
        if !was_first {
            return;
        }
        if next == NONE {
            self.place(account_number, None);
            self.ledger.rest(account_number);
        } else {
            self.ledger.changed(account_number);
        }
    }

    /// Who must go so that a newcomer may wait, when no more may: the latest of the user with the most waiting, unless
    /// the newcomer's user has nearly as many. So nobody keeps others out by sending much.
    pub(crate) fn displaced_by(&self, ask: &Ask<'_>) -> Option<u32> {
        let &(most, account) = self.crowds.last()?;
        let own = self.ledger.find(ask.user).map_or(0, |account| account.waiting);
        (most > own + 1).then(|| self.ledger.get(account).map(|account| account.tail))?
    }

    /// Who goes next, as things are now.
    pub(crate) fn first(&mut self, waiters: &Waiters, now: Instant) -> Option<u32> {
        self.ledger.advance(now);
        for account in self.ledger.take_dirty() {
            let position = self.position(waiters, account);
            self.place(account, position);
        }
        let first = self.order.first()?;
        self.ledger.get(first.account).map(|account| account.head)
    }

    /// A request runs from now on. Its user is charged what such requests use, so that a burst counts before anything
    /// of it has ended.
    pub(crate) fn begin(&mut self, claim: &mut Claim) {
        let (prompt, output) =
            (self.estimate.prompt(claim.prompt_tokens), self.estimate.output(claim.max_tokens));
        claim.cost = self.price.of(prompt, output);
        self.ledger.charge(claim.account, claim.cost);
    }

    /// A request that ran has ended.
    pub(crate) fn end(&mut self, claim: &Claim, ending: Ending, now: Instant) {
        self.ledger.advance(now);
        let used = match ending {
            Ending::Told { usage: Some(usage), succeeded } => {
                // Of an answer that broke off nothing is learned about whole ones.
                if succeeded {
                    self.estimate.learn(&usage);
                }
                Spend::one(self.price.of(usage.prompt_tokens, usage.completion_tokens))
            }
            Ending::Told { usage: None, succeeded: true } | Ending::Untold => Spend::one(claim.cost),
            Ending::Told { usage: None, succeeded: false } | Ending::NeverBegan => Spend::default(),
        };
        self.ledger.settle(claim.account, claim.cost, used, now);
    }

    /// The account's place now; `None` when nothing of it waits.
    fn position(&self, waiters: &Waiters, account: u32) -> Option<Position> {
        let waiter = waiters.get(self.ledger.get(account)?.head)?;
        let anonymous = account == ANONYMOUS;
        let handicap = if anonymous { self.options.anonymous_handicap } else { 0.0 };
        let aged = self.options.ageing * self.ledger.calendar().seconds(waiter.since);
        let priority = self.ledger.level(account) + handicap + aged;
        Some(Position { priority, anonymous, arrival: waiter.arrival, account })
    }

    fn recount(&mut self, account: u32, before: u32, after: u32) {
        self.crowds.remove(&(before, account));
        if after > 0 {
            self.crowds.insert((after, account));
        }
    }

    fn place(&mut self, account: u32, position: Option<Position>) {
        let index = account as usize;
        if self.positions.len() <= index {
            self.positions.resize(index + 1, None);
        }
        let Some(place) = self.positions.get_mut(index) else { return };
        if let Some(old) = std::mem::replace(place, position) {
            self.order.remove(&old);
        }
        if let Some(position) = position {
            self.order.insert(position);
        }
    }
}

#[cfg(test)]
mod tests;
