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
use super::whole::{self, Heading, Spoken, total};
use crate::answer::Script;
use crate::config::Answer;
use crate::core::unix_seconds;
use crate::fabric::Exchanging;
use crate::generation::{Generation, Order};
use crate::hash::Scope;
use crate::part::{Received, Turn};

/// Serves one request of a kind that generates.
pub(crate) async fn answer(
    desk: &Arc<Desk>,
    kind: RequestKind,
    body: Bytes,
    exchange: Option<&Exchanging>,
) -> Result<Response<ReplyBody>, Failure> {
    let call = Call::parse(&body)?;
    let (model, scope) = call.resolve(desk)?;
    let limit = call.limit()?;
    let prompts = call.prompts(desk, kind, &body).await?;
    if desk.core.is_full() {
        desk.core.metrics.rejected.add(1);
        return Err(Failure::busy());
    }
    let turn = Turn::open(desk, exchange, kind, &body, &prompts, &scope)?;
    let received = match &turn {
        Some(turn) => turn.meet(desk).await?,
        None => Received::Nothing,
    };
    let generations: Vec<Generation> = orders(desk, &call, &scope, limit, prompts, received)?
        .into_iter()
        .map(|order| Generation::new(Arc::clone(&desk.core), order))
        .collect();
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
    let mut answer = match kind {
        RequestKind::Chat => whole::chat(&heading, &spoken),
        RequestKind::Responses => whole::response(&heading, &spoken),
        RequestKind::Messages => whole::message(&heading, &spoken),
        _ => whole::completion(&heading, &spoken),
    };
    if let Some(turn) = &turn {
        let count = total(spoken.iter().map(|one| one.count), call.choices());
        if let Some(params) = turn.hand_over(desk, count.cached, count.prompt).await? {
            answer["kv_transfer_params"] = params;
        }
    }
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

/// The sequences of a request: those of one prompt stand together.
fn orders(
    desk: &Desk,
    call: &Call<'_>,
    scope: &Scope,
    limit: Option<usize>,
    prompts: Vec<Vec<u32>>,
    received: Received,
) -> Result<Vec<Order>, Failure> {
    let mut orders = Vec::with_capacity(prompts.len() * call.choices());
    for (index, tokens) in prompts.into_iter().enumerate() {
        fits(desk, tokens.len())?;
        let received = received.reported(index, tokens.len());
        for _ in 0..call.choices() {
            let mut order = order(desk, call, scope, limit, tokens.clone(), orders.len());
            order.received = received;
            orders.push(order);
        }
    }
    Ok(orders)
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
    let (reads_cache, uses_cache, received) = (call.reads_cache(), true, None);
    Order { reads_cache, uses_cache, received, scope: scope.clone(), tokens, script }
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
