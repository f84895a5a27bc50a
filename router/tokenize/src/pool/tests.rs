use std::sync::mpsc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that may wait in the long lane.
const BYTES: usize = 4 * LONG_BODY_BYTES;

fn small() -> Pool {
    Pool::new(PoolSizes {
        short_threads: 1,
        threads: 1,
        short_queue: 2,
        long_queue: 2,
        long_queue_bytes: BYTES,
    })
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
async fn work_that_has_begun_runs_on_when_nobody_waits() {
    let pool = small();
    let (began, running) = mpsc::channel();
    let (release, wait) = mpsc::channel::<()>();
    let (done, finished) = mpsc::channel();
    let mut waiting = Box::pin(pool.run_for(LONG_BODY_BYTES, move || {
        began.send(()).unwrap();
        let _ = wait.recv();
        done.send(7).unwrap();
    }));
    assert!(tokio::time::timeout(Duration::ZERO, &mut waiting).await.is_err());
    running.recv_timeout(PATIENCE).unwrap();
    drop(waiting);
    drop(release);
    assert_eq!(finished.recv_timeout(PATIENCE), Ok(7));
}

/// Begins to wait for a job that tells when it runs, and gives up at once.
async fn abandon(pool: &Pool, bytes: usize, ran: &mpsc::Sender<usize>) {
    let ran = ran.clone();
    let waiting = pool.run_for(bytes, move || ran.send(bytes).unwrap());
    assert!(tokio::time::timeout(Duration::ZERO, waiting).await.is_err());
}

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_is_not_begun() {
    let pool = small();
    let releases = [block(&pool, Lane::Long), block(&pool, Lane::Short)];
    let (ran, seen) = mpsc::channel();
    // More than may wait: those whose requester left make room.
    for bytes in [1, LONG_BODY_BYTES].repeat(4) {
        abandon(&pool, bytes, &ran).await;
    }
    drop(releases);
    assert_eq!(pool.run(Lane::Short, || 1).await, Ok(1));
    assert_eq!(pool.run(Lane::Long, || 1).await, Ok(1));
    assert!(seen.try_recv().is_err());
    assert_eq!(pool.shared.queues.lock().long.bytes, 0);
}

#[tokio::test]
async fn the_long_lane_is_bounded_in_bytes() {
    let pool = small();
    let releases = [block(&pool, Lane::Long), block(&pool, Lane::Short)];
    let wait = |bytes| tokio::time::timeout(Duration::ZERO, pool.run_for(bytes, || {}));
    let mut giant = Box::pin(pool.run_for(BYTES * 2, || {}));
    assert!(tokio::time::timeout(Duration::ZERO, &mut giant).await.is_err(), "one may always wait");
    assert_eq!(wait(LONG_BODY_BYTES).await, Ok(Err(PoolError::Full)));
    assert!(wait(1).await.is_err(), "the short lane has room");
    drop(giant);
    let mut first = Box::pin(pool.run_for(BYTES - LONG_BODY_BYTES, || {}));
    assert!(tokio::time::timeout(Duration::ZERO, &mut first).await.is_err());
    assert_eq!(wait(LONG_BODY_BYTES + 1).await, Ok(Err(PoolError::Full)));
    assert!(wait(LONG_BODY_BYTES).await.is_err(), "it fits exactly");
    drop(releases);
    assert_eq!(first.await, Ok(()));
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
