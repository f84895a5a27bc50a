//! From a generation request to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use kvasir_core::RequestKind;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Desk;
use super::body::{ReplyBody, event_stream, json};
use super::call::Call;
use super::chunks::{ChatChunks, CompletionChunks};
use super::events::{MessageEvents, ResponseEvents};
use super::failure::Failure;
use super::stream::{Format, stream};
use super::whole::{self, Heading, Spoken};
use crate::answer::Script;
use crate::config::Answer;
use crate::core::unix_seconds;
use crate::generation::{Generation, Order};
use crate::hash::Scope;

/// Serves one request of a kind that generates.
pub(crate) async fn answer(
    desk: &Arc<Desk>,
    kind: RequestKind,
    body: Bytes,
) -> Result<Response<ReplyBody>, Failure> {
    let call = Call::parse(&body)?;
    let (model, scope) = call.resolve(desk)?;
    let limit = call.limit()?;
    let prompts = call.prompts(desk, kind, &body).await?;
    if desk.core.is_full() {
        desk.core.metrics.rejected.add(1);
        return Err(Failure::busy());
    }
    let mut generations = Vec::with_capacity(prompts.len() * call.choices());
    for tokens in prompts {
        fits(desk, tokens.len())?;
        for _ in 1..call.choices() {
            generations.push(order(desk, &call, &scope, limit, tokens.clone(), generations.len()));
        }
        generations.push(order(desk, &call, &scope, limit, tokens, generations.len()));
    }
    let generations: Vec<Generation> =
        generations.into_iter().map(|order| Generation::new(Arc::clone(&desk.core), order)).collect();
    let heading = Heading {
        id: desk.core.answer_id(prefix(kind)),
        model,
        created: unix_seconds() as u64,
        tells_cached: desk.config.report_cached_tokens,
        version: desk.config.version(),
        choices: call.choices(),
    };
    if call.streams() {
        let usage = call.wants_usage();
        let format: Box<dyn Format> = match kind {
            RequestKind::Chat => Box::new(ChatChunks::new(&heading, usage)),
            RequestKind::Responses => Box::new(ResponseEvents::new(heading, Arc::clone(desk))),
            RequestKind::Messages => Box::new(MessageEvents::new(heading)),
            _ => Box::new(CompletionChunks::new(&heading, usage)),
        };
        return Ok(event_stream(stream(generations, call.choices(), format)));
    }
    let spoken = finish_all(generations).await;
    let answer = match kind {
        RequestKind::Chat => whole::chat(&heading, &spoken),
        RequestKind::Responses => whole::response(&heading, &spoken),
        RequestKind::Messages => whole::message(&heading, &spoken),
        _ => whole::completion(&heading, &spoken),
    };
    let answer = Bytes::from(answer.to_string());
    if kind == RequestKind::Responses {
        desk.store_response(heading.id, answer.clone());
    }
    Ok(json(StatusCode::OK, answer))
}

/// 400 for a prompt that leaves no room for an answer.
pub(crate) fn fits(desk: &Desk, prompt_tokens: usize) -> Result<(), Failure> {
    let most = desk.config.context_tokens();
    if prompt_tokens < most {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "This model's maximum context length is {most} tokens. However, your request has {prompt_tokens} input tokens."
    )))
}

async fn finish_all(generations: Vec<Generation>) -> Vec<Spoken> {
    futures_util::future::join_all(generations.into_iter().map(|mut generation| async move {
        generation.finish().await;
        Spoken::from(&generation)
    }))
    .await
}

fn order(
    desk: &Desk,
    call: &Call<'_>,
    scope: &Scope,
    limit: Option<usize>,
    tokens: Vec<u32>,
    choice: usize,
) -> Order {
    let natural = desk.config.answer_tokens;
    let length = match limit {
        Some(limit) if call.ignores_end() => limit,
        Some(limit) => limit.min(natural),
        None => natural,
    };
    let mut script = match desk.config.answer {
        Answer::Echo => Script::echo(&call.last_text(), limit.unwrap_or(usize::MAX)),
        Answer::Words => Script::words(
            answer_seed(desk.config.seed.wrapping_add(choice as u64), &tokens),
            length,
            limit == Some(length),
        ),
    };
    script.limit(desk.config.context_tokens() - tokens.len());
    Order { reads_cache: call.reads_cache(), uses_cache: true, scope: scope.clone(), tokens, script }
}

/// Equal prompts get equal answers. The last tokens are enough to tell most prompts apart.
fn answer_seed(seed: u64, tokens: &[u32]) -> u64 {
    let tail = tokens.get(tokens.len().saturating_sub(64)..).unwrap_or_default();
    let bytes: Vec<u8> = tail.iter().flat_map(|token| token.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, seed)
}

fn prefix(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Chat => "chatcmpl-",
        RequestKind::Responses => "resp_",
        RequestKind::Messages => "msg_",
        _ => "cmpl-",
    }
}
