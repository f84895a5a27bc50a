//! Tasks that must not end before they are told to: one that panicked is begun again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

/// The pause before a task is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs a task until it ends by itself. After a panic what it left is put in order, and it is begun again a moment later;
/// what it shares must not be left half changed in a way that putting in order does not mend.
pub(crate) async fn supervise<Task: Future<Output = ()>>(
    name: &'static str,
    stop: &CancellationToken,
    mut begin: impl FnMut() -> Task,
    mut put_in_order: impl FnMut(),
) {
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        tracing::error!(task = name, "a task panicked, which is a fault of this program; it begins again");
        if catch_unwind(AssertUnwindSafe(&mut put_in_order)).is_err() {
            tracing::error!(task = name, "what a task left could not be put in order");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panicked_is_put_in_order_and_begun_again() {
        let (begun, ordered) = (Cell::new(0), Cell::new(0));
        let begin = || {
            begun.set(begun.get() + 1);
            let last = begun.get() == 3;
            async move { assert!(last, "not yet") }
        };
        let order = || {
            ordered.set(ordered.get() + 1);
            assert!(ordered.get() > 1, "this may fail too");
        };
        supervise("a test", &CancellationToken::new(), begin, order).await;
        assert_eq!((begun.get(), ordered.get()), (3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_begun_again_after_the_stop() {
        let (stop, begun) = (CancellationToken::new(), Cell::new(0));
        stop.cancel();
        let begin = || {
            begun.set(begun.get() + 1);
            async { panic!("always") }
        };
        supervise("a test", &stop, begin, || {}).await;
        assert_eq!(begun.get(), 1);
    }
}
