//! LoRA adapters: which ones are served, and a bounded number of places for those in use. Another one than the loaded
//! needs time to be loaded, and, where every place is in use, waits until one is idle.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::unix_seconds;

/// States told on the metrics page. vLLM tells every one that there ever was.
const MOST_STATES: usize = 64;

/// The adapters of one start of an engine.
#[derive(Debug)]
pub(crate) struct Adapters {
    books: Mutex<Books>,
    /// Wakes those that wait for a place or for a loading to end.
    changed: Notify,
    load: Duration,
}

#[derive(Debug)]
struct Books {
    served: Vec<Arc<str>>,
    /// As many as fit; the longest unused first.
    places: Vec<Place>,
    most: usize,
    /// Names of requests that wait, each as often as it is waited for.
    waiting: Vec<Arc<str>>,
    /// Label values and when they last held, the newest last.
    states: Vec<(String, f64)>,
}

#[derive(Debug)]
struct Place {
    name: Arc<str>,
    loaded: bool,
    users: usize,
}

/// What a request has to do next.
enum Turn {
    Go,
    Load,
    Wait,
}

impl Adapters {
    /// Serves `names`. At most `most` are in use at once (0: all), and each takes `load` until it is.
    pub(crate) fn new(names: &[String], most: usize, load: Duration) -> Arc<Self> {
        let served: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        let most = if most == 0 { served.len().max(1) } else { most };
        let mut books = Books { served, places: Vec::new(), most, waiting: Vec::new(), states: Vec::new() };
        books.note();
        Arc::new(Self { books: Mutex::new(books), changed: Notify::new(), load })
    }

    /// Whether requests may ask for `name`.
    pub(crate) fn serves(&self, name: &str) -> bool {
        self.books.lock().served.iter().any(|served| **served == *name)
    }

    /// The names, in order.
    pub(crate) fn served(&self) -> Vec<Arc<str>> {
        self.books.lock().served.clone()
    }

    /// `lora_id` of an adapter, counted from 1.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        let index = self.books.lock().served.iter().position(|served| **served == *name)?;
        u32::try_from(index + 1).ok()
    }

    /// Serves another one. False when it is served already.
    pub(crate) fn add(&self, name: &str) -> bool {
        let mut books = self.books.lock();
        let new = !books.served.iter().any(|served| **served == *name);
        if new {
            books.served.push(name.into());
        }
        new
    }

    /// Serves it no longer. False when it is not served.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut books = self.books.lock();
        let before = books.served.len();
        books.served.retain(|served| **served != *name);
        books.places.retain(|place| *place.name != *name || place.users > 0);
        books.served.len() < before
    }

    /// Waits until `name` is loaded, and holds its place. Dropping the future leaves the line.
    pub(crate) async fn take(self: &Arc<Self>, name: Arc<str>) -> InUse {
        let waiting = Waiting::join(self, name);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let turn = self.books.lock().turn(&waiting.name);
            match turn {
                Turn::Go => break,
                Turn::Wait => changed.await,
                Turn::Load => {
                    let loading = Loading { adapters: self, name: &waiting.name, done: false };
                    tokio::time::sleep(self.load).await;
                    loading.done();
                }
            }
        }
        let name = Arc::clone(&waiting.name);
        drop(waiting);
        InUse { adapters: Arc::clone(self), name }
    }

    /// The series, without the labels that the engine's others have.
    pub(crate) fn render(&self, text: &mut String) {
        let books = self.books.lock();
        if books.served.is_empty() {
            return;
        }
        let name = "vllm:lora_requests_info";
        let _ = writeln!(text, "# HELP {name} Running stats on LoRA requests.\n# TYPE {name} gauge");
        for (labels, at) in &books.states {
            let _ = writeln!(text, "{name}{{{labels}}} {at:?}");
        }
    }

    fn change(&self, change: impl FnOnce(&mut Books)) {
        let mut books = self.books.lock();
        change(&mut books);
        books.note();
        drop(books);
        self.changed.notify_waiters();
    }
}

impl Books {
    /// What a request for `name` may do now. `Go` counts it as a user, `Load` takes a place.
    fn turn(&mut self, name: &Arc<str>) -> Turn {
        if let Some(at) = self.places.iter().position(|place| place.name == *name) {
            if !self.places[at].loaded {
                return Turn::Wait;
            }
            let mut place = self.places.remove(at);
            place.users += 1;
            self.places.push(place);
            return Turn::Go;
        }
        if self.places.len() >= self.most {
            let Some(idle) = self.places.iter().position(|place| place.loaded && place.users == 0) else {
                return Turn::Wait;
            };
            self.places.remove(idle);
        }
        self.places.push(Place { name: Arc::clone(name), loaded: false, users: 0 });
        Turn::Load
    }

    /// Notes the state that holds from now on.
    fn note(&mut self) {
        let distinct = |names: Vec<&Arc<str>>| {
            let mut names: Vec<&str> = names.into_iter().map(|name| &**name).collect();
            names.sort_unstable();
            names.dedup();
            names.join(",")
        };
        let running = self.places.iter().filter(|place| place.users > 0).map(|place| &place.name).collect();
        let labels = format!(
            "max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"",
            self.most,
            distinct(running),
            distinct(self.waiting.iter().collect())
        );
        self.states.retain(|(known, _)| *known != labels);
        if self.states.len() == MOST_STATES {
            self.states.remove(0);
        }
        self.states.push((labels, unix_seconds()));
    }
}

/// A request in the line for an adapter.
struct Waiting<'a> {
    adapters: &'a Adapters,
    name: Arc<str>,
}

impl<'a> Waiting<'a> {
    fn join(adapters: &'a Adapters, name: Arc<str>) -> Self {
        adapters.change(|books| books.waiting.push(Arc::clone(&name)));
        Self { adapters, name }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.adapters.change(|books| {
            if let Some(at) = books.waiting.iter().position(|name| *name == self.name) {
                books.waiting.swap_remove(at);
            }
        });
    }
}

/// A place whose adapter is on its way into it.
struct Loading<'a> {
    adapters: &'a Adapters,
    name: &'a Arc<str>,
    done: bool,
}

impl Loading<'_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let Self { name, done, .. } = *self;
        self.adapters.change(|books| match books.places.iter().position(|place| place.name == *name) {
            Some(at) if done => books.places[at].loaded = true,
            Some(at) => drop(books.places.remove(at)),
            None => {}
        });
    }
}

/// A request that runs with an adapter.
#[derive(Debug)]
pub(crate) struct InUse {
    adapters: Arc<Adapters>,
    name: Arc<str>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.adapters.change(|books| {
            if let Some(place) = books.places.iter_mut().find(|place| place.name == self.name) {
                place.users = place.users.saturating_sub(1);
            }
        });
    }
}

#[cfg(test)]
mod tests;
