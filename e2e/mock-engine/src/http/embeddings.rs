//! `/v1/embeddings`: prefill without the prefix cache.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use kvasir_core::RequestKind;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Desk;
use super::body::{ReplyBody, json as json_response};
use super::call::Call;
use super::failure::Failure;
use super::inference::fits;
use crate::answer::Script;
use crate::core::unix_seconds;
use crate::generation::{Generation, Order};

/// Numbers in one embedding: enough to look like one.
const DIMENSIONS: u64 = 8;

/// Serves one request.
pub(crate) async fn answer(desk: &Arc<Desk>, body: Bytes) -> Result<Response<ReplyBody>, Failure> {
    let call = Call::parse(&body)?;
    let (model, scope) = call.resolve(desk)?;
    let prompts = call.prompts(desk, RequestKind::Embeddings, &body).await?;
    for tokens in &prompts {
        fits(desk, tokens.len())?;
    }
    let total: usize = prompts.iter().map(Vec::len).sum();
    let data: Vec<Value> = prompts
        .iter()
        .enumerate()
        .map(|(index, tokens)| json!({"index": index, "object": "embedding", "embedding": embedding(tokens)}))
        .collect();
    let sequences = prompts.into_iter().map(|tokens| {
        let order = Order {
            tokens,
            scope: scope.clone(),
            reads_cache: false,
            uses_cache: false,
            received: None,
            script: Script::silent(),
        };
        let mut sequence = Generation::new(Arc::clone(&desk.core), order);
        async move { sequence.finish().await }
    });
    futures_util::future::join_all(sequences).await;
    let answer = json!({
        "id": desk.core.answer_id("embd-"),
        "object": "list",
        "created": unix_seconds() as u64,
        "model": model,
        "data": data,
        "usage": {
            "prompt_tokens": total,
            "total_tokens": total,
            "completion_tokens": 0,
            "prompt_tokens_details": null,
        },
    });
    Ok(json_response(StatusCode::OK, answer.to_string()))
}

/// Numbers from -1 to 1, the same for the same tokens.
fn embedding(tokens: &[u32]) -> Vec<f64> {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    (0..DIMENSIONS)
        .map(|dimension| xxh3_64_with_seed(&bytes, dimension) as f64 / u64::MAX as f64 * 2.0 - 1.0)
        .collect()
}
