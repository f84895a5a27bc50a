//! Follows one kind: from a stream of events to the store, over every failure, for as long as the router runs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};

use super::kinds::Watched;
use super::store::Store;
use super::trouble::Trouble;
use crate::retry::{BackOff, Complaints};

/// The waits after failures. Pods come and go while nothing is heard of them, so the longest is not long.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long a list may say nothing. The client's own limit is made for watches, which are silent by nature.
const LIST_STALLS_AFTER: Duration = Duration::from_secs(60);

/// Follows a kind. `start` begins a stream of its events; it is called again when a stream ends or hangs. Never returns.
///
/// What is known stays until a whole new list is there: a list that breaks off changes nothing.
pub(crate) async fn follow<W, S>(store: &Store, start: impl Fn() -> S)
where
    W: Watched,
    S: Stream<Item = watcher::Result<Event<W>>>,
{
    let mut follower = Follower::<W>::new(store);
    loop {
        let mut events = pin!(start());
        while let Some(event) = follower.next(&mut events).await {
            let Err(trouble) = event else { continue };
            let again = trouble == Trouble::Stalled;
            let wait = follower.stumble(&trouble);
            tokio::time::sleep(wait).await;
            if again {
                break;
            }
        }
    }
}

struct Follower<'a, W: Watched> {
    store: &'a Store,
    /// What a list brought so far.
    listing: Option<BTreeMap<W::Key, Arc<W::Kept>>>,
    back_off: BackOff,
    complaints: Complaints,
}

impl<'a, W: Watched> Follower<'a, W> {
    fn new(store: &'a Store) -> Self {
        let back_off = BackOff::new(FIRST_WAIT, LONGEST_WAIT);
        Self { store, listing: None, back_off, complaints: Complaints::default() }
    }

    /// Takes in the next event. `None`: there is none any more.
    async fn next<S>(&mut self, events: &mut S) -> Option<Result<(), Trouble>>
    where
        S: Stream<Item = watcher::Result<Event<W>>> + Unpin,
    {
        let event = if self.listing.is_some() {
            match tokio::time::timeout(LIST_STALLS_AFTER, events.next()).await {
                Ok(event) => event,
                Err(_) => return Some(Err(Trouble::Stalled)),
            }
        } else {
            events.next().await
        };
        match event {
            Some(Ok(event)) => {
                self.take(event);
                Some(Ok(()))
            }
            Some(Err(error)) => Some(Err(Trouble::of(&error))),
            None => {
                // The streams of a cluster have no end. One that ended is waited for like one that failed.
                tokio::time::sleep(self.back_off.wait()).await;
                self.listing = None;
                None
            }
        }
    }

    fn take(&mut self, event: Event<W>) {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                return;
            }
            Event::InitApply(object) => {
                let all = self.listing.get_or_insert_default();
                all.insert(object.key(), Arc::new(object.keep()));
                return;
            }
            Event::InitDone => {
                let all = self.listing.take().unwrap_or_default();
                self.store.replace::<W>(all);
            }
            Event::Apply(object) => self.store.apply(object),
            Event::Delete(object) => self.store.delete(&object),
        }
        self.back_off.reset();
        if self.complaints.over() {
            tracing::info!(kind = W::KIND.name(), "watched again");
        }
    }

    /// Says what is wrong, and how long to wait.
    fn stumble(&mut self, trouble: &Trouble) -> Duration {
        self.listing = None;
        let mut about = trouble.about(W::KIND);
        let withheld = matches!(trouble, Trouble::Forbidden { .. } | Trouble::Unknown);
        let without = W::KIND.without().filter(|_| withheld);
        let due = if without.is_some() {
            // That is how it is meant, perhaps.
            self.complaints.due_once(trouble.sort())
        } else {
            self.complaints.due(trouble.sort())
        };
        if let Some(without) = without {
            about = format!("{about}; {without}");
            self.store.dispense_with(W::KIND);
        }
        if *trouble == Trouble::Expired {
            // The API server is there, and a list from it is needed now.
            self.back_off.reset();
            tracing::debug!(kind = W::KIND.name(), "{about}");
        } else if due {
            tracing::warn!(kind = W::KIND.name(), "{about}");
        }
        self.store.failed(W::KIND, about);
        self.back_off.wait()
    }
}

#[cfg(test)]
mod tests;
