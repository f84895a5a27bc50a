//! The order in which those who wait go: one of two.

use std::time::Instant;

use crate::boost::BoostLine;
use crate::claim::{Claim, Ending};
use crate::fair::FairLine;
use crate::permit::Ask;
use crate::waiters::Waiters;

#[derive(Debug)]
pub(crate) enum Line {
    Fair(Box<FairLine>),
    Boost(BoostLine),
}

impl Line {
    /// What is kept of a request, which must enter or begin next.
    pub(crate) fn claim(&mut self, ask: &Ask<'_>, now: Instant) -> Claim {
        match self {
            Self::Fair(line) => line.claim(ask, now),
            Self::Boost(line) => line.claim(ask),
        }
    }

    /// The conversation of a request, where that matters.
    pub(crate) fn session_of(&self, ask: &Ask<'_>) -> Option<u64> {
        match self {
            Self::Fair(_) => None,
            Self::Boost(line) => line.session_of(ask),
        }
    }

    /// The conversation's request that has waited the longest.
    pub(crate) fn of_session(&self, session: u64) -> Option<u32> {
        match self {
            Self::Fair(_) => None,
            Self::Boost(line) => line.of_session(session),
        }
    }

    /// Whether somebody has waited for so long that nobody may go before.
    pub(crate) fn is_late(&self, waiters: &Waiters, now: Instant) -> bool {
        match self {
            Self::Fair(_) => false,
            Self::Boost(line) => line.late(waiters, now).is_some(),
        }
    }

    /// Who must go so that a newcomer may wait, when no more may.
    pub(crate) fn displaced_by(&self, ask: &Ask<'_>) -> Option<u32> {
        match self {
            Self::Fair(line) => line.displaced_by(ask),
            Self::Boost(_) => None,
        }
    }

    pub(crate) fn enter(&mut self, waiters: &mut Waiters, number: u32) {
        match self {
            Self::Fair(line) => line.enter(waiters, number),
            Self::Boost(line) => line.enter(waiters, number),
        }
    }

    pub(crate) fn leave(&mut self, waiters: &mut Waiters, number: u32) {
        match self {
            Self::Fair(line) => line.leave(waiters, number),
            Self::Boost(line) => line.leave(waiters, number),
        }
    }

    pub(crate) fn first(&mut self, waiters: &Waiters, now: Instant) -> Option<u32> {
        match self {
            Self::Fair(line) => line.first(waiters, now),
            Self::Boost(line) => line.first(waiters, now),
        }
    }

    pub(crate) fn begin(&mut self, claim: &mut Claim) {
        if let Self::Fair(line) = self {
            line.begin(claim);
        }
    }

    pub(crate) fn end(&mut self, claim: &Claim, ending: Ending, now: Instant) {
        match self {
            Self::Fair(line) => line.end(claim, ending, now),
            Self::Boost(line) => line.end(claim, ending),
        }
    }
}
