//! Follows one text of one ConfigMap.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::watch::{self, Patience, Trouble, causes};

/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What is called with every new text.
pub type OnText = Arc<dyn Fn(&str) + Send + Sync>;

/// Follows the text under `key` of a ConfigMap until told to stop, and calls `on_text` with the first one and with every
/// other one. A ConfigMap or key that goes away is named in the log, and what was last said stays.
///
/// The router needs to `list` and `watch` ConfigMaps of this name.
pub async fn watch(
    client: Client,
    namespace: &str,
    name: &str,
    key: &str,
    on_text: OnText,
    stop: CancellationToken,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let config = watch::config().fields(&format!("metadata.name={name}"));
    let what = format!("ConfigMap {namespace}/{name}");
    let mut text = Text { what, key: key.to_owned(), said: None, last: State::Unknown, on_text };
    let mut patience = Patience::new(FIRST_WAIT, LONGEST_WAIT);
    stop.run_until_cancelled(async {
        loop {
            text.follow(watcher(api.clone(), config.clone()), &mut patience).await;
        }
    })
    .await;
}

/// The text under `key` of a ConfigMap as it is now; `None` where there is none. One question.
///
/// The router needs to `get` ConfigMaps of this name.
///
/// # Errors
/// Why it cannot be asked for, in a sentence.
pub async fn read(client: Client, namespace: &str, name: &str, key: &str) -> Result<Option<String>, String> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let map = api.get_opt(name).await.map_err(|error| causes(&error))?;
    Ok(map.and_then(|map| map.data?.remove(key)))
}

struct Text {
    what: String,
    key: String,
    /// What was said last.
    said: Option<String>,
    last: State,
    on_text: OnText,
}

/// How the text was found last.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Unknown,
    There,
    NoKey,
    Gone,
}

impl Text {
    /// Follows events until there is none any more, or a new stream of them is needed.
    async fn follow(
        &mut self,
        events: impl Stream<Item = watcher::Result<Event<ConfigMap>>>,
        patience: &mut Patience,
    ) {
        let mut events = pin!(events);
        let mut listed = None;
        let mut lists = false;
        loop {
            let event = match patience.works_after().filter(|_| !lists) {
                Some(limit) => tokio::time::timeout(limit, events.next()).await,
                None => Ok(events.next().await),
            };
            match event {
                Ok(Some(Ok(Event::Init))) => {
                    (listed, lists) = (None, true);
                    continue;
                }
                Ok(Some(Ok(Event::InitApply(map)))) => {
                    listed = Some(map);
                    continue;
                }
                Ok(Some(Ok(Event::InitDone))) => {
                    lists = false;
                    self.take(listed.take().as_ref());
                    patience.listed();
                }
                Ok(Some(Ok(Event::Apply(map)))) => self.take(Some(&map)),
                Ok(Some(Ok(Event::Delete(_)))) => self.take(None),
                Ok(Some(Err(error))) => {
                    lists = false;
                    let wait = self.stumble(&Trouble::of(&error), patience);
                    tokio::time::sleep(wait).await;
                    if Trouble::needs_a_list(&error) {
                        return;
                    }
                    continue;
                }
                Ok(None) => return tokio::time::sleep(patience.wait()).await,
                // What fails would have failed again by now.
                Err(_) => {}
            }
            patience.works();
        }
    }

    /// Says what is wrong, and how long to wait.
    fn stumble(&self, trouble: &Trouble, patience: &mut Patience) -> Duration {
        let (wait, due) = patience.bear(trouble, false);
        if due {
            tracing::warn!("{} cannot be watched: {}", self.what, trouble.why());
        } else if *trouble == Trouble::Expired {
            tracing::debug!("{} is listed anew", self.what);
        }
        wait
    }

    fn take(&mut self, map: Option<&ConfigMap>) {
        let text = map.map(|map| map.data.as_ref().and_then(|data| data.get(&self.key)));
        let state = match text {
            None => State::Gone,
            Some(None) => State::NoKey,
            Some(Some(text)) => {
                if self.said.as_deref() != Some(text) {
                    (self.on_text)(text);
                    self.said = Some(text.clone());
                }
                State::There
            }
        };
        if std::mem::replace(&mut self.last, state) == state {
            return;
        }
        let stays = if self.said.is_some() { "; what it last said stays" } else { "" };
        match state {
            State::Gone => tracing::warn!("{} is not there{stays}", self.what),
            State::NoKey => tracing::warn!("{} has no {:?}{stays}", self.what, self.key),
            State::There | State::Unknown => tracing::debug!("{} is there", self.what),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").field("what", &self.what).field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use kube::core::Status;
    use parking_lot::Mutex;

    use super::*;

    fn map(key: &str, text: &str) -> ConfigMap {
        let data = [(key.to_owned(), text.to_owned())].into();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    async fn heard(events: Vec<watcher::Result<Event<ConfigMap>>>) -> Vec<String> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = Arc::clone(&heard);
        let on_text: OnText = Arc::new(move |text| ears.lock().push(text.to_owned()));
        let what = "ConfigMap n/m".to_owned();
        let mut text = Text { what, key: "key".to_owned(), said: None, last: State::Unknown, on_text };
        text.follow(stream::iter(events), &mut Patience::new(FIRST_WAIT, LONGEST_WAIT)).await;
        heard.lock().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_text_is_told_once() {
        let gone = || watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed());
        let events = vec![
            Ok(Event::Init),
            Ok(Event::InitApply(map("key", "a"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(map("key", "a"))),
            Ok(Event::Apply(map("key", "b"))),
            Err(gone()),
            Ok(Event::Init),
            Ok(Event::InitApply(map("key", "b"))),
            Ok(Event::InitDone),
        ];
        assert_eq!(heard(events).await, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_may_not_go_on_ends_so_that_another_list_is_asked_for() {
        let gone = Status::failure("old", "Expired").with_code(410);
        let gone = watcher::Error::WatchStartFailed(kube::Error::Api(gone.boxed()));
        let events = vec![
            Ok(Event::Init),
            Ok(Event::InitApply(map("key", "a"))),
            Ok(Event::InitDone),
            Err(gone),
            Ok(Event::Apply(map("key", "of a stream that is of no more use"))),
        ];
        assert_eq!(heard(events).await, ["a"]);
    }

    #[tokio::test]
    async fn what_goes_away_leaves_the_last_text() {
        let events = vec![
            Ok(Event::Init),
            Ok(Event::InitDone),
            Ok(Event::Apply(map("key", "a"))),
            Ok(Event::Apply(map("other", "x"))),
            Ok(Event::Delete(map("key", "a"))),
            Ok(Event::Apply(map("key", "a"))),
            Ok(Event::Apply(map("key", "c"))),
        ];
        assert_eq!(heard(events).await, ["a", "c"]);
    }
}
