//! Admission's contracts: what it tells meters, what it asks about pods, and what replicas tell each other of use.

use std::time::Duration;

/// Which of the two queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueKind {
    /// Ordered by what each user used.
    Fairness,
    /// Ordered by whose conversation is warm.
    SessionBoost,
}

impl QueueKind {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fairness => "fairness",
            Self::SessionBoost => "session_boost",
        }
    }
}

/// Hears what becomes of requests that ask for admission. `model` is the client-facing name, of which the caller of
/// admission has made sure that a route claims it.
///
/// Called with a queue's lock held, so that gauges are told in order: every call must be quick, never wait, and never
/// call back into admission.
pub trait AdmissionMeter: Send + Sync {
    /// A request has to wait.
    fn queued(&self, kind: QueueKind, model: &str);
    /// A request may begin, after `waited` (zero where nothing stood in its way).
    fn dequeued(&self, kind: QueueKind, model: &str, waited: Duration);
    /// A waiting request's client went away, after `waited`.
    fn cancelled(&self, kind: QueueKind, model: &str, waited: Duration);
    /// A waiting request was sent away after `waited`, since its queue was closed.
    fn closed(&self, kind: QueueKind, model: &str, waited: Duration);
    /// A waiting request was sent away after `waited`, since as many wait as may wait and others have fewer waiting.
    fn displaced(&self, kind: QueueKind, model: &str, waited: Duration);
    /// A request waited for as long as it may, which was `waited`.
    fn timed_out(&self, kind: QueueKind, model: &str, waited: Duration);
    /// A request was turned away at once: too many wait.
    fn rejected(&self, kind: QueueKind, model: &str);
    /// So many wait now.
    fn queue_size(&self, kind: QueueKind, model: &str, waiting: usize);
    /// So many hold a permit now.
    fn in_flight(&self, kind: QueueKind, model: &str, running: usize);
    /// No route names the model any more: what is shown of it can go. Of the permits that are still out nothing more is
    /// told, for the model may have another queue by then.
    fn forgotten(&self, kind: QueueKind, model: &str);
}

/// The pods behind a model, as far as admission has to know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PodCount {
    /// Ready pods that serve it.
    pub pods: u32,
    /// Whether at least one of them has no request waiting in its engine. Of no meaning where `pods` is 0.
    pub any_without_waiting: bool,
}

/// Who serves a model now. Implemented by the state; asked at each arrival, each end of a request, and every now and
/// then while somebody waits, so it must be quick and never wait.
pub trait ModelPods: Send + Sync {
    /// The pods behind `model`, which is the client-facing name: every alias of a model sees the pods that its routes
    /// lead to, whatever the engines call it. No pods for a model that nobody knows.
    fn pods(&self, model: &str) -> PodCount;
}

/// Stands for one user of one model where replicas tell each other of use: the first eight bytes of a SHA-256 over both
/// names. Names themselves never leave the process. Whoever can guess a name can still test the guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UsageKey(pub u64);

/// What one user of one model used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageShare {
    /// Of whom.
    pub key: UsageKey,
    /// Weighted tokens, in thousandths.
    pub cost: u64,
    /// Requests.
    pub requests: u32,
}

/// Where replicas meet about use: what ended here goes out, the others' totals come in. Implemented by admission, driven
/// by whoever exchanges. Memory only, never waits.
pub trait UsageBoard: Send + Sync {
    /// For how long use counts. Fixed for the life of the board.
    fn window(&self) -> Duration;

    /// What was used by requests that ended since the last call, each user at most once. Each use is handed out
    /// exactly once, so the caller keeps it until it is told. What ended before the first call is not handed out.
    fn take_settled(&self) -> Vec<UsageShare>;

    /// What requests that run now are charged until they end, each user at most once.
    fn running(&self) -> Vec<UsageShare>;

    /// What all others used within the window, and are charged now. Replaces what was set before; whom it does not
    /// name, used nothing there.
    fn set_peers(&self, totals: &[UsageShare]);
}
