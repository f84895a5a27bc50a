//! One request's way through its group: what it must bring, whom it meets, what it leaves.

use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use kvasir_core::{ConnectorKind, RequestKind, Role};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::rules::{self, Fields, HOST, ROOM, TRANSFER, refused};
use crate::fabric::{Exchanging, Parting, Seat};
use crate::hash::Scope;
use crate::http::{Desk, Failure};

/// Where vLLM's NIXL connector listens by default.
const SIDE_CHANNEL_PORT: u16 = 5600;

/// A request at an engine of a group.
#[derive(Debug)]
pub(crate) struct Turn {
    asked: Role,
    connector: ConnectorKind,
    prompt: u64,
    seat: Option<Seat>,
    /// `bootstrap_host` as it came.
    host: Option<String>,
    patience: Duration,
}

/// What of the prompt's KV cache came from another engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Nothing.
    Nothing,
    /// All but the last token; reported as cached.
    AllButLast,
    /// All; reported is what the other engine had cached.
    Told(usize),
}

impl Turn {
    /// Takes a request in, or says what is wrong with it. `None` where the engine plays no part.
    pub(crate) fn open(
        desk: &Desk,
        exchange: Option<&Exchanging>,
        kind: RequestKind,
        body: &[u8],
        prompts: &[Vec<u32>],
        scope: &Scope,
    ) -> Result<Option<Self>, Failure> {
        let (Some(part), Some(member)) = (&desk.config.part, &desk.member) else { return Ok(None) };
        let fields = Fields::read(body)?;
        let fabric = member.fabric();
        let (connector, patience) = (part.connector, part.patience);
        let asked = rules::asks_for(part, &fields);
        let prompt = number(prompts, scope);
        let room = fields.said(ROOM).and_then(Value::as_u64);
        if let Some(exchange) = exchange {
            exchange.is_about(asked, prompt, room);
        }
        let mut turn = Self { asked, connector, prompt, seat: None, host: None, patience };
        match asked {
            Role::Both => {}
            Role::Prefill => rules::check_prefill(part, kind, &fields)?,
            Role::Decode => match connector {
                ConnectorKind::Nixl | ConnectorKind::Mooncake => turn.take_params(desk, &fields)?,
                ConnectorKind::Http | ConnectorKind::Lmcache => {
                    let prefilled = !fabric.has(Role::Prefill) || fabric.take_computed(prompt);
                    if !prefilled && part.serves_whole {
                        turn.asked = Role::Both;
                        if let Some(exchange) = exchange {
                            exchange.is_about(Role::Both, prompt, room);
                        }
                    } else if !prefilled {
                        return Err(refused("prompt", "was prefilled by no engine of this group"));
                    }
                }
                ConnectorKind::Sglang => turn.host = Some(rules::host(&fields)?.to_owned()),
            },
        }
        if connector == ConnectorKind::Sglang && asked != Role::Both {
            let room = rules::room(&fields)?;
            let seat = fabric.enter(room, asked, desk.address.ip(), prompt);
            turn.seat = Some(seat.map_err(|why| refused(ROOM, why))?);
        }
        Ok(Some(turn))
    }

    fn take_params(&self, desk: &Desk, fields: &Fields) -> Result<(), Failure> {
        let params = fields.said(TRANSFER).filter(|params| params.is_object());
        let params =
            params.ok_or_else(|| refused(TRANSFER, "is required in a decode request, as an object"))?;
        match &desk.member {
            Some(member) if member.fabric().has(Role::Prefill) => {
                member.fabric().take(params, self.prompt).map_err(|why| refused(TRANSFER, why))
            }
            _ => {
                let complete =
                    params.get("remote_engine_id").is_some() && params.get("remote_block_ids").is_some();
                complete.then_some(()).ok_or_else(|| refused(TRANSFER, "has no remote engine or no blocks"))
            }
        }
    }

    /// Before the engine's own work: waits for the other side where there is one to wait for.
    pub(crate) async fn meet(&self, desk: &Desk) -> Result<Received, Failure> {
        let Some(seat) = &self.seat else {
            return Ok(match (self.asked, self.connector) {
                // Without a transfer the decode engine computes the prompt itself.
                (Role::Decode, ConnectorKind::Http) => Received::Nothing,
                (Role::Decode, _) => Received::AllButLast,
                _ => Received::Nothing,
            });
        };
        let awaited = if self.asked == Role::Prefill { Role::Decode } else { Role::Prefill };
        if !desk.member.as_ref().is_some_and(|member| member.fabric().has(awaited)) {
            let received = self.asked == Role::Decode;
            return Ok(if received { Received::Told(0) } else { Received::Nothing });
        }
        let other = seat.meet(self.patience).await.map_err(parted)?;
        if self.asked == Role::Prefill {
            return Ok(Received::Nothing);
        }
        // SGLang takes an IPv6 address with brackets and without.
        let host = self.host.as_deref().map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        if host.and_then(|host| host.parse::<IpAddr>().ok()) != Some(other) {
            return Err(refused(HOST, "is not the prefill engine's address"));
        }
        seat.receive().await.map(Received::Told).map_err(parted)
    }

    /// After the engine's own work: leaves what the other side needs, and gives what the answer must carry.
    pub(crate) async fn hand_over(
        &self,
        desk: &Desk,
        cached: usize,
        prompt_tokens: usize,
    ) -> Result<Option<Value>, Failure> {
        let (Role::Prefill, Some(member)) = (self.asked, &desk.member) else { return Ok(None) };
        match self.connector {
            ConnectorKind::Http | ConnectorKind::Lmcache => {
                member.fabric().computed(member, self.prompt);
                Ok(None)
            }
            ConnectorKind::Sglang => {
                if let Some(seat) = self.seat.as_ref().filter(|_| member.fabric().has(Role::Decode)) {
                    seat.hand_over(cached).await.map_err(parted)?;
                }
                Ok(None)
            }
            ConnectorKind::Nixl | ConnectorKind::Mooncake => {
                let (nonce, params) = params(desk, member.start(), prompt_tokens);
                member.fabric().give(member, self.prompt, nonce, params.clone());
                Ok(Some(params))
            }
        }
    }
}

impl Received {
    /// Cached tokens that sequence number `index` reports for a prompt of `tokens`.
    pub(crate) fn reported(self, index: usize, tokens: usize) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::AllButLast => Some(tokens.saturating_sub(1)),
            Self::Told(cached) => Some(if index == 0 { cached } else { 0 }),
        }
    }
}

/// What the decode engine must be handed, to the digit. The nonce is beyond what a double can hold.
fn params(desk: &Desk, start: u64, prompt_tokens: usize) -> (u64, Value) {
    let request = desk.core.next_id();
    let nonce =
        xxh3_64_with_seed(&request.to_le_bytes(), start << 16 | u64::from(desk.address.port())) | 1 << 63;
    let blocks = prompt_tokens.div_ceil(desk.config.block_size);
    let params = json!({
        "do_remote_prefill": true,
        "do_remote_decode": false,
        "remote_engine_id": format!("engine-{}-{start}", desk.address.port()),
        "remote_request_id": format!("cmpl-{request:016x}"),
        "remote_block_ids": (1..=blocks).collect::<Vec<usize>>(),
        "remote_host": desk.address.ip().to_string(),
        "remote_port": SIDE_CHANNEL_PORT,
        "tp_size": 1,
        "nonce": nonce,
    });
    (nonce, params)
}

/// One number for everything that decides whether two requests have the same prompt.
fn number(prompts: &[Vec<u32>], scope: &Scope) -> u64 {
    let mut hasher = Xxh3::new();
    for prompt in prompts {
        hasher.update(&prompt.len().to_le_bytes());
        for token in prompt {
            hasher.update(&token.to_le_bytes());
        }
    }
    for part in [&scope.adapter, &scope.salt] {
        let part = part.as_deref().unwrap_or_default();
        hasher.update(&part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.digest()
}

/// SGLang's 500 for a transfer that failed.
fn parted(how: Parting) -> Failure {
    let message = match how {
        Parting::Alone => "KVTransferError: nobody else came into the bootstrap room in time",
        Parting::Left => "KVTransferError: the other side left the bootstrap room",
    };
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
