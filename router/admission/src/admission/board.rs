//! Where admission meets its peers: what users used here goes out, what they used elsewhere comes in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{UsageBoard, UsageKey, UsageShare};

use super::{Admission, Rooms, Rules};
use crate::ledger::Ledger;
use crate::line::Line;
use crate::queue::Queue;
use crate::spend::Spend;

/// Without fairness nothing is used, and nothing that others used matters.
impl UsageBoard for Admission {
    fn window(&self) -> Duration {
        match self.rooms.as_ref().map(|rooms| &rooms.rules) {
            Some(Rules::Fairness { options, .. }) => options.window_size,
            _ => Duration::ZERO,
        }
    }

    fn take_settled(&self) -> Vec<UsageShare> {
        if let Some(Rules::Fairness { peers, .. }) = self.rooms.as_ref().map(|rooms| &rooms.rules) {
            peers.tell();
        }
        self.gather(|ledger, shares| shares.extend(ledger.take_untold()))
    }

    fn running(&self) -> Vec<UsageShare> {
        self.gather(|ledger, shares| shares.extend(ledger.running()))
    }

    fn set_peers(&self, totals: &[UsageShare]) {
        let Some(rooms) = &self.rooms else { return };
        let Rules::Fairness { peers, .. } = &rooms.rules else { return };
        let mut heard: HashMap<UsageKey, Spend> = HashMap::with_capacity(totals.len());
        for share in totals {
            let sum = heard.entry(share.key).or_default();
            *sum = *sum + Spend { cost: share.cost, requests: share.requests };
        }
        // Accounts that are opened from here on read the book; those that are open are told what changed.
        let changes = {
            let mut book = peers.write();
            let before = std::mem::replace(&mut *book, heard);
            changes(&before, &book)
        };
        if changes.is_empty() {
            return;
        }
        for queue in rooms.all() {
            with_ledger(&queue, |ledger| ledger.set_peers(&changes));
        }
    }
}

impl Admission {
    fn gather(&self, take: impl Fn(&mut Ledger, &mut Vec<UsageShare>)) -> Vec<UsageShare> {
        let mut shares = Vec::new();
        for queue in self.rooms.iter().flat_map(Rooms::all) {
            with_ledger(&queue, |ledger| take(ledger, &mut shares));
        }
        shares
    }
}

impl Rooms {
    fn all(&self) -> Vec<Arc<Queue>> {
        self.queues.read().by_model.values().cloned().collect()
    }
}

fn with_ledger(queue: &Queue, work: impl FnOnce(&mut Ledger)) {
    queue.with_line(|line| {
        if let Line::Fair(line) = line {
            work(line.ledger());
        }
    });
}

fn changes(before: &HashMap<UsageKey, Spend>, after: &HashMap<UsageKey, Spend>) -> Vec<(UsageKey, Spend)> {
    let changed = after.iter().filter(|(key, spend)| before.get(*key) != Some(*spend));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    changed.map(|(key, spend)| (*key, *spend)).chain(gone.map(|key| (*key, Spend::default()))).collect()
}
