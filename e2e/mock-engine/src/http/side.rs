//! Everything beside inference: tokenize, models, health, metrics, and the orders for the mock itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use kvasir_core::{EngineKind, RequestKind, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use super::body::{ReplyBody, json as json_response, reply};
use super::call::{Call, encode, resolve_model};
use super::failure::Failure;
use crate::adapters::Adapters;
use crate::fault::{Fault, FaultOrder};
use crate::metrics::render;

/// Orders that end all connections wait so long, so that their own answer gets out.
const ANSWER_FIRST: Duration = Duration::from_millis(20);

/// Answers one request that does not run on the engine.
pub(crate) async fn answer(desk: &Arc<Desk>, head: &Parts, body: &Bytes) -> Response<ReplyBody> {
    let path = head.uri.path();
    let answered = match (&head.method, path) {
        (&Method::GET, "/health" | "/ping" | "/ready" | "/health_generate") => Ok(health(desk)),
        (&Method::GET, "/metrics") => Ok(metrics(desk)),
        (&Method::GET, "/v1/models") => Ok(ok(&models(desk))),
        (&Method::GET, "/version") => Ok(ok(&json!({ "version": desk.config.version() }))),
        // vLLM answers 0 under any load unless it is started with another flag.
        (&Method::GET, "/load") => Ok(ok(&json!({ "server_load": 0 }))),
        (&Method::GET, "/kv_event_sources") => {
            desk.event_sources.as_ref().map(ok).ok_or_else(Failure::no_such_path)
        }
        (&Method::GET, "/model_info" | "/get_model_info") if is_sglang(desk) => Ok(ok(&model_info(desk))),
        (&Method::GET, "/server_info" | "/get_server_info") if is_sglang(desk) => Ok(ok(&server_info(desk))),
        (_, "/flush_cache") if is_sglang(desk) => Ok(reset(desk)),
        (&Method::GET, path) if path.starts_with("/v1/responses/") => stored_response(desk, path),
        (&Method::POST, "/tokenize") => tokenize(desk, body).await,
        (&Method::POST, "/detokenize") => detokenize(desk, body),
        (&Method::POST, "/reset_prefix_cache") => Ok(reset(desk)),
        (&Method::POST, "/v1/load_lora_adapter") => change_adapter(desk, body, Adapters::add),
        (&Method::POST, "/v1/unload_lora_adapter") => change_adapter(desk, body, Adapters::remove),
        (&Method::POST, "/sleep") if !is_sglang(desk) => Ok(sleep(desk)),
        (&Method::POST, "/wake_up") if !is_sglang(desk) => Ok(wake_up(desk)),
        (&Method::GET, "/is_sleeping") if !is_sglang(desk) => {
            Ok(ok(&json!({ "is_sleeping": desk.core.is_asleep() })))
        }
        (&Method::POST, "/mock/fault") => order_fault(desk, body).await,
        (&Method::POST, "/mock/restart") => Ok(restart(desk)),
        (&Method::GET, "/mock/fault") => Ok(ok(&json!(desk.faults.current()))),
        (&Method::GET, "/mock/backlog") => Ok(ok(&json!(desk.core.backlog()))),
        _ => Err(Failure::no_such_path()),
    };
    answered.unwrap_or_else(Failure::into_response)
}

/// `/tokenize`.
pub(crate) async fn tokenize(desk: &Desk, body: &Bytes) -> Result<Response<ReplyBody>, Failure> {
    let ask: TokenizeAsk<'_> = serde_json::from_slice(body).map_err(|error| Failure::malformed(&error))?;
    resolve_model(desk, ask.model.as_deref())?;
    let kind = match (ask.prompt, ask.messages) {
        (_, Some(_)) => RequestKind::Chat,
        // vLLM takes one text here and no list.
        (Some(prompt), None) if prompt.get().starts_with('"') => RequestKind::Completions,
        _ => return Err(Failure::bad_request("prompt or messages is required")),
    };
    let ids = encode(desk, kind, body).await?;
    let strings = ask.return_token_strs.unwrap_or(false).then(|| {
        ids.iter()
            .map(|id| desk.config.tokenizer.decode(&[*id]).unwrap_or_else(|| format!("<{id}>")))
            .collect::<Vec<String>>()
    });
    let mut answer = json!({
        "count": ids.len(),
        "max_model_len": desk.config.context_tokens(),
        "tokens": ids,
    });
    if !is_sglang(desk) {
        answer["token_strs"] = json!(strings);
    }
    Ok(ok(&answer))
}

/// `/v1/messages/count_tokens`.
pub(crate) async fn count_tokens(desk: &Desk, body: &Bytes) -> Result<Response<ReplyBody>, Failure> {
    let call = Call::parse(body)?;
    call.resolve(desk)?;
    let prompts = call.prompts(desk, RequestKind::Messages, body).await?;
    Ok(ok(&json!({ "input_tokens": prompts.iter().map(Vec::len).sum::<usize>() })))
}

#[derive(Deserialize)]
struct TokenizeAsk<'a> {
    model: Option<String>,
    #[serde(borrow)]
    prompt: Option<&'a serde_json::value::RawValue>,
    #[serde(borrow)]
    messages: Option<&'a serde_json::value::RawValue>,
    return_token_strs: Option<bool>,
}

#[derive(Deserialize)]
struct DetokenizeAsk {
    model: Option<String>,
    tokens: Vec<u32>,
}

fn detokenize(desk: &Desk, body: &Bytes) -> Result<Response<ReplyBody>, Failure> {
    let ask: DetokenizeAsk = serde_json::from_slice(body).map_err(|error| Failure::malformed(&error))?;
    resolve_model(desk, ask.model.as_deref())?;
    let text = desk
        .config
        .tokenizer
        .decode(&ask.tokens)
        .ok_or_else(|| Failure::new(StatusCode::NOT_IMPLEMENTED, "this tokenizer does not decode"))?;
    Ok(ok(&if is_sglang(desk) { json!({ "text": text }) } else { json!({ "prompt": text }) }))
}

fn is_sglang(desk: &Desk) -> bool {
    desk.config.kind == EngineKind::Sglang
}

fn ok(value: &Value) -> Response<ReplyBody> {
    json_response(StatusCode::OK, value.to_string())
}

fn health(desk: &Desk) -> Response<ReplyBody> {
    let status =
        if desk.faults.current() == Fault::Dead { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    json_response(status, Bytes::new())
}

fn metrics(desk: &Desk) -> Response<ReplyBody> {
    let page = Bytes::from(render(&desk.core));
    reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", ReplyBody::Whole(Some(page)))
}

fn models(desk: &Desk) -> Value {
    let config = &desk.config;
    let owner = config.kind.as_str();
    let base = json!({
        "id": config.model,
        "object": "model",
        "created": desk.core.started,
        "owned_by": owner,
        "root": config.model,
        "parent": null,
        "max_model_len": config.context_tokens(),
        "permission": [],
    });
    let adapters = desk.core.adapters.served().into_iter().map(|name| {
        json!({
            "id": &*name,
            "object": "model",
            "created": desk.core.started,
            "owned_by": owner,
            "root": format!("adapters/{name}"),
            "parent": config.model,
            "max_model_len": null,
            "permission": [],
        })
    });
    json!({"object": "list", "data": std::iter::once(base).chain(adapters).collect::<Vec<Value>>()})
}

/// Adapters come and go while the engine runs (vLLM with `VLLM_ALLOW_RUNTIME_LORA_UPDATING`).
fn change_adapter(
    desk: &Desk,
    body: &Bytes,
    change: fn(&Adapters, &str) -> bool,
) -> Result<Response<ReplyBody>, Failure> {
    #[derive(Deserialize)]
    struct Ask {
        lora_name: String,
    }
    let ask: Ask = serde_json::from_slice(body).map_err(|error| Failure::malformed(&error))?;
    if change(&desk.core.adapters, &ask.lora_name) {
        Ok(ok(&json!({ "lora_name": ask.lora_name })))
    } else {
        Err(Failure::bad_request("the adapter is loaded already, or is not"))
    }
}

fn model_info(desk: &Desk) -> Value {
    json!({
        "model_path": desk.config.model,
        "served_model_name": desk.config.model,
        "tokenizer_path": desk.config.model,
        "is_generation": true,
        "disaggregation_mode": match desk.config.part.as_ref().map(|part| part.role) {
            Some(Role::Prefill) => "prefill",
            Some(Role::Decode) => "decode",
            _ => "null",
        },
        "has_image_understanding": false,
        "has_audio_understanding": false,
    })
}

fn server_info(desk: &Desk) -> Value {
    json!({
        "model_path": desk.config.model,
        "served_model_name": desk.config.model,
        "page_size": desk.config.block_size,
        "max_total_num_tokens": (desk.config.kv_blocks - 1) * desk.config.block_size,
        "version": desk.config.version(),
    })
}

/// vLLM answers 200 whether or not it could; it cannot while blocks are in use.
fn reset(desk: &Desk) -> Response<ReplyBody> {
    if !desk.core.state.lock().cache.reset() {
        tracing::warn!("the prefix cache was not reset: blocks are in use");
    }
    json_response(StatusCode::OK, Bytes::new())
}

fn sleep(desk: &Desk) -> Response<ReplyBody> {
    if !desk.core.sleep() {
        tracing::warn!("the engine does not fall asleep: blocks are in use");
    }
    json_response(StatusCode::OK, Bytes::new())
}

fn wake_up(desk: &Desk) -> Response<ReplyBody> {
    desk.core.wake_up();
    json_response(StatusCode::OK, Bytes::new())
}

fn stored_response(desk: &Desk, path: &str) -> Result<Response<ReplyBody>, Failure> {
    let id = path.trim_start_matches("/v1/responses/");
    let stored = desk.responses.lock();
    stored
        .iter()
        .find(|(stored, _)| stored == id)
        .map(|(_, answer)| json_response(StatusCode::OK, answer.clone()))
        .ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "no response with this id"))
}

fn restart(desk: &Desk) -> Response<ReplyBody> {
    let house = desk.house.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ANSWER_FIRST).await;
        if let Some(house) = house.upgrade()
            && let Err(error) = house.restart().await
        {
            tracing::error!(%error, "the mock engine did not restart");
        }
    });
    json_response(StatusCode::OK, Bytes::new())
}

async fn order_fault(desk: &Arc<Desk>, body: &Bytes) -> Result<Response<ReplyBody>, Failure> {
    let order: FaultOrder = serde_json::from_slice(body).map_err(|error| Failure::malformed(&error))?;
    let answer = ok(&json!(order));
    if order.fault.closes_connections() {
        let control = desk.control.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ANSWER_FIRST).await;
            control.set(order).await;
        });
    } else {
        desk.control.set(order).await;
    }
    Ok(answer)
}
