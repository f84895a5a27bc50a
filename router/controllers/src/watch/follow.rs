//! Follows one kind: from a stream of events to the store, over every failure, for as long as the router runs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};

use super::kinds::Watched;
use super::patience::Patience;
use super::store::Store;
use super::trouble::Trouble;

/// The waits after failures. Pods come and go while nothing is heard of them, so the longest is not long.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long a list may say nothing. The client's own limit is made for watches, which are silent by nature.
const LIST_STALLS_AFTER: Duration = Duration::from_secs(60);

/// Follows a kind. `start` begins a stream of its events; it is called again when a stream ends, hangs, or would go on
/// from where it cannot. Never returns.
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
            let Err(fall) = event else { continue };
            tokio::time::sleep(follower.stumble(&fall.trouble)).await;
            if fall.anew {
                break;
            }
        }
    }
}

/// Something went wrong.
#[derive(Debug)]
struct Fall {
    trouble: Trouble,
    /// Whether the stream is of no more use.
    anew: bool,
}

struct Follower<'a, W: Watched> {
    store: &'a Store,
    /// What a list brought so far.
    listing: Option<BTreeMap<W::Key, Arc<W::Kept>>>,
    patience: Patience,
}

impl<'a, W: Watched> Follower<'a, W> {
    fn new(store: &'a Store) -> Self {
        Self { store, listing: None, patience: Patience::new(FIRST_WAIT, LONGEST_WAIT) }
    }

    /// Takes in the next event. `None`: there is none any more.
    async fn next<S>(&mut self, events: &mut S) -> Option<Result<(), Fall>>
    where
        S: Stream<Item = watcher::Result<Event<W>>> + Unpin,
    {
        let lists = self.listing.is_some();
        let limit = if lists { Some(LIST_STALLS_AFTER) } else { self.patience.works_after() };
        let event = match limit {
            Some(limit) => tokio::time::timeout(limit, events.next()).await,
            None => Ok(events.next().await),
        };
        match event {
            Ok(Some(Ok(event))) => {
                self.take(event);
                Some(Ok(()))
            }
            Ok(Some(Err(error))) => {
                Some(Err(Fall { trouble: Trouble::of(&error), anew: Trouble::needs_a_list(&error) }))
            }
            Ok(None) => {
                // The streams of a cluster have no end. One that ended is waited for like one that failed.
                tokio::time::sleep(self.patience.wait()).await;
                self.listing = None;
                None
            }
            Err(_) if lists => Some(Err(Fall { trouble: Trouble::Stalled, anew: true })),
            Err(_) => {
                self.works();
                self.store.works(W::KIND);
                Some(Ok(()))
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
                self.patience.listed();
            }
            Event::Apply(object) => self.store.apply(object),
            Event::Delete(object) => self.store.delete(&object),
        }
        self.works();
    }

    fn works(&mut self) {
        if self.patience.works() {
            tracing::info!(kind = W::KIND.name(), "watched again");
        }
    }

    /// Says what is wrong, and how long to wait.
    fn stumble(&mut self, trouble: &Trouble) -> Duration {
        self.listing = None;
        let mut about = trouble.about(W::KIND);
        let withheld = matches!(trouble, Trouble::Forbidden { .. } | Trouble::Unknown);
        let without = W::KIND.without().filter(|_| withheld);
        // Where it can be done without, that is how it is meant, perhaps.
        let (wait, due) = self.patience.bear(trouble, without.is_some());
        if let Some(without) = without {
            about = format!("{about}; {without}");
            self.store.dispense_with(W::KIND);
        }
        if due {
            tracing::warn!(kind = W::KIND.name(), "{about}");
        } else if *trouble == Trouble::Expired {
            tracing::debug!(kind = W::KIND.name(), "{about}");
        }
        self.store.failed(W::KIND, about);
        wait
    }
}

#[cfg(test)]
mod tests;
