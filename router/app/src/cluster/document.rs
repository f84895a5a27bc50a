//! The router document while the router runs: a new version is taken over whole, or not at all.

use std::sync::Arc;

use kvasir_core::Needs;
use kvasir_scheduler::Scheduler;
use kvasir_settings::Settings;
use kvasir_settings::kubernetes::ConfigMapRef;
use parking_lot::Mutex;

use crate::house::House;
use crate::household::Household;

/// The scorer that looks blocks up where `coordination` says.
const LOOKS_UP: &str = "kvcache-aware";

/// The document of one ConfigMap.
pub(super) struct Documents {
    map: ConfigMapRef,
    house: Arc<House>,
    household: Arc<Household>,
    /// What the router was started with: its Redis, and how blocks are looked up there.
    first: Arc<Settings>,
    /// Whether it has been followed since the start who holds which blocks.
    follows: bool,
    inside: Mutex<Inside>,
}

struct Inside {
    /// What the router goes by.
    settings: Arc<Settings>,
    taken: u64,
    /// Why the version that the ConfigMap has now is not the one in use.
    rejected: Option<String>,
}

impl Documents {
    /// To be made before the first version could be taken over: the router follows the caches that its first scheduler
    /// asks about, and no others.
    pub(super) fn new(
        map: &ConfigMapRef,
        settings: &Arc<Settings>,
        house: &Arc<House>,
        household: &Arc<Household>,
    ) -> Self {
        let inside = Inside { settings: Arc::clone(settings), taken: 0, rejected: None };
        Self {
            map: map.clone(),
            house: Arc::clone(house),
            household: Arc::clone(household),
            first: Arc::clone(settings),
            follows: asks_for_blocks(&house.gateway.scheduling.scheduler()),
            inside: Mutex::new(inside),
        }
    }

    /// How many versions were taken over, and why the last one was not.
    pub(super) fn status(&self) -> (u64, Option<String>) {
        let inside = self.inside.lock();
        (inside.taken, inside.rejected.clone())
    }

    /// The ConfigMap, as it is written on the command line.
    pub(super) fn name(&self) -> String {
        self.map.to_string()
    }

    /// Takes a new version over. Called one at a time.
    pub(super) fn take(&self, text: &str) {
        let mut inside = self.inside.lock();
        match self.taken_over(&inside.settings, text) {
            Ok(Some(next)) => {
                tracing::info!("ConfigMap {}: the new version is in use", self.map);
                inside.settings = next;
                inside.taken += 1;
                inside.rejected = None;
            }
            Ok(None) => inside.rejected = None,
            Err(why) => {
                let goes_on = if inside.settings.from_document {
                    "the last one goes on"
                } else {
                    "the router goes on without one"
                };
                tracing::error!(
                    "ConfigMap {}: the new version is not taken over, {goes_on}: {why}",
                    self.map
                );
                inside.rejected = Some(why);
            }
        }
    }

    /// The settings with this version, in use; `None` where it says what is in use already.
    fn taken_over(&self, before: &Settings, text: &str) -> Result<Option<Arc<Settings>>, String> {
        let next = before.reload_document(text).map_err(|problems| problems.to_string())?;
        if next.scheduler == before.scheduler && next.from_document == before.from_document {
            return Ok(None);
        }
        // One that asks less of Redis than the first is content with what is there.
        let is_elsewhere = next.redis.is_some() && next.redis != self.first.redis;
        if is_elsewhere || (looks_up(&next) && next.coordination != self.first.coordination) {
            return Err("it wants another Redis or coordination, which begins with a restart".to_owned());
        }
        let scheduled = self.house.schedule(&next).map_err(|error| format!("{error:#}"))?;
        if asks_for_blocks(&scheduled.scheduler) && !self.follows {
            return Err(
                "it asks who holds which blocks, which nobody followed so far; that begins with a restart"
                    .to_owned(),
            );
        }
        for warning in &next.warnings {
            tracing::warn!("{warning}");
        }
        let next = Arc::new(next);
        self.household.go_by(Arc::clone(&next));
        self.house.gateway.scheduling.replace(scheduled);
        Ok(Some(next))
    }
}

/// Whether it counts where blocks are looked up.
fn looks_up(settings: &Settings) -> bool {
    settings.scheduler.scorers.iter().any(|(name, _)| name == LOOKS_UP)
}

fn asks_for_blocks(scheduler: &Scheduler) -> bool {
    scheduler.profile().needs().contains(Needs::PREFIX_HITS)
}
