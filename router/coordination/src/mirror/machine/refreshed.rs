//! What a refresh changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::owner::{Behind, Mirrored, Resync};
use super::{
    Action, Decay, Head, LONGEST_LEASE_MS, Listed, MOST_OWNERS, Refresh, Start, StreamId, StreamMirror,
};
use crate::snapshot::HeadFault;

/// How long after its lease an owner may stay that an emptied store does not name: agents come back spread over two
/// seconds.
const SPREAD_MS: u64 = 2_500;

impl StreamMirror {
    pub(super) fn refreshed(&mut self, now: Instant, refresh: Refresh) {
        let now_ms = refresh.now_ms;
        let before = self.contact.replace((now, now_ms));
        self.settle(now, now_ms, before);
        let contact_before = before.map_or(now_ms, |(_, ms)| ms);
        self.connected = true;
        self.decay = Decay::Fresh;
        self.malformed_names = refresh.malformed;
        if self.start == Start::Waiting {
            self.start = Start::Loading;
        }
        self.compare_store(&refresh);
        let names: HashSet<Arc<str>> = refresh.owners.iter().map(|listed| Arc::clone(&listed.name)).collect();
        let last = refresh.last_id.unwrap_or(StreamId::START);
        for listed in refresh.owners {
            self.listed(now, now_ms, last, listed);
        }
        let out = &mut self.out;
        self.owners.retain(|name, owner| {
            names.contains(name) || Self::keep_missing(owner, now_ms, contact_before, out)
        });
        self.by_id = self.owners.values().map(|owner| (owner.id.clone(), Arc::clone(&owner.name))).collect();
        self.epochs.clear();
        for owner in self.owners.values() {
            let epochs = owner.target.into_iter().chain(owner.loaded.map(|(epoch, _)| epoch));
            self.epochs.extend(epochs.map(|epoch| (epoch, Arc::clone(&owner.name))));
        }
    }

    /// Gives writers time to renew after a pause, which is not a refresh that took a little longer. A server's clock that
    /// was set forward looks like one: leases ended that nobody could renew.
    fn settle(&mut self, now: Instant, now_ms: u64, before: Option<(Instant, u64)>) {
        let Some((contact, contact_ms)) = before else { return };
        if now_ms < contact_ms {
            // Set back: the end of that time is far away now.
            self.settle_until_ms = 0;
        }
        let pause = 2 * self.patience.refresh;
        let silence = now.saturating_duration_since(contact);
        let passed = Duration::from_millis(now_ms.saturating_sub(contact_ms));
        let settles = now_ms < self.settle_until_ms;
        // One time follows the other only for leases that lasted in between, however often Redis comes and goes.
        if !settles && (silence > pause || passed > silence + pause) {
            self.settle_until_ms = now_ms + self.patience.settle.as_millis() as u64;
            // By what was known before: the server may have come back with what it held long ago.
            self.owners.values_mut().for_each(|owner| owner.lasted = owner.lease_until > contact_ms);
        }
    }

    /// Notices a new or emptied store, and a stream that went back: after a failover to a server that did not have the
    /// last entries, new ones may get ids that were read already.
    fn compare_store(&mut self, refresh: &Refresh) {
        let other = self.store.is_some() && refresh.store != self.store && refresh.store.is_some();
        if other {
            self.emptied += 1;
            tracing::warn!("a Redis store is new or was emptied; waiting for agents to publish anew");
        }
        if refresh.store.is_some() {
            self.store.clone_from(&refresh.store);
        }
        let last = refresh.last_id.unwrap_or(StreamId::START);
        if other || refresh.tailed.is_none_or(|tailed| last < tailed) {
            // Of an empty stream everything that comes is new; the entries themselves may have been trimmed away.
            self.tailed = Some(last);
            self.out.push(Action::Rewind(last));
        }
    }

    fn listed(&mut self, now: Instant, now_ms: u64, last: StreamId, listed: Listed) {
        if !self.owners.contains_key(&listed.name) && self.owners.len() >= MOST_OWNERS {
            return;
        }
        let settles = now_ms < self.settle_until_ms;
        let place =
            Place { now, last, tailed: self.tailed.unwrap_or(StreamId::START), stale: self.patience.stale };
        let owner = self
            .owners
            .entry(Arc::clone(&listed.name))
            .or_insert_with(|| Mirrored::new(Arc::clone(&listed.name), listed.id));
        owner.lease(listed.lease_end, now_ms);
        owner.alive = owner.lease_until > now_ms || (settles && owner.lasted && owner.loaded.is_some());
        if !owner.alive {
            owner.lapse(&mut self.out);
        }
        if owner.slot != listed.slot && (listed.slot.is_some() || listed.head.is_ok()) {
            owner.unwant();
            owner.slot = listed.slot;
        }
        let head = match listed.head {
            Ok(head) => head,
            Err(fault) => {
                if let HeadFault::Schema(schema) = &fault
                    && owner.fault.as_ref() != Some(&fault)
                {
                    tracing::warn!(owner = %owner.id, schema, "this owner's schema is not understood here");
                }
                owner.fault = Some(fault);
                return;
            }
        };
        owner.fault = None;
        if owner.alive && owner.slot.is_some() {
            match owner.loaded {
                Some((epoch, seq)) if epoch == head.epoch => {
                    place.compare(owner, &head, seq, &mut self.out);
                    owner.stay();
                }
                _ => {
                    owner.target = Some(head.epoch);
                    owner.lack(now);
                }
            }
            owner.lapse_after(now, place.stale, &mut self.out);
            if owner.loaded.is_none() {
                owner.want(now);
            }
        }
        owner.head = Some(head);
    }

    /// Whether an owner is still to be believed that the list does not name.
    fn keep_missing(owner: &mut Mirrored, now_ms: u64, contact_before: u64, out: &mut Vec<Action>) -> bool {
        // What was left of its lease, by the clock that it was written with, counts from the first refresh without it.
        let left = owner.lease_until.saturating_sub(contact_before).min(LONGEST_LEASE_MS) + SPREAD_MS;
        let longest = now_ms + LONGEST_LEASE_MS + SPREAD_MS;
        let until = owner.missing_until.map_or(now_ms + left, |until| until.min(longest));
        owner.missing_until = Some(until);
        let keep = owner.loaded.is_some() && now_ms < until;
        if !keep {
            owner.lapse(out);
        }
        keep
    }
}

/// How far the stream is, and how far it was read.
#[derive(Clone, Copy, Debug)]
struct Place {
    now: Instant,
    /// The stream's newest entry.
    last: StreamId,
    tailed: StreamId,
    stale: Duration,
}

impl Place {
    /// Compares an owner with the head of the epoch that is here.
    fn compare(self, owner: &mut Mirrored, head: &Head, seq: u64, out: &mut Vec<Action>) {
        if head.seq == seq {
            owner.behind = None;
            owner.stale_since = None;
            // Only then: what a head says of a later moment does not hold for what is here, nor does what it said earlier.
            owner.report(head.completeness, out);
            return;
        }
        let Some(behind) = owner.behind.filter(|behind| behind.epoch == head.epoch && seq < behind.seq)
        else {
            let Self { now: since, last, .. } = self;
            owner.behind =
                (head.seq > seq).then_some(Behind { epoch: head.epoch, seq: head.seq, last, since });
            return;
        };
        // A stream that was trimmed or went back since then ends before that entry. And nobody waits for ever for a
        // reading that gets nowhere.
        let read_past = self.tailed >= behind.last.min(self.last);
        if read_past || self.now.saturating_duration_since(behind.since) > self.stale {
            owner.gaps += u64::from(owner.resync == Resync::No);
            owner.behind = None;
            owner.lack(self.now);
        }
    }
}
