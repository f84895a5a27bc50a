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
