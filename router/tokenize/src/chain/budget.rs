//! How long the sources of one request may take: the remote ones together, and the local one by itself.

use std::time::Duration;

use crate::remote;

/// Longest wait for the local tokenizer, queue included. The work goes on after it, for the next turn of the
/// conversation. A little less than what all gathering has, so that hashing and looking up still follow.
pub const LOCAL_BUDGET: Duration = Duration::from_millis(250);

/// What all remote calls of one request may take together when no deadline is set.
pub const REMOTE_DEADLINE: Duration = Duration::from_millis(50);

/// A call with less time than this cannot succeed and would only put the blame on its source.
const LEAST_CALL: Duration = Duration::from_millis(1);

/// The same for what other sources left of the time when no deadline is set: half of what a short prompt's call has.
const LEAST_REMAINDER: Duration = Duration::from_millis(5);

/// What the remote sources of one request may still spend.
///
/// Without a deadline that was set, each call has a tenth of the estimated prefill time ([`remote::budget`]), and all
/// together [`REMOTE_DEADLINE`], or one call's time where that is more: a wait that long is lost in such a prefill. With
/// one, it is all there is, and the sources that have not been asked yet share what is left of it.
#[derive(Clone, Debug)]
pub struct RemoteTime {
    left: Duration,
    call: Option<Duration>,
    sources: u32,
}

impl RemoteTime {
    /// For a body of so many bytes and as many remote sources as may be asked.
    pub fn new(deadline: Option<Duration>, body_bytes: usize, sources: u32) -> Self {
        match deadline {
            Some(left) => Self { left, call: None, sources },
            None => {
                let call = remote::budget(body_bytes);
                Self { left: call.max(REMOTE_DEADLINE), call: Some(call), sources }
            }
        }
    }

    /// The time of the next source; none when too little is left for a call.
    pub fn next(&mut self) -> Option<Duration> {
        let (share, least) = match self.call {
            Some(call) => (call.min(self.left), LEAST_REMAINDER),
            None => (self.left / self.sources.max(1), LEAST_CALL),
        };
        self.sources = self.sources.saturating_sub(1);
        (share >= least).then_some(share)
    }

    /// Takes off what a source took.
    pub fn spend(&mut self, took: Duration) {
        self.left = self.left.saturating_sub(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Asks each source until its time is over: the time each had.
    fn all_hang(mut time: RemoteTime, sources: usize) -> Vec<Option<Duration>> {
        let mut asked = Vec::new();
        for _ in 0..sources {
            let had = time.next();
            time.spend(had.unwrap_or_default());
            asked.push(had);
        }
        asked
    }

    #[test]
    fn short_prompts_have_short_calls_and_long_ones_no_more_than_one_long_call() {
        let hang = |bytes| all_hang(RemoteTime::new(None, bytes, 2), 2);
        assert_eq!(hang(1_000), [Some(ms(10)), Some(ms(10))]);
        assert_eq!(hang(12_000), [Some(ms(30)), Some(ms(20))], "50 ms together");
        assert_eq!(hang(1 << 20), [Some(ms(250)), None]);
    }

    #[test]
    fn a_remainder_in_which_nobody_could_answer_is_given_to_nobody() {
        let after = |spent| {
            let mut time = RemoteTime::new(None, 1_000, 3);
            time.spend(ms(spent));
            time.next()
        };
        assert_eq!((after(45), after(46)), (Some(ms(5)), None));
    }

    #[test]
    fn a_deadline_that_was_set_is_shared() {
        let time = |sources| RemoteTime::new(Some(ms(90)), 1 << 20, sources);
        assert_eq!(all_hang(time(1), 1), [Some(ms(90))]);
        assert_eq!(all_hang(time(2), 2), [Some(ms(45)), Some(ms(45))]);
        let mut quick = time(2);
        assert_eq!(quick.next(), Some(ms(45)));
        quick.spend(ms(2));
        assert_eq!(quick.next(), Some(ms(88)), "what the first left over");
        assert_eq!(all_hang(RemoteTime::new(Some(Duration::ZERO), 1, 1), 1), [None]);
    }
}
