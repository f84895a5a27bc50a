//! The followers of one site's event streams, ended together.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Tasks that follow, and what ends them.
#[derive(Debug)]
pub(super) struct Followers {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Followers {
    /// Nobody follows yet. They end with `stop`, too.
    pub(super) fn new(stop: &CancellationToken) -> Self {
        Self { stop: stop.child_token(), tasks: Vec::new() }
    }

    /// What ends a new follower.
    pub(super) fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Takes one in.
    pub(super) fn add(&mut self, task: JoinHandle<()>) {
        self.tasks.push(task);
    }

    /// Whether anybody follows.
    pub(super) fn any(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Ends all, and waits until none can write into the index any more. May be given up and begun again. Afterwards
    /// others may follow.
    pub(super) async fn end(&mut self, parent: &CancellationToken) {
        self.stop.cancel();
        while let Some(task) = self.tasks.last_mut() {
            // One that panicked has ended as well.
            let _ = task.await;
            self.tasks.pop();
        }
        self.stop = parent.child_token();
    }
}
