//! The session-boost line: warm conversations first, the latest of them foremost; the others as they came.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::claim::{Claim, Ending};
use crate::permit::Ask;
use crate::sessions::Sessions;
use crate::waiters::Waiters;

#[derive(Debug)]
pub(crate) struct BoostLine {
    sessions: Sessions,
    ageing: Option<Duration>,
    /// Waiters whose conversation was warm when they came: latest answer first, then as they came.
    warm: BTreeSet<(Reverse<u64>, u64, u32)>,
    /// All waiters, as they came.
    everybody: BTreeSet<(u64, u32)>,
    /// Those that name a conversation, by it, as they came.
    conversations: BTreeSet<(u64, u64, u32)>,
}

impl BoostLine {
    pub(crate) fn new(most_sessions: usize, ageing: Option<Duration>) -> Self {
        Self {
            sessions: Sessions::new(most_sessions),
            ageing,
            warm: BTreeSet::new(),
            everybody: BTreeSet::new(),
            conversations: BTreeSet::new(),
        }
    }

    pub(crate) fn claim(&self, ask: &Ask<'_>) -> Claim {
        Claim {
            account: 0,
            prompt_tokens: ask.prompt_tokens,
            max_tokens: ask.max_tokens,
            session: self.session_of(ask),
            cost: 0,
        }
    }

    pub(crate) fn session_of(&self, ask: &Ask<'_>) -> Option<u64> {
        ask.session.filter(|session| !session.is_empty()).map(|session| self.sessions.key(session))
    }

    pub(crate) fn of_session(&self, session: u64) -> Option<u32> {
        let own = self.conversations.range((session, 0, 0)..=(session, u64::MAX, u32::MAX)).next();
        own.map(|(.., number)| *number)
    }

    /// A waiter joins. Whether its conversation is warm is looked up now, and stays.
    pub(crate) fn enter(&mut self, waiters: &mut Waiters, number: u32) {
        let Some(waiter) = waiters.get_mut(number) else { return };
        waiter.warm = waiter.claim.session.and_then(|session| self.sessions.warm(session));
        if let Some(answered) = waiter.warm {
            self.warm.insert((Reverse(answered), waiter.arrival, number));
        }
        self.everybody.insert((waiter.arrival, number));
        self.conversations.extend(waiter.claim.session.map(|session| (session, waiter.arrival, number)));
    }

    pub(crate) fn leave(&mut self, waiters: &Waiters, number: u32) {
        let Some(waiter) = waiters.get(number) else { return };
        self.everybody.remove(&(waiter.arrival, number));
        if let Some(session) = waiter.claim.session {
            self.conversations.remove(&(session, waiter.arrival, number));
        }
        if let Some(answered) = waiter.warm {
            self.warm.remove(&(Reverse(answered), waiter.arrival, number));
        }
    }

    /// Who goes next: whoever came first and has waited too long, else the warmest, else whoever came first.
    pub(crate) fn first(&self, waiters: &Waiters, now: Instant) -> Option<u32> {
        let warmest = || self.warm.first().map(|(_, _, number)| *number);
        let oldest = || self.everybody.first().map(|(_, number)| *number);
        self.late(waiters, now).or_else(warmest).or_else(oldest)
    }

    /// Whoever came first, where that one has waited too long.
    pub(crate) fn late(&self, waiters: &Waiters, now: Instant) -> Option<u32> {
        let &(_, oldest) = self.everybody.first()?;
        let waited = now.saturating_duration_since(waiters.get(oldest)?.since);
        self.ageing.is_some_and(|ageing| waited >= ageing).then_some(oldest)
    }

    /// A request has ended. With an answer its conversation is warm.
    pub(crate) fn end(&mut self, claim: &Claim, ending: Ending) {
        if let (Ending::Told { succeeded: true, .. }, Some(session)) = (ending, claim.session) {
            self.sessions.answered(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiters::Waiter;

    fn ask(session: Option<&str>) -> Ask<'_> {
        Ask { model: "m", user: None, session, prompt_tokens: 1, max_tokens: None }
    }

    /// The names in the order in which they go, when all have come at once and go after `waited`.
    fn drain(line: &mut BoostLine, came: &[Option<&'static str>], waited: Duration) -> Vec<u64> {
        let (mut waiters, now) = (Waiters::new(), Instant::now());
        for (arrival, session) in (0..).zip(came) {
            let number = waiters.insert(Waiter::new(line.claim(&ask(*session)), arrival, now));
            line.enter(&mut waiters, number);
        }
        let mut gone = Vec::new();
        while let Some(number) = line.first(&waiters, now + waited) {
            line.leave(&waiters, number);
            gone.extend(waiters.remove(number).map(|waiter| waiter.arrival));
        }
        gone
    }

    #[test]
    fn the_warmest_goes_first_then_as_they_came() {
        let mut line = BoostLine::new(10, Some(Duration::from_secs(10)));
        for session in ["a", "b", "c"] {
            let claim = line.claim(&ask(Some(session)));
            line.end(&claim, Ending::Told { usage: None, succeeded: session != "c" });
        }
        let came = [None, Some("new"), Some("a"), Some("b"), Some("c"), Some("b"), Some("")];
        assert_eq!(drain(&mut line, &came, Duration::ZERO), [3, 5, 2, 0, 1, 4, 6]);
        assert_eq!(
            drain(&mut line, &came, Duration::from_secs(10)),
            [0, 1, 2, 3, 4, 5, 6],
            "all waited too long"
        );
        line.ageing = None;
        assert_eq!(drain(&mut line, &came, Duration::from_secs(999)), [3, 5, 2, 0, 1, 4, 6]);
    }

    #[test]
    fn a_stream_of_warm_requests_does_not_starve_a_cold_one() {
        let mut line = BoostLine::new(10, Some(Duration::from_secs(10)));
        let warm = line.claim(&ask(Some("a")));
        line.end(&warm, Ending::Told { usage: None, succeeded: true });
        let (mut waiters, begun) = (Waiters::new(), Instant::now());
        let cold = waiters.insert(Waiter::new(line.claim(&ask(None)), 0, begun));
        line.enter(&mut waiters, cold);
        for second in 1..100 {
            let now = begun + Duration::from_secs(second);
            let number = waiters.insert(Waiter::new(warm, second, now));
            line.enter(&mut waiters, number);
            let first = line.first(&waiters, now).unwrap();
            line.leave(&waiters, first);
            waiters.remove(first);
            if first == cold {
                assert_eq!(second, 10);
                return;
            }
        }
        panic!("it starved");
    }
}
