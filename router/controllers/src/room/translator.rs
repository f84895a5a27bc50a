//! From changes to plans: at once after a pause, at most so many a second, and only for changes that matter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvasir_state::plan::ObjectName;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::PlanSink;
use super::refusals::{self, Refusals};
use crate::lease::Leadership;
use crate::objects::Objects;
use crate::status::Status;
use crate::translate::{Options, translate};
use crate::watch::{Store, Work};
use crate::writer::{Agreed, Outbox, StatusKey, wanted};

/// How often every status is compared although nothing happened: writes that were given up are tried again then.
const COMPARE_EVERY: Duration = Duration::from_secs(300);

/// Numbers about translations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    pub(super) translations: u64,
    pub(super) last: Option<Duration>,
    pub(super) skipped: u64,
}

/// Numbers about translations, shared.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Reading>);

impl Counts {
    pub(super) fn read(&self) -> Reading {
        *self.0.lock()
    }
}

/// Translates what the store holds, and has statuses written while this replica leads.
pub(super) struct Translator {
    store: Arc<Store>,
    options: Arc<Options>,
    failed_ports: watch::Receiver<BTreeMap<u16, String>>,
    /// The shortest time from one plan to the next.
    spacing: Duration,
    sink: Arc<dyn PlanSink>,
    leadership: Leadership,
    outbox: Arc<Outbox>,
    statuses: Arc<BTreeMap<StatusKey, Arc<Status>>>,
    agreed: Agreed,
    /// What the last translation passed over, so that each is named once.
    skipped: BTreeSet<(ObjectName, String)>,
    /// What it refused, likewise.
    refused: Refusals,
    counts: Arc<Counts>,
    synced: watch::Sender<bool>,
}

/// What comes back from a translation.
struct Outcome {
    statuses: BTreeMap<StatusKey, Arc<Status>>,
    skipped: BTreeSet<(ObjectName, String)>,
    refused: Refusals,
    sizes: Sizes,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    targets: usize,
    routes: usize,
    http_routes: usize,
}

impl Translator {
    pub(super) fn new(
        store: Arc<Store>,
        options: Options,
        spacing: Duration,
        sink: Arc<dyn PlanSink>,
        (leadership, outbox): (Leadership, Arc<Outbox>),
    ) -> (Self, watch::Receiver<bool>, Arc<Counts>) {
        let (synced, receiver) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let translator = Self {
            store,
            options: Arc::new(options),
            failed_ports: watch::channel(BTreeMap::new()).1,
            spacing,
            sink,
            leadership,
            outbox,
            statuses: Arc::default(),
            agreed: Agreed::default(),
            skipped: BTreeSet::new(),
            refused: Refusals::new(),
            counts: Arc::clone(&counts),
            synced,
        };
        (translator, receiver, counts)
    }

    /// Heeds which ports cannot be opened.
    pub(super) fn heeding(mut self, failed_ports: watch::Receiver<BTreeMap<u16, String>>) -> Self {
        self.failed_ports = failed_ports;
        self
    }

    /// Translates whenever something changed. Never returns.
    pub(super) async fn run(mut self) {
        let mut leads = self.leadership.changes();
        let mut compare = interval_at(Instant::now() + COMPARE_EVERY, COMPARE_EVERY);
        compare.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let store = Arc::clone(&self.store);
        let mut failed_ports = self.failed_ports.clone();
        loop {
            tokio::select! {
                work = store.work() => {
                    let next = Instant::now() + self.spacing;
                    self.act(work).await;
                    tokio::time::sleep_until(next).await;
                }
                Ok(()) = failed_ports.changed() => {
                    Arc::make_mut(&mut self.options).failed_ports = failed_ports.borrow_and_update().clone();
                    if *self.synced.borrow() {
                        self.act(Work { objects: store.objects(), translate: true, restated: BTreeSet::new() }).await;
                    }
                }
                Ok(()) = leads.changed() => self.compare_anew(store.objects()).await,
                _ = compare.tick() => self.compare_anew(store.objects()).await,
            }
        }
    }

    async fn act(&mut self, work: Work) {
        if !work.translate {
            return self.compare(work.objects, Some(work.restated)).await;
        }
        let begin = Instant::now();
        let (objects, options) = (Arc::clone(&work.objects), Arc::clone(&self.options));
        let sink = Arc::clone(&self.sink);
        let done = tokio::task::spawn_blocking(move || apply(&objects, &options, sink.as_ref())).await;
        let Ok(outcome) = done else {
            // Its message was printed where it happened.
            tracing::error!("the objects cannot be translated; requests are routed by the last plan");
            return;
        };
        let took = begin.elapsed();
        for (name, reason) in outcome.skipped.difference(&self.skipped) {
            tracing::warn!(object = %name, "passed over: {reason}");
        }
        refusals::tell(&self.refused, &outcome.refused);
        self.refused = outcome.refused;
        let Sizes { targets, routes, http_routes } = outcome.sizes;
        let skipped = outcome.skipped.len();
        tracing::debug!(targets, routes, http_routes, skipped, ?took, "a new plan");
        self.skipped = outcome.skipped;
        self.statuses = Arc::new(outcome.statuses);
        let statuses = &self.statuses;
        self.outbox.retain(|key| statuses.contains_key(key));
        self.agreed.retain(|key| statuses.contains_key(key));
        {
            let mut counts = self.counts.0.lock();
            counts.translations += 1;
            counts.last = Some(took);
            counts.skipped = skipped as u64;
        }
        if !self.synced.send_replace(true) {
            tracing::info!(
                targets,
                routes,
                http_routes,
                skipped,
                "every kind was listed; the first plan is in use"
            );
        }
        self.compare(work.objects, None).await;
    }

    /// Compares all objects, those too that needed no write before.
    async fn compare_anew(&mut self, objects: Arc<Objects>) {
        self.agreed.forget_all();
        self.compare(objects, None).await;
    }

    /// Compares what objects say with what they should, all of them or some, and has the difference written.
    async fn compare(&mut self, objects: Arc<Objects>, only: Option<BTreeSet<StatusKey>>) {
        if !self.leadership.holds() {
            return;
        }
        let (statuses, options) = (Arc::clone(&self.statuses), Arc::clone(&self.options));
        let mut agreed = std::mem::take(&mut self.agreed);
        let compared = tokio::task::spawn_blocking(move || {
            let now = jiff::Timestamp::now();
            let (mut differ, mut settled) = (Vec::new(), Vec::new());
            let mut look = |(key, status): (&StatusKey, &Arc<Status>)| {
                if agreed.holds(&objects, key, status) {
                    return;
                }
                if let Some(wanted) = wanted(&objects, status, &options.controller_name, now) {
                    agreed.forget(key);
                    differ.push(wanted);
                } else {
                    agreed.note(&objects, key, status);
                    settled.push(key.clone());
                }
            };
            match only {
                Some(keys) => keys.iter().filter_map(|key| statuses.get_key_value(key)).for_each(&mut look),
                None => statuses.iter().for_each(&mut look),
            }
            (differ, settled, agreed)
        });
        if let Ok((differ, settled, agreed)) = compared.await {
            self.agreed = agreed;
            self.outbox.settle(&settled);
            self.outbox.put(differ);
        }
    }
}

fn apply(objects: &Objects, options: &Options, sink: &dyn PlanSink) -> Outcome {
    let translation = translate(objects, options);
    let plan = translation.plan;
    let sizes =
        Sizes { targets: plan.targets.len(), routes: plan.routes.len(), http_routes: plan.http_routes.len() };
    sink.apply(plan);
    let keyed = |status: Status| ((status.kind, status.name.clone()), Arc::new(status));
    let statuses = translation.statuses.into_iter().map(keyed).collect();
    Outcome {
        refused: refusals::refusals(&statuses),
        statuses,
        skipped: translation.skipped.into_iter().collect(),
        sizes,
    }
}

#[cfg(test)]
mod tests;
