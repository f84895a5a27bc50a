//! Statuses that wait to be written: which is next, and which had better wait.

use std::collections::BTreeMap;
use std::time::Duration;

use kvasir_state::plan::ObjectName;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::found::Wanted;
use crate::status::{Said, StatusKind};

/// Whose status it is.
pub(crate) type StatusKey = (StatusKind, ObjectName);

/// The shortest time between two writes of one object.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// The longest wait before something is said again that somebody else keeps taking back.
const LONGEST_QUARREL: Duration = Duration::from_secs(300);
/// How long a write that was refused, or not kept whole, is not tried again while nothing about it changes. Whoever
/// installs a definition with a status or a missing role changes none of the objects.
const REFUSED_FOR: Duration = Duration::from_secs(300);
/// How often a write is tried while the API server has problems; the next comparison of everything tries again.
const MOST_TRIES: u32 = 5;

/// How a write ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The object says it now.
    Written,
    /// The object said it already.
    Settled,
    /// The API server took the write and kept only a part of it: its definition of the kind is an older one.
    Partly,
    /// The API server took the write and kept nothing of it.
    Dropped,
    /// The API server does not take it.
    Refused,
    /// Somebody changed the object in between, or it is gone; what is next comes with the next event.
    Overtaken,
    /// The API server has problems.
    Unavailable,
}

/// The statuses that wait, at most one for each object, and what became of those before.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeMap<StatusKey, Waiting>,
    memory: BTreeMap<StatusKey, Memory>,
}

#[derive(Debug)]
struct Waiting {
    wanted: Wanted,
    due: Instant,
    tries: u32,
}

/// What became of the last write of an object.
#[derive(Debug)]
struct Memory {
    uid: Option<String>,
    generation: Option<i64>,
    said: Said,
    fate: Fate,
    when: Instant,
    /// How often in a row the same was written again.
    repeats: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Kept,
    Partly,
    Dropped,
    Refused,
}

/// A status taken out to be written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Taken {
    pub(super) wanted: Wanted,
    tries: u32,
}

impl Outbox {
    /// Statuses to write. One that waits for the same object is replaced.
    pub(crate) fn put(&self, all: impl IntoIterator<Item = Wanted>) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        for wanted in all {
            inner.put(wanted, now);
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// What waits for these objects is not to be written: they say what they should, or something else is coming.
    pub(crate) fn settle(&self, keys: &[StatusKey]) {
        let mut inner = self.inner.lock();
        for key in keys {
            inner.waiting.remove(key);
        }
    }

    /// Forgets everything about objects that are not among `live`.
    pub(crate) fn retain(&self, live: impl Fn(&StatusKey) -> bool) {
        let mut inner = self.inner.lock();
        inner.waiting.retain(|key, _| live(key));
        inner.memory.retain(|key, _| live(key));
    }

    /// Forgets what waits; another replica writes now.
    pub(crate) fn clear(&self) {
        self.inner.lock().waiting.clear();
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// Takes out the next status, when it is due.
    pub(super) async fn take(&self) -> Taken {
        loop {
            let filled = self.filled.notified();
            let next = self.inner.lock().take(Instant::now());
            match next {
                Ok(taken) => return taken,
                Err(Some(due)) => {
                    // Whether it was woken or waited, it looks again.
                    let _ = tokio::time::timeout_at(due, filled).await;
                }
                Err(None) => filled.await,
            }
        }
    }

    /// Says how a write ended.
    pub(super) fn ended(&self, taken: Taken, ended: &Ended, wait: Duration) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let fate = match ended {
            Ended::Written | Ended::Settled => Fate::Kept,
            Ended::Partly => Fate::Partly,
            Ended::Dropped => Fate::Dropped,
            Ended::Refused => Fate::Refused,
            Ended::Overtaken => return,
            Ended::Unavailable => {
                let tries = taken.tries + 1;
                if tries < MOST_TRIES {
                    let waiting = Waiting { wanted: taken.wanted, due: now + wait, tries };
                    inner.waiting.entry(key_of(&waiting.wanted)).or_insert(waiting);
                }
                drop(inner);
                self.filled.notify_one();
                return;
            }
        };
        inner.remember(&taken.wanted, fate, *ended == Ended::Written, now);
    }

    /// Whether this write was refused already as it is.
    pub(super) fn was_refused(&self, wanted: &Wanted) -> bool {
        let inner = self.inner.lock();
        let memory = inner.memory.get(&key_of(wanted));
        memory.is_some_and(|memory| memory.fate == Fate::Refused && memory.is_of(wanted))
    }
}

impl Inner {
    fn put(&mut self, wanted: Wanted, now: Instant) {
        let key = key_of(&wanted);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.wanted = wanted;
            return;
        }
        let due = match self.memory.get(&key) {
            Some(memory) => memory.due(&wanted, now),
            None => Some(now),
        };
        if let Some(due) = due {
            self.waiting.insert(key, Waiting { wanted, due, tries: 0 });
        }
    }

    /// The status that has been due for longest, or when one will be.
    fn take(&mut self, now: Instant) -> Result<Taken, Option<Instant>> {
        let first = self.waiting.iter().min_by_key(|(_, waiting)| waiting.due);
        let (key, due) = first.map(|(key, waiting)| (key.clone(), waiting.due)).ok_or(None)?;
        if due > now {
            return Err(Some(due));
        }
        let waiting = self.waiting.remove(&key).ok_or(None)?;
        Ok(Taken { wanted: waiting.wanted, tries: waiting.tries })
    }

    fn remember(&mut self, wanted: &Wanted, fate: Fate, wrote: bool, now: Instant) {
        let before = self.memory.get(&key_of(wanted)).filter(|before| {
            before.is_of(wanted)
                && before.said == wanted.status.said
                && now < before.when + 2 * LONGEST_QUARREL
        });
        let repeats = before.map_or(0, |before| before.repeats + u32::from(wrote));
        let memory = Memory {
            uid: wanted.uid.clone(),
            generation: wanted.status.generation,
            said: wanted.status.said.clone(),
            fate,
            when: now,
            repeats,
        };
        self.memory.insert(key_of(wanted), memory);
    }
}

impl Memory {
    fn is_of(&self, wanted: &Wanted) -> bool {
        self.uid == wanted.uid && self.generation == wanted.status.generation
    }

    /// When a status may be written, after what became of the last one; `None`: not at all.
    fn due(&self, wanted: &Wanted, now: Instant) -> Option<Instant> {
        let same = self.said == wanted.status.said;
        let soon = self.when + WRITE_EVERY;
        if !self.is_of(wanted) {
            return Some(soon);
        }
        let recent = now < self.when + REFUSED_FOR;
        match self.fate {
            // Nothing of another one would be kept either.
            Fate::Dropped if recent => None,
            // Nothing more of it will be kept the next time.
            Fate::Refused | Fate::Partly if same && recent => None,
            // Nobody can see whether it is still said; it is taken to be.
            Fate::Kept if same && !wanted.seen => None,
            Fate::Kept if same => {
                let quarrel = WRITE_EVERY.saturating_mul(1 << self.repeats.min(16));
                Some(self.when + quarrel.min(LONGEST_QUARREL))
            }
            Fate::Kept | Fate::Partly | Fate::Dropped | Fate::Refused => Some(soon),
        }
    }
}

fn key_of(wanted: &Wanted) -> StatusKey {
    (wanted.status.kind, wanted.status.name.clone())
}
