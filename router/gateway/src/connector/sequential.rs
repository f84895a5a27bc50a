//! First the prompt, then the answer: the engines find the cache by themselves, or the first one says where it is.

use bytes::Bytes;
use kvasir_core::{ConnectorKind, Phase, Pick, PrefillPick};
use kvasir_settings::resolved::PdFallback;
use kvasir_wire::{body_for_decode, body_for_prefill};

use super::upstream::{self, Prefill, Prompt};
use super::{Answer, Exchange, Failure, Fault, Running, whole};
use crate::dispatch::answered;
use crate::leg::LegError;
use crate::outbound;
use crate::settle::Trail;

/// The member that hands the cache over.
const PARAMS: &str = "kv_transfer_params";

/// What a prefill engine is told: keep the blocks until another engine has fetched them. vLLM reads both with a default
/// for what is missing, so that the fields it fills in need not be there.
const KEEP: &[u8] = br#"{"do_remote_decode":true,"do_remote_prefill":false}"#;

/// Tries one pair, one after the other.
pub(super) async fn attempt<'g>(
    exchange: Exchange<'g, '_>,
    pick: &Pick,
    prefill: &PrefillPick,
    kind: ConnectorKind,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, Failure> {
    let Exchange { gateway, bound, placed } = exchange;
    let hands_over = kind.hands_over_params();
    let mut decoding = Running::begin(gateway, placed, pick.index, &pick.endpoint, Phase::Decode);
    let mut computing = Running::begin(gateway, placed, prefill.index, &prefill.endpoint, Phase::Prefill);
    decoding.predicted = computing.predicted;
    let wanted = hands_over.then(|| (PARAMS, Bytes::from_static(KEEP)));
    let body = body_for_prefill(exchange.shape(true), &bound.body, wanted.as_slice())
        .ok_or_else(|| Failure::of(&computing, LegError::Garbage))?;
    let header = outbound::header(gateway, bound, &prefill.endpoint, body.len())
        .map_err(|_| Failure::of(&computing, LegError::Garbage))?;
    trail.attempt_begun(&pick.endpoint);
    trail.prefill_begun(&prefill.endpoint);
    computing.sent(gateway.clock.now());
    let limit = bound.route.timeout;
    let told = upstream::prefill(gateway, bound.request.kind, limit, header, body, computing).await;
    trail.prefill_ended(&told);
    let (usage, transfer) = match told? {
        Prefill::Refused(mut refusal) => {
            refusal.edited = exchange.edited();
            return Ok(*refusal);
        }
        Prefill::Done { status, usage, transfer } => {
            answered(gateway, bound.request.model.as_str(), &prefill.endpoint, Phase::Prefill, status, trail);
            (usage, transfer)
        }
    };
    if hands_over && transfer.is_none() {
        if gateway.limits.pd_fallback == PdFallback::Aggregated {
            drop(decoding);
            trail.fell_back("no_transfer_params");
            return whole(exchange, pick.index, &pick.endpoint, trail).await;
        }
        let (endpoint, phase) = (prefill.endpoint.clone(), Phase::Prefill);
        return Err(Failure { endpoint, phase, what: Fault::NoTransferParams });
    }
    let handed = transfer.filter(|_| hands_over).map(|params| (PARAMS, params));
    let body = body_for_decode(&bound.body, handed.as_slice())
        .ok_or_else(|| Failure::of(&decoding, LegError::Garbage))?;
    decoding.sent(gateway.clock.now());
    trail.decode_begun();
    let prompt = Prompt::Elsewhere(usage.and_then(|usage| usage.cached_tokens));
    exchange.answer(decoding, body, prompt).await
}
