//! The threads that render and encode, one set for the process.
//!
//! Two lanes by body size. One thread takes short jobs only, so that they never wait behind long ones; the others
//! take long jobs first and help with short ones, so that neither lane starves. A job that has begun runs to its end even
//! when nobody waits for it any more: its ids then sit in the memory for the next turn. One that has not begun by then
//! never does.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Bodies from this size on are long: about 4,000 tokens, some 0.2 ms of work.
pub const LONG_BODY_BYTES: usize = 16 << 10;

/// Short jobs that may wait: at 0.05 ms each, the last one has waited as long as any deadline allows.
const SHORT_QUEUE: usize = 1_024;

/// Long jobs that may wait.
const LONG_QUEUE: usize = 256;

/// Bytes of bodies that may wait in the long lane. The router's limit on buffers counts a body only as long as its request
/// waits for the ids.
const LONG_QUEUE_BYTES: usize = 64 << 20;

/// How long to wait for every thread to do its own job: one may not have started, or be busy with a giant.
const EACH_THREAD_PATIENCE: Duration = Duration::from_secs(10);

/// Which lane a job waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Below [`LONG_BODY_BYTES`].
    Short,
    /// The rest.
    Long,
}

impl Lane {
    /// The lane for a body of so many bytes.
    pub fn of(bytes: usize) -> Self {
        if bytes < LONG_BODY_BYTES { Self::Short } else { Self::Long }
    }
}

/// Why a job gave no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// The lane is full.
    #[error("the queue is full")]
    Full,
    /// The job panicked, or the pool was dropped before it ran.
    #[error("the job did not finish")]
    Lost,
}

/// Sizes of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSizes {
    /// Threads that take short jobs only.
    pub short_threads: usize,
    /// Threads that take both.
    pub threads: usize,
    /// Short jobs that may wait.
    pub short_queue: usize,
    /// Long jobs that may wait.
    pub long_queue: usize,
    /// Bytes of their bodies; one job may always wait, whatever it holds.
    pub long_queue_bytes: usize,
}

impl Default for PoolSizes {
    /// Half the cores, and at least one thread for each lane.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            short_threads: 1,
            threads: (cores / 2).saturating_sub(1).max(1),
            short_queue: SHORT_QUEUE,
            long_queue: LONG_QUEUE,
            long_queue_bytes: LONG_QUEUE_BYTES,
        }
    }
}

trait Job: Send {
    /// Does the work.
    fn run(self: Box<Self>);

    /// Whether anybody waits for it.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// Work without a result.
struct Errand<F>(F);

impl<F: FnOnce() + Send> Job for Errand<F> {
    fn run(self: Box<Self>) {
        (self.0)();
    }
}

/// Work whose result someone waits for.
struct Question<F, T> {
    work: F,
    sender: oneshot::Sender<T>,
}

impl<T: Send, F: FnOnce() -> T + Send> Job for Question<F, T> {
    fn run(self: Box<Self>) {
        // The receiver may have given up meanwhile: the work was still worth doing.
        drop(self.sender.send((self.work)()));
    }

    fn is_wanted(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// Jobs that wait, with the bytes that each holds.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Box<dyn Job>, usize)>,
    bytes: usize,
}

impl Queue {
    /// Whether a job that holds so many bytes must not wait here.
    fn is_full(&self, bytes: usize, most_jobs: usize, most_bytes: usize) -> bool {
        self.jobs.len() >= most_jobs
            || (!self.jobs.is_empty() && self.bytes.saturating_add(bytes) > most_bytes)
    }

    fn push(&mut self, job: Box<dyn Job>, bytes: usize) {
        self.bytes += bytes;
        self.jobs.push_back((job, bytes));
    }

    /// The next job that anybody waits for.
    fn pop(&mut self) -> Option<Box<dyn Job>> {
        while let Some((job, bytes)) = self.jobs.pop_front() {
            self.bytes -= bytes;
            if job.is_wanted() {
                return Some(job);
            }
        }
        None
    }

    /// Drops the jobs that nobody waits for.
    fn tidy(&mut self) {
        self.jobs.retain(|(job, _)| job.is_wanted());
        self.bytes = self.jobs.iter().map(|(_, bytes)| bytes).sum();
    }
}

/// A pool of threads. Dropping it lets the threads finish what is queued.
pub struct Pool {
    shared: Arc<Shared>,
    sizes: PoolSizes,
}

struct Shared {
    queues: Mutex<Queues>,
    short_only: Condvar,
    both: Condvar,
}

#[derive(Default)]
struct Queues {
    short: Queue,
    long: Queue,
    /// Jobs for one thread each, by its number.
    own: Vec<VecDeque<Box<dyn Job>>>,
    closed: bool,
}

impl Pool {
    /// The process's pool, started at the first call.
    pub fn process() -> &'static Self {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| Self::new(PoolSizes::default()))
    }

    /// Starts the threads.
    pub fn new(sizes: PoolSizes) -> Self {
        let threads = sizes.short_threads + sizes.threads;
        let own = (0..threads).map(|_| VecDeque::new()).collect();
        let queues = Mutex::new(Queues { own, ..Queues::default() });
        let shared = Arc::new(Shared { queues, short_only: Condvar::new(), both: Condvar::new() });
        for number in 0..threads {
            let shared = Arc::clone(&shared);
            let short_only = number < sizes.short_threads;
            let started = std::thread::Builder::new()
                .name(format!("tokenize-{number}"))
                .spawn(move || shared.work(number, short_only));
            if let Err(error) = started {
                tracing::error!(%error, "a tokenizer thread did not start");
            }
        }
        Self { shared, sizes }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`PoolError::Full`]; the job is dropped then.
    pub fn submit(&self, lane: Lane, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.queue(lane, 0, Box::new(Errand(job)))
    }

    fn queue(&self, lane: Lane, bytes: usize, job: Box<dyn Job>) -> Result<(), PoolError> {
        let mut queues = self.shared.queues.lock();
        let (queue, most_jobs, most_bytes) = match lane {
            Lane::Short => (&mut queues.short, self.sizes.short_queue, usize::MAX),
            Lane::Long => (&mut queues.long, self.sizes.long_queue, self.sizes.long_queue_bytes),
        };
        if queue.is_full(bytes, most_jobs, most_bytes) {
            queue.tidy();
            if queue.is_full(bytes, most_jobs, most_bytes) {
                return Err(PoolError::Full);
            }
        }
        queue.push(job, bytes);
        drop(queues);
        // One of each for a short job: whoever wakes first takes it.
        if lane == Lane::Short {
            self.shared.short_only.notify_one();
        }
        self.shared.both.notify_one();
        Ok(())
    }

    /// Queues work and waits for its result. Dropping the future does not stop work that has begun.
    ///
    /// # Errors
    /// [`PoolError`]
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        self.ask(lane, 0, work).await
    }

    /// The same for work on a body of so many bytes, which it holds: they decide the lane, and count against what may wait
    /// in it.
    ///
    /// # Errors
    /// [`PoolError`]
    pub async fn run_for<T: Send + 'static>(
        &self,
        body_bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        self.ask(Lane::of(body_bytes), body_bytes, work).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        lane: Lane,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (sender, receiver) = oneshot::channel();
        self.queue(lane, bytes, Box::new(Question { work, sender }))?;
        receiver.await.map_err(|_| PoolError::Lost)
    }

    /// Runs work once on every thread, ahead of what is queued, and waits for it, but not for ever. For what a thread
    /// has to do once: the first encoding on each is slow. Blocks; not for an event loop, and not for a thread of the
    /// pool.
    pub fn run_on_each_thread(&self, work: impl Fn() + Send + Sync + 'static) {
        let work = Arc::new(work);
        let (done, finished) = std::sync::mpsc::channel::<()>();
        for queue in &mut self.shared.queues.lock().own {
            let (work, done) = (Arc::clone(&work), done.clone());
            queue.push_back(Box::new(Errand(move || {
                work();
                drop(done);
            })));
        }
        drop(done);
        self.shared.short_only.notify_all();
        self.shared.both.notify_all();
        // Nothing is ever sent: the wait ends when the last sender is gone, after a panic too.
        let _ = finished.recv_timeout(EACH_THREAD_PATIENCE);
    }

    /// Jobs that wait now: short, long.
    pub fn waiting(&self) -> (usize, usize) {
        let queues = self.shared.queues.lock();
        (queues.short.jobs.len(), queues.long.jobs.len())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queues.lock().closed = true;
        self.shared.short_only.notify_all();
        self.shared.both.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl Shared {
    fn work(&self, number: usize, short_only: bool) {
        while let Some(job) = self.next(number, short_only) {
            // Encoders guard themselves; this keeps the thread whatever else happens. The waiter sees its sender
            // dropped.
            drop(catch_unwind(AssertUnwindSafe(|| job.run())));
        }
    }

    fn next(&self, number: usize, short_only: bool) -> Option<Box<dyn Job>> {
        let mut queues = self.queues.lock();
        loop {
            let own = queues.own.get_mut(number).and_then(VecDeque::pop_front);
            let job = if own.is_some() {
                own
            } else if short_only {
                queues.short.pop()
            } else {
                queues.long.pop().or_else(|| queues.short.pop())
            };
            if job.is_some() {
                return job;
            }
            if queues.closed {
                return None;
            }
            if short_only { self.short_only.wait(&mut queues) } else { self.both.wait(&mut queues) }
        }
    }
}

#[cfg(test)]
mod tests;
