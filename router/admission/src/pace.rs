//! The task that lets requests in when the time has come, for as long as somebody waits.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::Queue;

/// The longest pause. Only a guard against a clock that leaps: what is due sooner is told.
const LONGEST: Duration = Duration::from_secs(60);

/// Looks after a queue until nobody waits in it. Must be called inside a runtime.
pub(crate) fn keep(queue: Arc<Queue>) {
    tokio::spawn(async move {
        let mut watch = Watch { queue, over: false };
        while let Some(pause) = watch.queue.turn() {
            tokio::select! {
                () = tokio::time::sleep(pause.min(LONGEST)) => {}
                () = watch.queue.sooner.notified() => {}
            }
        }
        watch.over = true;
    });
}

/// Makes the next arrival begin another task if this one is ended from outside, with its runtime.
struct Watch {
    queue: Arc<Queue>,
    over: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.over {
            self.queue.lost_pace();
        }
    }
}
