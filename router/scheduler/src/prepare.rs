//! Which producers run for a request, in which order, and under one deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    Candidates, CycleState, DataProducer, InferenceRequest, Needs, ScheduleMeter, TokenSlot, TokenizeError,
};
use tokio::time::{Instant, timeout_at};

/// Gathering never takes longer, whatever was configured; keeps the deadline within what a clock can express.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3600);

/// The reason label of a producer that was not ready in time.
const LATE: &str = "deadline";

/// The producers that the enabled parts need, each after those it builds on.
#[derive(Clone)]
pub struct Plan {
    steps: Vec<Arc<dyn DataProducer>>,
    provides: Needs,
    missing: bool,
}

impl Plan {
    /// Picks from `producers` those that provide `needs`, directly or as an input of another, and puts them in
    /// order. All that provide a needed item run, in the given order where the inputs leave a choice.
    ///
    /// What nobody provides, or what waits for itself, is left out: its slot stays empty and scorers give no
    /// opinion ([`is_complete`](Self::is_complete) tells).
    pub fn new(producers: Vec<Arc<dyn DataProducer>>, needs: Needs) -> Self {
        let mut wanted = needs;
        loop {
            let closed = producers
                .iter()
                .filter(|producer| wanted.intersects(producer.provides()))
                .fold(wanted, |all, producer| all | producer.after());
            if closed == wanted {
                break;
            }
            wanted = closed;
        }
        let mut waiting: Vec<_> =
            producers.into_iter().filter(|producer| wanted.intersects(producer.provides())).collect();
        let mut steps = Vec::with_capacity(waiting.len());
        let mut provides = Needs::NONE;
        while let Some(next) = waiting.iter().position(|producer| provides.contains(producer.after())) {
            let producer = waiting.remove(next);
            provides = provides | producer.provides();
            steps.push(producer);
        }
        Self { steps, provides, missing: !provides.contains(wanted) }
    }

    /// Whether somebody provides everything that was asked for.
    pub fn is_complete(&self) -> bool {
        !self.missing
    }

    /// What may be found in the slots after a run.
    pub fn provides(&self) -> Needs {
        self.provides
    }

    /// Fills the slots of `cycle`. Never fails: a producer that fails or is late leaves its slot empty and is
    /// counted once; those that build on it are skipped without being counted again.
    ///
    /// The deadline is one for all. A producer that does not wait still gets its one poll after it has passed,
    /// so a late tokenizer does not take independent, immediate work with it.
    pub async fn run(
        &self,
        request: &InferenceRequest,
        pool: &Candidates,
        cycle: &mut CycleState,
        deadline: Duration,
        meter: &dyn ScheduleMeter,
    ) {
        let deadline = Instant::now() + deadline.min(LONGEST_DEADLINE);
        let mut have = Needs::NONE;
        for step in &self.steps {
            if !have.contains(step.after()) {
                continue;
            }
            match timeout_at(deadline, step.produce(request, pool, cycle)).await {
                Ok(Ok(())) => have = have | step.provides(),
                Ok(Err(error)) => {
                    empty(cycle, step.provides());
                    meter.produce_failed(&request.model, step.name(), error.reason);
                }
                Err(_) => {
                    empty(cycle, step.provides());
                    if step.provides().contains(Needs::TOKENS) {
                        cycle.tokens = TokenSlot::Failed(TokenizeError::Deadline);
                    }
                    meter.produce_failed(&request.model, step.name(), LATE);
                }
            }
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| step.name())).finish()
    }
}

/// Empties slots that may be half filled. A reason for missing tokens stays: the decision record shows it.
fn empty(cycle: &mut CycleState, slots: Needs) {
    if slots.contains(Needs::TOKENS) && matches!(cycle.tokens, TokenSlot::Ready(_)) {
        cycle.tokens = TokenSlot::Empty;
    }
    if slots.contains(Needs::BLOCKS) {
        cycle.chains.clear();
    }
    if slots.contains(Needs::PREFIX_HITS) {
        cycle.hits.clear();
    }
    if slots.contains(Needs::TEXT_HASHES) {
        cycle.text_hashes.clear();
    }
}

#[cfg(test)]
mod tests;
