//! What the bodies of both requests must look like.

use kvasir_core::{ConnectorKind, RequestKind, Role};
use serde_json::{Map, Value, json};

use super::Part;
use crate::http::Failure;

/// The hand-over's parameters: vLLM's connectors.
pub(super) const TRANSFER: &str = "kv_transfer_params";
/// Where two meet: SGLang.
pub(super) const ROOM: &str = "bootstrap_room";
/// Who prefills: SGLang.
pub(super) const HOST: &str = "bootstrap_host";

/// The members of a body.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn read(body: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(body).map(Self).map_err(|error| Failure::malformed(&error))
    }

    /// The member, `null` included.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The member, unless it is `null`.
    pub(super) fn said(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|value| !value.is_null())
    }

    fn transfer_flag(&self, name: &str) -> bool {
        self.said(TRANSFER).and_then(|params| params.get(name)) == Some(&Value::Bool(true))
    }
}

/// Which part of the work a request asks for; [`Role::Both`] is all of it.
pub(super) fn asks_for(part: &Part, fields: &Fields) -> Role {
    let says = match part.connector {
        // Nothing in these bodies tells; the group's book does.
        ConnectorKind::Http | ConnectorKind::Lmcache => return part.role,
        ConnectorKind::Nixl | ConnectorKind::Mooncake if fields.transfer_flag("do_remote_decode") => {
            Role::Prefill
        }
        ConnectorKind::Nixl | ConnectorKind::Mooncake if fields.said(TRANSFER).is_some() => Role::Decode,
        ConnectorKind::Sglang if fields.said(HOST).is_some() => Role::Decode,
        ConnectorKind::Sglang if fields.said(ROOM).is_some() => Role::Prefill,
        _ => Role::Both,
    };
    match part.role {
        Role::Both => says,
        Role::Decode if says == Role::Both && part.serves_whole => Role::Both,
        role => role,
    }
}

/// A prefill computes the prompt and one token, in one piece.
pub(super) fn check_prefill(part: &Part, kind: RequestKind, fields: &Fields) -> Result<(), Failure> {
    for name in ["stream", "stream_options"] {
        if fields.get(name).is_some() {
            return Err(refused(name, "must not be in a prefill request"));
        }
    }
    let limit = if kind == RequestKind::Responses { "max_output_tokens" } else { "max_tokens" };
    if fields.get(limit) != Some(&json!(1)) {
        return Err(refused(limit, "must be 1 in a prefill request"));
    }
    if fields.said("max_completion_tokens").is_some_and(|value| *value != json!(1)) {
        return Err(refused("max_completion_tokens", "must be 1 in a prefill request"));
    }
    for name in ["min_tokens", "n"] {
        // SGLang counts transfers by answers: both sides of a room must be asked for as many.
        let counts = name == "n" && part.connector == ConnectorKind::Sglang;
        if !counts && fields.said(name).is_some_and(|value| value.as_f64().is_none_or(|number| number > 1.0))
        {
            return Err(refused(name, "must be at most 1 in a prefill request"));
        }
    }
    let wanted = json!({"do_remote_decode": true, "do_remote_prefill": false});
    match part.connector {
        ConnectorKind::Nixl | ConnectorKind::Mooncake if fields.get(TRANSFER) != Some(&wanted) => {
            Err(refused(
                TRANSFER,
                "must be do_remote_decode: true and do_remote_prefill: false in a prefill request, and nothing else",
            ))
        }
        _ => Ok(()),
    }
}

/// The room, which is a number below 2^63.
pub(super) fn room(fields: &Fields) -> Result<u64, Failure> {
    let room = fields.said(ROOM).ok_or_else(|| refused(ROOM, "is required"))?;
    room.as_u64()
        .filter(|room| *room < 1 << 63)
        .ok_or_else(|| refused(ROOM, "must be a whole number of at least 0, below 2^63"))
}

/// The host, as it is written.
pub(super) fn host(fields: &Fields) -> Result<&str, Failure> {
    let host = fields.said(HOST).and_then(Value::as_str);
    host.ok_or_else(|| refused(HOST, "is required in a decode request, as text"))
}

/// 400 that names the field.
pub(super) fn refused(name: &'static str, why: &str) -> Failure {
    Failure::field(name, format!("{name} {why}"))
}
