//! One try at one pick: a whole request at one endpoint, or its prompt at one and its answer from another.

mod concurrent;
mod running;
mod sequential;
mod upstream;

use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{ConnectorKind, Endpoint, Phase, Pick};
use kvasir_state::Resolved;
use kvasir_wire::PrefillShape;
use pingora_http::ResponseHeader;

use crate::leg::{Leg, LegError};
use crate::place::Placed;
use crate::resolve::Bound;
use crate::settle::Trail;
use crate::{Gateway, outbound};

pub(crate) use running::Running;
pub(crate) use upstream::{Prefill, Prompt};

/// What all tries of one request share.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'g, 'r> {
    pub gateway: &'g Gateway,
    pub bound: &'r Bound,
    pub placed: &'r Placed,
}

/// An answer whose first piece is here, so that nothing can be retried any more.
#[derive(Debug)]
pub(crate) struct Answer<'g> {
    /// The answer's header.
    pub header: ResponseHeader,
    /// The first piece of the body, `None` when it has none.
    pub first: Option<Bytes>,
    /// For the rest.
    pub leg: Leg,
    /// The attempt's place at the endpoint.
    pub running: Running,
    /// The route, where it changes the answer.
    pub edited: Option<Resolved>,
    /// Who computed the prompt.
    pub prompt: Prompt<'g>,
}

/// Why a try gave no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whose failure it is.
    pub endpoint: Arc<Endpoint>,
    /// What that endpoint was asked for.
    pub phase: Phase,
    /// What happened.
    pub what: Fault,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The exchange failed.
    Leg(LegError),
    /// The prefill engine answered well, but did not say where the prompt's cache is.
    NoTransferParams,
}

impl Failure {
    fn of(running: &Running, error: LegError) -> Self {
        Self { endpoint: Arc::clone(&running.endpoint), phase: running.phase, what: Fault::Leg(error) }
    }
}

/// Tries `pick` once, up to the first piece of an answer's body: until then another one may take over. The answer may be
/// the prefill engine's, where that one refuses.
pub(crate) async fn attempt<'g>(
    exchange: Exchange<'g, '_>,
    pick: &Pick,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, Failure> {
    let split = exchange.bound.route.target.disaggregation.as_ref();
    match (&pick.prefill, split.map(|split| split.connector)) {
        (Some(prefill), Some(ConnectorKind::Sglang)) => {
            concurrent::attempt(exchange, pick, prefill, trail).await
        }
        (Some(prefill), Some(kind)) => sequential::attempt(exchange, pick, prefill, kind, trail).await,
        _ => whole(exchange, pick.index, &pick.endpoint, trail).await,
    }
}

/// All of the request at one endpoint.
async fn whole<'g>(
    exchange: Exchange<'g, '_>,
    index: usize,
    endpoint: &Arc<Endpoint>,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, Failure> {
    let Exchange { gateway, bound, placed } = exchange;
    let mut running = Running::begin(gateway, placed, index, endpoint, Phase::Whole);
    running.sent(gateway.clock.now());
    trail.attempt_begun(endpoint);
    exchange.answer(running, bound.body.clone(), Prompt::Here).await
}

impl<'g> Exchange<'g, '_> {
    /// Asks the endpoint of `running` for the answer that the client gets.
    async fn answer(
        self,
        mut running: Running,
        body: Bytes,
        prompt: Prompt<'g>,
    ) -> Result<Answer<'g>, Failure> {
        let Self { gateway, bound, .. } = self;
        let header = outbound::header(gateway, bound, &running.endpoint, body.len())
            .map_err(|_| Failure::of(&running, LegError::Garbage))?;
        let asked = upstream::ask(gateway, &running.endpoint, bound.route.timeout, header, body).await;
        let (header, first, leg) = asked.map_err(|error| Failure::of(&running, error))?;
        running.first_byte(gateway.clock.now(), header.status.is_success());
        Ok(Answer { header, first, leg, running, edited: self.edited(), prompt })
    }

    fn edited(self) -> Option<Resolved> {
        let route = &self.bound.route;
        route.edits.as_ref().is_some_and(|edits| !edits.response.is_empty()).then(|| route.clone())
    }

    /// How the prefill endpoint is asked.
    fn shape(self, one_sample: bool) -> PrefillShape {
        PrefillShape { kind: self.bound.request.kind, one_sample }
    }
}

#[cfg(test)]
mod tests;
