//! One request to one endpoint, and a prefill endpoint's answer read to its end.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{Endpoint, ModelName, RequestKind, Usage};
use kvasir_wire::BodyTap;
use pingora_http::{RequestHeader, ResponseHeader};

use super::{Answer, Failure, Running};
use crate::Gateway;
use crate::buffers::HeldBytes;
use crate::leg::{Leg, LegError};

/// Longest answer that is read of a prefill engine. One token and its log probabilities are a few hundred bytes; those of
/// a long prompt, which some clients ask for, are megabytes.
const MOST_PREFILL_BYTES: usize = 64 << 20;

/// Sends one request and waits for the first piece of its answer's body.
pub(super) async fn ask(
    gateway: &Gateway,
    endpoint: &Endpoint,
    limit: Option<Duration>,
    header: RequestHeader,
    body: Bytes,
) -> Result<(ResponseHeader, Option<Bytes>, Leg), LegError> {
    let first = gateway.connections.send(endpoint, limit, header.clone(), body.clone(), false);
    let mut leg = match first.await {
        // A pooled connection that the engine had just closed: it never saw the request. A fresh connection tells;
        // when that one cannot be made, the engine itself has died, perhaps of this request.
        Err(LegError::Died { reused: true }) => {
            match gateway.connections.send(endpoint, limit, header, body, true).await {
                Err(LegError::Connect) => return Err(LegError::Died { reused: true }),
                other => other?,
            }
        }
        other => other?,
    };
    let answer_header = leg.header().cloned().ok_or(LegError::Garbage)?;
    match leg.chunk().await {
        Ok(first) => Ok((answer_header, first, leg)),
        Err(LegError::Broken) => Err(LegError::Died { reused: false }),
        Err(error) => Err(error),
    }
}

/// What a prefill endpoint answered.
#[derive(Debug)]
pub(crate) enum Prefill<'g> {
    /// The prompt is computed.
    Done {
        /// The good status that says so.
        status: u16,
        /// What it used, as the engine says.
        usage: Option<Usage>,
        /// Where the prompt's cache is, as the engine writes it.
        transfer: Option<Bytes>,
    },
    /// It is not, and the engine says why.
    Refused(Box<Answer<'g>>),
}

/// Sends the prompt to a prefill endpoint, and reads its answer to the end.
pub(super) async fn prefill<'g>(
    gateway: &'g Gateway,
    kind: RequestKind,
    limit: Option<Duration>,
    header: RequestHeader,
    body: Bytes,
    mut running: Running,
) -> Result<Prefill<'g>, Failure> {
    let asked = ask(gateway, &running.endpoint, limit, header, body).await;
    let (header, mut next, mut leg) = asked.map_err(|error| Failure::of(&running, error))?;
    let status = header.status;
    if !status.is_success() {
        let refusal = Answer { header, first: next, leg, running, edited: None, prompt: Prompt::Here };
        return Ok(Prefill::Refused(Box::new(refusal)));
    }
    let mut tap = BodyTap::of_prefill(kind);
    let mut read = 0;
    while let Some(chunk) = next {
        read += chunk.len();
        if read > MOST_PREFILL_BYTES {
            return Err(Failure::of(&running, LegError::Garbage));
        }
        tap.push(&chunk);
        next = match leg.chunk().await {
            Err(LegError::Broken) => return Err(Failure::of(&running, LegError::Died { reused: false })),
            other => other.map_err(|error| Failure::of(&running, error))?,
        };
    }
    leg.release().await;
    let usage = tap.finish();
    // Its answer is no stream, so that its end is the first byte.
    running.first_byte(gateway.clock.now(), true);
    running.completed(usage.as_ref());
    Ok(Prefill::Done { status: status.as_u16(), usage, transfer: tap.transfer() })
}

/// Who computed the prompt of an answer.
#[derive(Debug)]
pub(crate) enum Prompt<'g> {
    /// The endpoint that answers.
    Here,
    /// Another endpoint, which reports these tokens as found in its cache.
    Elsewhere(Option<u64>),
    /// Another endpoint, which has not reported yet.
    Pending(Late<'g>),
    /// Another endpoint; it failed after the answer had begun, or never reported.
    Unknown,
}

/// A prefill that is still under way while its answer is relayed. Dropping it closes its connection.
pub(crate) struct Late<'g> {
    pub(super) prefill: Pin<Box<dyn Future<Output = Result<Prefill<'g>, Failure>> + Send + 'g>>,
    /// Which endpoint it runs at.
    pub endpoint: std::sync::Arc<Endpoint>,
    /// For the metrics.
    pub model: ModelName,
    /// What its body occupies.
    pub held: HeldBytes,
}

impl<'g> Prompt<'g> {
    /// Whether another endpoint computed it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !matches!(self, Self::Here)
    }

    /// Whether its endpoint has not reported yet.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_))
    }

    /// Waits for the report; for ever where none is to come. May be dropped and called again.
    pub(crate) async fn reported(&mut self) -> Result<Prefill<'g>, Failure> {
        match self {
            Self::Pending(late) => late.prefill.as_mut().await,
            _ => std::future::pending().await,
        }
    }

    /// The number of cached tokens, as far as it is known by now, that takes the place of the answer's own; `None` where
    /// that one is true. The endpoint that only decodes finds in its cache what was just brought there.
    pub(crate) fn cached(&self) -> Option<Option<u64>> {
        match self {
            Self::Here => None,
            Self::Elsewhere(cached) => Some(*cached),
            Self::Pending(_) | Self::Unknown => Some(None),
        }
    }

    /// Usage as it is true.
    pub(crate) fn correct(&self, usage: Usage) -> Usage {
        match self.cached() {
            None => usage,
            Some(cached_tokens) => Usage { cached_tokens, ..usage },
        }
    }
}

impl fmt::Debug for Late<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").field("endpoint", &self.endpoint.id).finish_non_exhaustive()
    }
}
