//! A place in a queue, which is left when it is dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::permit::{Denied, Permit};
use crate::queue::Queue;

pub(crate) struct Place {
    queue: Arc<Queue>,
    number: u32,
    /// Whether the queue gave its answer, after which the number is another's.
    answered: bool,
}

impl Place {
    pub(crate) fn new(queue: Arc<Queue>, number: u32) -> Self {
        Self { queue, number, answered: false }
    }

    /// Waits for the answer, for `limit` at most.
    pub(crate) async fn wait(mut self, limit: Option<Duration>) -> Result<Permit, Denied> {
        let Some(limit) = limit else { return poll_fn(|context| self.poll(context)).await };
        if let Ok(answer) = tokio::time::timeout(limit, poll_fn(|context| self.poll(context))).await {
            return answer;
        }
        self.answered = true;
        self.queue.give_up(self.number, limit)
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Permit, Denied>> {
        let answer = self.queue.look(self.number, context.waker());
        self.answered = answer.is_ready();
        answer
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.answered {
            self.queue.abandon(self.number);
        }
    }
}
