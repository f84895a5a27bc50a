//! Which of the models that have a source are served: all of them, or those that the cluster's ModelServers name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::cluster::Names;
use crate::model_set::ModelSet;
use crate::timings::Timings;

/// How many names without a source a log line shows.
const MOST_SHOWN: usize = 10;

/// What is known of the set of models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It is what has a source: no cluster is watched.
    Mapped,
    /// It is what has a source, for as long as nobody knows what the cluster names.
    ForNow,
    /// It is what has a source and is named.
    Named,
}

/// Chooses models.
///
/// A model whose last ModelServer goes stays for a while: servers are replaced by others of the same model, and a
/// renderer takes a minute to start. It goes at once where its place is needed.
#[derive(Debug)]
pub struct Selection {
    names: Option<Names>,
    most: usize,
    stays: Duration,
    patient_until: Instant,
    for_now: bool,
    named: Option<BTreeSet<String>>,
    /// Names that nobody gives any more, and since when.
    left: BTreeMap<String, Instant>,
}

impl Selection {
    /// Of what `names` says, where a cluster is watched; with at most `most` models.
    pub fn new(names: Option<Names>, most: usize, timings: &Timings) -> Self {
        Self {
            names,
            most,
            stays: timings.departure,
            patient_until: Instant::now() + timings.first_names,
            for_now: false,
            named: None,
            left: BTreeMap::new(),
        }
    }

    /// The models to be served, of those that have a source; `None` as long as that is open.
    pub fn choose(&mut self, mapped: &ModelSet) -> (Known, Option<ModelSet>) {
        let Some(names) = &mut self.names else { return (Known::Mapped, Some(mapped.clone())) };
        let now = Instant::now();
        let heard = names.borrow_and_update().clone();
        match heard {
            Some(names) => {
                self.hear(names, mapped, now);
                (Known::Named, Some(self.named_of(mapped, now)))
            }
            None if now < self.patient_until => (Known::Nothing, None),
            None => {
                if !std::mem::replace(&mut self.for_now, true) {
                    tracing::warn!(
                        "the ModelServers are not listed yet; until they are, every model with a source is served"
                    );
                }
                (Known::ForNow, Some(mapped.clone()))
            }
        }
    }

    /// Returns when another choice may have to be made.
    pub async fn changed(&mut self) {
        let due = self.due();
        let heard = async {
            let open = match &mut self.names {
                Some(names) => names.changed().await.is_ok(),
                None => false,
            };
            if !open {
                pending::<()>().await;
            }
        };
        let due = async {
            match due {
                Some(when) => sleep_until(when).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = heard => {}
            () = due => {}
        }
    }

    fn due(&self) -> Option<Instant> {
        if self.named.is_some() {
            return self.left.values().min().map(|since| *since + self.stays);
        }
        (self.names.is_some() && !self.for_now).then_some(self.patient_until)
    }

    fn hear(&mut self, names: BTreeSet<String>, mapped: &ModelSet, now: Instant) {
        if self.named.as_ref() == Some(&names) {
            return;
        }
        let before = self.named.take().unwrap_or_default();
        let without_source: Vec<&String> = names.iter().filter(|name| !mapped.contains_key(*name)).collect();
        if without_source.iter().any(|name| !before.contains(*name)) {
            let some = without_source.iter().take(MOST_SHOWN).collect::<Vec<_>>();
            tracing::info!(
                count = without_source.len(),
                ?some,
                "models of ModelServers have no source; they are skipped"
            );
        }
        self.left.retain(|name, _| !names.contains(name));
        self.left.extend(before.into_iter().filter(|name| !names.contains(name)).map(|name| (name, now)));
        self.named = Some(names);
    }

    fn named_of(&mut self, mapped: &ModelSet, now: Instant) -> ModelSet {
        self.left.retain(|_, since| now < *since + self.stays);
        let is_named = |name: &String| self.named.as_ref().is_some_and(|named| named.contains(name));
        let mut chosen: ModelSet = mapped
            .iter()
            .filter(|(name, _)| is_named(name))
            .map(|(name, spec)| (name.clone(), spec.clone()))
            .collect();
        let mut leaving: Vec<_> =
            self.left.iter().filter_map(|(name, since)| Some((since, mapped.get_key_value(name)?))).collect();
        leaving.sort_by_key(|(since, _)| Reverse(**since));
        let room = self.most.saturating_sub(chosen.len());
        chosen.extend(leaving.into_iter().take(room).map(|(_, (name, spec))| (name.clone(), spec.clone())));
        chosen
    }
}

#[cfg(test)]
mod tests;
