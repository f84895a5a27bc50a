//! The door: a queue for each model, made when it is first asked for.

mod board;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{AdmissionMeter, Clock, ModelPods, QueueKind};
use parking_lot::RwLock;

use crate::boost::BoostLine;
use crate::fair::FairLine;
use crate::gate::Gate;
use crate::ledger::PeerBook;
use crate::line::Line;
use crate::options::{AdmissionMode, FairnessOptions, SessionBoostOptions};
use crate::permit::{Ask, Denied, Permit};
use crate::queue::{Answer, House, Queue};

/// Lets requests begin, in an order that the mode gives.
///
/// Every client-facing model has a queue of its own. Fairness: the next is always the oldest request of the user whose
/// use within the window, per weight, less what its wait is worth, is least at that moment; a user is charged an estimate as
/// soon as a request is let in. Session boost: the next is the one whose conversation had an answer most lately.
pub struct Admission {
    /// `None` where everybody may begin at once.
    rooms: Option<Rooms>,
}

struct Rooms {
    house: Arc<House>,
    rules: Rules,
    queues: RwLock<Queues>,
}

#[derive(Default)]
struct Queues {
    by_model: HashMap<Arc<str>, Arc<Queue>>,
    closed: bool,
}

enum Rules {
    Fairness { options: Arc<FairnessOptions>, peers: Arc<PeerBook> },
    SessionBoost(SessionBoostOptions),
}

impl Admission {
    /// An open door.
    pub fn new(
        mode: AdmissionMode,
        clock: Arc<dyn Clock>,
        meter: Arc<dyn AdmissionMeter>,
        pods: Arc<dyn ModelPods>,
    ) -> Arc<Self> {
        let (kind, rules, most_waiting, grace) = match mode {
            AdmissionMode::Off => return Arc::new(Self { rooms: None }),
            AdmissionMode::Fairness(options) => {
                let options = Arc::new(options.sane());
                let most = options.max_waiting;
                let rules = Rules::Fairness { options, peers: Arc::default() };
                (QueueKind::Fairness, rules, most, Duration::ZERO)
            }
            AdmissionMode::SessionBoost(options) => {
                let options = options.sane();
                let (most, grace) = (options.max_waiting, options.grace_period);
                (QueueKind::SessionBoost, Rules::SessionBoost(options), most, grace)
            }
        };
        let house = House { kind, clock, meter, pods, waiting: AtomicUsize::new(0), most_waiting, grace };
        let rooms = Rooms { house: Arc::new(house), rules, queues: RwLock::default() };
        Arc::new(Self { rooms: Some(rooms) })
    }

    /// Waits until the request may begin. To drop the future is to leave the queue, at once. Must be called inside a
    /// runtime.
    ///
    /// Every model that is asked for gets a queue, so the caller makes sure first that a route claims it.
    ///
    /// # Errors
    /// Why it may not begin.
    pub async fn admit(&self, ask: Ask<'_>) -> Result<Permit, Denied> {
        let Some(rooms) = &self.rooms else { return Ok(Permit::free()) };
        match rooms.queue(ask.model)?.ask(&ask)? {
            Answer::Begin(permit) => Ok(permit),
            Answer::Wait(place) => place.wait(rooms.rules.patience()).await,
        }
    }

    /// Answers all who wait, and all who come later, with [`Denied::Closed`]. Permits that are out stay good.
    pub fn close(&self) {
        let Some(rooms) = &self.rooms else { return };
        let queues: Vec<Arc<Queue>> = {
            let mut queues = rooms.queues.write();
            queues.closed = true;
            queues.by_model.values().cloned().collect()
        };
        queues.iter().for_each(|queue| queue.close(false));
    }

    /// Closes the queues of models that are not known any more. Who waits in one is answered with [`Denied::Closed`].
    pub fn keep_models(&self, known: &dyn Fn(&str) -> bool) {
        let Some(rooms) = &self.rooms else { return };
        // The caller's question is asked without the lock.
        let models: Vec<Arc<str>> = rooms.queues.read().by_model.keys().cloned().collect();
        for model in models.into_iter().filter(|model| !known(model)) {
            let queue = rooms.queues.read().by_model.get(&model).cloned();
            let Some(queue) = queue else { continue };
            // First closed and then gone: a queue that comes in its place shows what it has after this one said that it
            // has nothing more to show.
            queue.close(true);
            rooms.queues.write().by_model.remove(&model);
        }
    }

    /// Requests that wait, in all queues.
    pub fn waiting(&self) -> usize {
        self.rooms.as_ref().map_or(0, |rooms| rooms.house.waiting.load(Ordering::Relaxed))
    }
}

impl Rooms {
    /// The queue of a model, made if need be.
    fn queue(&self, model: &str) -> Result<Arc<Queue>, Denied> {
        {
            let queues = self.queues.read();
            if queues.closed {
                return Err(Denied::Closed);
            }
            if let Some(queue) = queues.by_model.get(model) {
                return Ok(Arc::clone(queue));
            }
        }
        let mut queues = self.queues.write();
        if queues.closed {
            return Err(Denied::Closed);
        }
        if let Some(queue) = queues.by_model.get(model) {
            return Ok(Arc::clone(queue));
        }
        let name: Arc<str> = model.into();
        let (line, gate) = self.rules.of_model(&name, self.house.clock.now());
        let queue = Arc::new(Queue::new(Arc::clone(&name), Arc::clone(&self.house), line, gate));
        queues.by_model.insert(name, Arc::clone(&queue));
        Ok(queue)
    }
}

impl Rules {
    fn of_model(&self, model: &str, now: Instant) -> (Line, Gate) {
        match self {
            Self::Fairness { options, peers } => {
                let line = FairLine::new(model, Arc::clone(options), Arc::clone(peers), now);
                (Line::Fair(Box::new(line)), Gate::fairness(options, now))
            }
            Self::SessionBoost(options) => {
                let line = BoostLine::new(options.max_sessions, options.ageing);
                (Line::Boost(line), Gate::session_boost(options))
            }
        }
    }

    /// How long a request may wait.
    fn patience(&self) -> Option<Duration> {
        match self {
            Self::Fairness { options, .. } => Some(options.queue_timeout),
            Self::SessionBoost(options) => options.timeout,
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models = self.rooms.as_ref().map_or(0, |rooms| rooms.queues.read().by_model.len());
        let kind = self.rooms.as_ref().map_or("off", |rooms| rooms.house.kind.as_str());
        f.debug_struct("Admission")
            .field("kind", &kind)
            .field("models", &models)
            .field("waiting", &self.waiting())
            .finish()
    }
}
