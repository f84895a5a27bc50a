//! What was seen of every kind, who waits for it, and what is to be done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvasir_state::plan::ObjectName;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::kinds::{Watched, WatchedKind, count};
use crate::objects::Objects;
use crate::status::StatusKind;

/// The objects, with whether somebody has looked at them since they changed. One task waits for [`Store::work`].
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    objects: Arc<Objects>,
    kinds: BTreeMap<WatchedKind, Seen>,
    stale: bool,
    restated: BTreeSet<(StatusKind, ObjectName)>,
}

/// How the watch of one kind is doing.
#[derive(Debug, Default)]
struct Seen {
    listed: bool,
    /// Nobody waits for it.
    dispensable: bool,
    restarts: u64,
    last_event: Option<Instant>,
    trouble: Option<String>,
}

/// What changed.
#[derive(Debug)]
pub(crate) struct Work {
    /// The objects as they are now.
    pub(crate) objects: Arc<Objects>,
    /// Whether they must be translated again.
    pub(crate) translate: bool,
    /// Objects that mean what they meant, but whose status may say something else now. Empty with `translate`.
    pub(crate) restated: BTreeSet<(StatusKind, ObjectName)>,
}

/// How the watch of one kind is doing.
#[derive(Clone, Debug)]
pub struct KindStatus {
    /// The resource with its group.
    pub name: &'static str,
    /// How many objects of it there are.
    pub objects: usize,
    /// How many of them cannot be read.
    pub unreadable: usize,
    /// Whether it was listed in full once.
    pub listed: bool,
    /// How often its watch failed and began again.
    pub restarts: u64,
    /// How long ago something was heard of it; a quiet kind is silent for minutes.
    pub last_event_age: Option<Duration>,
    /// What keeps it from being watched; `None` while it is.
    pub trouble: Option<String>,
}

impl KindStatus {
    /// Whether what is known of the kind is kept up to date.
    pub fn is_watched(&self) -> bool {
        self.listed && self.trouble.is_none()
    }
}

impl Seen {
    fn is_awaited(&self) -> bool {
        !self.listed && !self.dispensable
    }
}

impl Store {
    /// A store that waits for these kinds.
    pub(crate) fn new(kinds: impl IntoIterator<Item = WatchedKind>) -> Self {
        let inner = Inner {
            objects: Arc::default(),
            kinds: kinds.into_iter().map(|kind| (kind, Seen::default())).collect(),
            stale: true,
            restated: BTreeSet::new(),
        };
        Self { inner: Mutex::new(inner), changed: Notify::new() }
    }

    /// An object was made or changed.
    pub(crate) fn apply<W: Watched>(&self, object: W) {
        let (key, kept) = (object.key(), object.keep());
        self.edit::<W>(|inner| {
            let known = W::shelf(&inner.objects).get(&key);
            let same = known.is_some_and(|known| W::means_the_same(known, &kept));
            let status = W::with_status(&key);
            if same && status.is_none() {
                return;
            }
            W::shelf_mut(Arc::make_mut(&mut inner.objects)).insert(key, Arc::new(kept));
            if same {
                inner.restated.extend(status);
            } else {
                inner.stale = true;
            }
        });
    }

    /// An object is gone.
    pub(crate) fn delete<W: Watched>(&self, object: &W) {
        let key = object.key();
        self.edit::<W>(|inner| {
            if W::shelf(&inner.objects).contains_key(&key) {
                W::shelf_mut(Arc::make_mut(&mut inner.objects)).remove(&key);
                inner.stale = true;
            }
        });
    }

    /// These are all objects of the kind. Those that are not among them are gone.
    pub(crate) fn replace<W: Watched>(&self, all: BTreeMap<W::Key, Arc<W::Kept>>) {
        self.edit::<W>(|inner| {
            let known = W::shelf(&inner.objects);
            let same = known.len() == all.len()
                && known
                    .iter()
                    .zip(&all)
                    .all(|((before, old), (after, new))| before == after && W::means_the_same(old, new));
            if same {
                inner.restated.extend(all.keys().filter_map(W::with_status));
            } else {
                inner.stale = true;
            }
            *W::shelf_mut(Arc::make_mut(&mut inner.objects)) = all;
            let seen = inner.kinds.entry(W::KIND).or_default();
            seen.listed = true;
        });
    }

    fn edit<W: Watched>(&self, edit: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock();
        edit(&mut inner);
        let seen = inner.kinds.entry(W::KIND).or_default();
        seen.last_event = Some(Instant::now());
        seen.trouble = None;
        drop(inner);
        self.changed.notify_one();
    }

    /// The watch of a kind failed; what is known of it stays.
    pub(crate) fn failed(&self, kind: WatchedKind, trouble: String) {
        let mut inner = self.inner.lock();
        let seen = inner.kinds.entry(kind).or_default();
        seen.restarts += 1;
        seen.trouble = Some(trouble);
    }

    /// The watch of a kind works, although nothing was heard of it.
    pub(crate) fn works(&self, kind: WatchedKind) {
        self.inner.lock().kinds.entry(kind).or_default().trouble = None;
    }

    /// A kind is not to be had. It counts as if there were no object of it, until it is listed.
    pub(crate) fn dispense_with(&self, kind: WatchedKind) {
        self.inner.lock().kinds.entry(kind).or_default().dispensable = true;
        self.changed.notify_one();
    }

    /// Waits until every kind was listed that is waited for, and something is to be done.
    pub(crate) async fn work(&self) -> Work {
        loop {
            let changed = self.changed.notified();
            if let Some(work) = self.take() {
                return work;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<Work> {
        let mut inner = self.inner.lock();
        let waits = inner.kinds.values().any(Seen::is_awaited);
        if waits || (!inner.stale && inner.restated.is_empty()) {
            return None;
        }
        let translate = std::mem::take(&mut inner.stale);
        let restated = std::mem::take(&mut inner.restated);
        let restated = if translate { BTreeSet::new() } else { restated };
        Some(Work { objects: Arc::clone(&inner.objects), translate, restated })
    }

    /// The objects as they are now.
    pub(crate) fn objects(&self) -> Arc<Objects> {
        Arc::clone(&self.inner.lock().objects)
    }

    /// The kinds that are waited for: they were not listed in full yet.
    pub(crate) fn pending(&self) -> Vec<&'static str> {
        let inner = self.inner.lock();
        inner.kinds.iter().filter(|(_, seen)| seen.is_awaited()).map(|(kind, _)| kind.name()).collect()
    }

    /// How every watch is doing.
    pub(crate) fn kinds(&self) -> Vec<KindStatus> {
        let inner = self.inner.lock();
        let status = |(kind, seen): (&WatchedKind, &Seen)| {
            let (objects, unreadable) = count(&inner.objects, *kind);
            KindStatus {
                name: kind.name(),
                objects,
                unreadable,
                listed: seen.listed,
                restarts: seen.restarts,
                last_event_age: seen.last_event.map(|when| when.elapsed()),
                trouble: seen.trouble.clone(),
            }
        };
        inner.kinds.iter().map(status).collect()
    }
}
