//! The threads that render and encode, one set for the process.
//!
//! Two lanes by body size. One thread takes short jobs only, so that they never wait behind long ones; the others
//! take long jobs first and help with short ones, so that neither lane starves. A job runs to its end even when
//! nobody waits for it any more: its ids then sit in the memory for the next turn.

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

/// Long jobs that may wait. Each holds its body, which the router's buffer limit counts.
const LONG_QUEUE: usize = 256;

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
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

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
    short: VecDeque<Job>,
    long: VecDeque<Job>,
    /// Jobs for one thread each, by its number.
    own: Vec<VecDeque<Job>>,
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
        let mut queues = self.shared.queues.lock();
        let (queue, limit) = match lane {
            Lane::Short => (&mut queues.short, self.sizes.short_queue),
            Lane::Long => (&mut queues.long, self.sizes.long_queue),
        };
        if queue.len() >= limit {
            return Err(PoolError::Full);
        }
        queue.push_back(Box::new(job));
        drop(queues);
        // One of each for a short job: whoever wakes first takes it.
        if lane == Lane::Short {
            self.shared.short_only.notify_one();
        }
        self.shared.both.notify_one();
        Ok(())
    }

    /// Queues work and waits for its result. Dropping the future does not stop the work.
    ///
    /// # Errors
    /// [`PoolError`]
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (sender, receiver) = oneshot::channel();
        self.submit(lane, move || {
            // The receiver may have given up: the work was still worth doing.
            drop(sender.send(work()));
        })?;
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
            queue.push_back(Box::new(move || {
                work();
                drop(done);
            }));
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
        (queues.short.len(), queues.long.len())
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
            drop(catch_unwind(AssertUnwindSafe(job)));
        }
    }

    fn next(&self, number: usize, short_only: bool) -> Option<Job> {
        let mut queues = self.queues.lock();
        loop {
            let own = queues.own.get_mut(number).and_then(VecDeque::pop_front);
            let job = if own.is_some() {
                own
            } else if short_only {
                queues.short.pop_front()
            } else {
                queues.long.pop_front().or_else(|| queues.short.pop_front())
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
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn small() -> Pool {
        Pool::new(PoolSizes { short_threads: 1, threads: 1, short_queue: 2, long_queue: 2 })
    }

    /// Occupies a thread until the returned sender is dropped.
    fn block(pool: &Pool, lane: Lane) -> mpsc::Sender<()> {
        let (release, wait) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        pool.submit(lane, move || {
            started.send(()).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
        running.recv_timeout(PATIENCE).unwrap();
        release
    }

    #[test]
    fn short_jobs_pass_long_ones() {
        let pool = small();
        let release = block(&pool, Lane::Long);
        let (done, finished) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            while pool
                .submit(Lane::Short, {
                    let done = done.clone();
                    move || done.send(number).unwrap()
                })
                .is_err()
            {
                std::thread::yield_now();
            }
        }
        let seen: Vec<i32> = (0..100).map(|_| finished.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        drop(release);
    }

    #[test]
    fn every_thread_gets_its_own_job() {
        let pool = small();
        let names = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&names);
        pool.run_on_each_thread(move || seen.lock().push(std::thread::current().name().map(str::to_owned)));
        let mut names = names.lock().clone();
        names.sort();
        assert_eq!(names, [Some("tokenize-0".to_owned()), Some("tokenize-1".to_owned())]);
        pool.run_on_each_thread(|| panic!("on purpose"));
        pool.run_on_each_thread(|| {});
    }

    #[test]
    fn full_lanes_refuse() {
        let pool = small();
        let releases = [block(&pool, Lane::Long), block(&pool, Lane::Short)];
        for lane in [Lane::Short, Lane::Long] {
            assert_eq!(pool.submit(lane, || {}), Ok(()));
            assert_eq!(pool.submit(lane, || {}), Ok(()));
            assert_eq!(pool.submit(lane, || {}), Err(PoolError::Full));
        }
        assert_eq!(pool.waiting(), (2, 2));
        drop(releases);
    }

    #[tokio::test]
    async fn work_runs_on_when_nobody_waits() {
        let pool = small();
        let releases = [block(&pool, Lane::Long), block(&pool, Lane::Short)];
        let (done, finished) = mpsc::channel();
        let waiting = pool.run(Lane::Short, move || done.send(7).unwrap());
        let cancelled = tokio::time::timeout(Duration::ZERO, waiting).await;
        assert!(cancelled.is_err());
        drop(releases);
        assert_eq!(finished.recv_timeout(PATIENCE), Ok(7));
    }

    #[tokio::test]
    async fn a_panic_costs_one_job_and_no_thread() {
        let pool = small();
        for _ in 0..4 {
            assert_eq!(pool.run(Lane::Short, || panic!("on purpose")).await, Err::<(), _>(PoolError::Lost));
        }
        assert_eq!(pool.run(Lane::Short, || 1).await, Ok(1));
        assert_eq!((Lane::of(16_383), Lane::of(16_384)), (Lane::Short, Lane::Long));
    }
}
