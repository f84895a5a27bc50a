//! What a refresh changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::owner::{Mirrored, Resync};
use super::{Action, Decay, LONGEST_LEASE_MS, Listed, MOST_OWNERS, Refresh, Start, StreamId, StreamMirror};
use crate::snapshot::HeadFault;

/// How long after its lease an owner may stay that an emptied store does not name: agents come back spread over two
/// seconds.
const SPREAD_MS: u64 = 2_500;

impl StreamMirror {
    pub(super) fn refreshed(&mut self, now: Instant, refresh: Refresh) {
        let now_ms = refresh.now_ms;
        // A pause, not a refresh that took a little longer.
        if self.silence(now).is_some_and(|silence| silence > 2 * self.patience.refresh) {
            self.settle_until_ms = now_ms + self.patience.settle.as_millis() as u64;
        }
        let contact_before = self.contact.replace((now, now_ms)).map_or(now_ms, |(_, ms)| ms);
        self.connected = true;
        self.decay = Decay::Fresh;
        self.malformed_names = refresh.malformed;
        if self.start == Start::Waiting {
            self.start = Start::Loading;
        }
        self.compare_store(&refresh);
        let names: HashSet<Arc<str>> = refresh.owners.iter().map(|listed| Arc::clone(&listed.name)).collect();
        for listed in refresh.owners {
            self.listed(now, now_ms, listed);
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

    fn listed(&mut self, now: Instant, now_ms: u64, listed: Listed) {
        if !self.owners.contains_key(&listed.name) && self.owners.len() >= MOST_OWNERS {
            return;
        }
        let settling = now_ms < self.settle_until_ms;
        let stale_ms = self.patience.stale.as_millis() as u64;
        let owner = self
            .owners
            .entry(Arc::clone(&listed.name))
            .or_insert_with(|| Mirrored::new(Arc::clone(&listed.name), listed.id));
        owner.lease(listed.lease_end, now_ms);
        owner.alive = owner.lease_until > now_ms || (settling && owner.loaded.is_some());
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
                    owner.stale_since = None;
                    // A head that was read before the last delta came says nothing new.
                    if head.seq >= seq {
                        owner.report(head.completeness, &mut self.out);
                    }
                    match owner.behind {
                        Some((behind, missed)) if behind == epoch && seq < missed => {
                            owner.gaps += u64::from(owner.resync == Resync::No);
                            owner.behind = None;
                            owner.want(now);
                        }
                        _ => owner.behind = (head.seq > seq).then_some((epoch, head.seq)),
                    }
                }
                loaded => {
                    let since = *owner.stale_since.get_or_insert(now_ms);
                    if loaded.is_some() && now_ms.saturating_sub(since) > stale_ms {
                        owner.lapse(&mut self.out);
                    }
                    owner.target = Some(head.epoch);
                    owner.want(now);
                }
            }
        }
        owner.head = Some(head);
    }

    /// Whether an owner is still to be believed that the list does not name.
    fn keep_missing(owner: &mut Mirrored, now_ms: u64, contact_before: u64, out: &mut Vec<Action>) -> bool {
        // What was left of its lease, by the clock that it was written with, counts from the first refresh without it.
        let left = owner.lease_until.saturating_sub(contact_before).min(LONGEST_LEASE_MS) + SPREAD_MS;
        let until = *owner.missing_until.get_or_insert(now_ms + left);
        let keep = owner.loaded.is_some() && now_ms < until && until - now_ms <= LONGEST_LEASE_MS + SPREAD_MS;
        if !keep {
            owner.lapse(out);
        }
        keep
    }
}
