//! What is different in an answer whose prompt was computed elsewhere: its number of cached tokens.

use std::time::Duration;

use bytes::BytesMut;
use http::header;
use kvasir_core::RouterError;
use kvasir_wire::{MAX_EVENT_BYTES, correct_cached};
use pingora_core::protocols::http::ServerSession;

use super::next_piece;
use crate::Gateway;
use crate::buffers::HeldBytes;
use crate::connector::{Answer, Failure, Prefill, Prompt};
use crate::dispatch::{answered, failed};
use crate::settle::Trail;

/// How long after an answer's last piece its prompt's endpoint may take to say that it is done. It was done before the answer
/// began; only the word is on its way.
const LATEST_WORD: Duration = Duration::from_millis(100);

/// Takes the answer's body in, so that its number of cached tokens can be corrected before its length is told. With what
/// the body occupies when that was all of it: `answer.first` is then the whole. A body above [`MAX_EVENT_BYTES`], or one
/// for which there is no room now, is passed on as it is.
pub(super) async fn take_in(
    gateway: &Gateway,
    session: &mut ServerSession,
    answer: &mut Answer<'_>,
    trail: &mut Trail<'_>,
) -> Result<Option<HeldBytes>, RouterError> {
    let mut held = HeldBytes::default();
    let mut body = BytesMut::new();
    let mut next = answer.first.take();
    let mut whole = true;
    while let Some(chunk) = next {
        body.extend_from_slice(&chunk);
        whole = body.len() <= MAX_EVENT_BYTES && gateway.buffers.try_cover(&mut held, body.len());
        if !whole {
            break;
        }
        next = next_piece(gateway, session, answer, trail).await?;
    }
    if whole && answer.prompt.is_pending() {
        wait_for_prompt(gateway, answer, trail).await;
    }
    let mut body = body.freeze();
    if let (true, Some(cached)) = (whole, answer.prompt.cached()) {
        body = correct_cached(&body, cached);
        if answer.header.headers.contains_key(header::CONTENT_LENGTH) {
            let told = answer.header.insert_header(header::CONTENT_LENGTH, body.len().to_string());
            told.map_err(|_| kvasir_core::ErrorKind::BadUpstream)?;
        }
    }
    answer.first = (!body.is_empty()).then_some(body);
    Ok(whole.then_some(held))
}

/// Notes what the prompt's endpoint said while its answer was under way. A failure spoils nothing: where an answer comes,
/// its prompt was there.
pub(super) fn note_prompt(
    gateway: &Gateway,
    prompt: &mut Prompt<'_>,
    told: Result<Prefill<'_>, Failure>,
    trail: &mut Trail<'_>,
) {
    let Prompt::Pending(late) = std::mem::replace(prompt, Prompt::Unknown) else { return };
    trail.prefill_ended(&told);
    let phase = kvasir_core::Phase::Prefill;
    match told {
        Ok(Prefill::Done { status, usage, .. }) => {
            answered(gateway, late.model.as_str(), &late.endpoint, phase, status, trail);
            *prompt = Prompt::Elsewhere(usage.and_then(|usage| usage.cached_tokens));
        }
        Ok(Prefill::Refused(refusal)) => {
            let status = refusal.header.status.as_u16();
            answered(gateway, late.model.as_str(), &late.endpoint, phase, status, trail);
        }
        Err(failure) => {
            failed(gateway, late.model.as_str(), &failure, trail);
        }
    }
}

/// Waits for the word of the prompt's endpoint when the answer is here.
pub(super) async fn wait_for_prompt(gateway: &Gateway, answer: &mut Answer<'_>, trail: &mut Trail<'_>) {
    if let Ok(told) = tokio::time::timeout(LATEST_WORD, answer.prompt.reported()).await {
        note_prompt(gateway, &mut answer.prompt, told, trail);
    }
}
