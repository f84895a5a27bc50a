//! Who of a model's endpoints prefills and who decodes, checked as a whole.

use std::collections::BTreeMap;

use kvasir_core::{ConnectorKind, EngineKind, Role};

use crate::problems::{Findings, Located};
use crate::raw::models::{Endpoint, Model};
use crate::suggest;

/// The part of one endpoint.
pub(super) fn role(endpoint: &Endpoint, findings: &mut Findings) -> Role {
    let Some(said) = &endpoint.role else { return Role::Both };
    match said.value.as_str() {
        "prefill" => Role::Prefill,
        "decode" => Role::Decode,
        other => {
            unknown(said, "role", other, &["prefill", "decode"], findings);
            Role::Both
        }
    }
}

/// How the KV cache moves between the endpoints of `model`; `None` where every endpoint does all. What does not fit
/// together is noted.
pub(super) fn connector(model: &Model, engine: EngineKind, findings: &mut Findings) -> Option<ConnectorKind> {
    let apart = model.endpoints.iter().any(|endpoint| endpoint.role.is_some());
    let said = model.connector.as_ref().and_then(|said| named(said, findings));
    if !apart {
        let of_endpoints = model.endpoints.iter().flat_map(|endpoint| {
            let group = endpoint.group.as_ref().map(|group| &group.place);
            group.into_iter().chain(endpoint.bootstrap_port.as_ref().map(|port| &port.place))
        });
        for place in model.connector.iter().map(|said| &said.place).chain(of_endpoints) {
            let fix = "give each endpoint role: prefill or role: decode, or remove it";
            findings.error(place, "has no effect: no endpoint of the model has a role", fix);
        }
        return None;
    }
    check_parts(model, findings);
    let kind = match said {
        Some(kind) => fitting(model, kind, engine, findings),
        None => implied(model, engine, findings),
    };
    for endpoint in &model.endpoints {
        let prefills = endpoint.role.as_ref().is_some_and(|role| role.value == "prefill");
        if let Some(port) = &endpoint.bootstrap_port
            && !(prefills && kind == ConnectorKind::Sglang)
        {
            let message = format!(
                "has no effect: only SGLang's prefill endpoints have one, and the connector is {kind}"
            );
            findings.error(&port.place, message, "remove it, or correct role and connector");
        }
    }
    Some(kind)
}

fn named(said: &Located<String>, findings: &mut Findings) -> Option<ConnectorKind> {
    let found = ConnectorKind::ALL.into_iter().find(|kind| kind.as_str() == said.value);
    if found.is_none() {
        unknown(said, "connector", &said.value, &ConnectorKind::ALL.map(ConnectorKind::as_str), findings);
    }
    found
}

/// What an engine does that nobody wrote a connector for.
fn implied(model: &Model, engine: EngineKind, findings: &mut Findings) -> ConnectorKind {
    if engine == EngineKind::Sglang {
        return ConnectorKind::Sglang;
    }
    // One that was misspelled has been noted already.
    if model.connector.is_none() {
        let message = "has prefill and decode endpoints and no connector: http is used, which asks the engines for no \
                       KV transfer; write connector: with what the engines have";
        findings.warn(&model.name.place, message);
    }
    ConnectorKind::Http
}

fn fitting(model: &Model, kind: ConnectorKind, engine: EngineKind, findings: &mut Findings) -> ConnectorKind {
    let Some(said) = &model.connector else { return kind };
    match (kind, engine) {
        (ConnectorKind::Sglang, EngineKind::Vllm) => {
            let fix = "write engine: sglang, or the connector that the vLLM engines have";
            findings.error(&said.place, "sglang is a way of SGLang's alone, and the engine is vllm", fix);
        }
        (kind, EngineKind::Sglang) if kind != ConnectorKind::Sglang => {
            let message = format!(
                "{kind} takes the place of SGLang's own way, in which both endpoints are called at once; remove it, \
                 whatever transfer backend the engines have"
            );
            findings.warn(&said.place, message);
        }
        _ => {}
    }
    kind
}

/// Which parts one group has.
#[derive(Default)]
struct Parts<'m> {
    prefill: Option<&'m Endpoint>,
    decode: Option<&'m Endpoint>,
}

/// Everybody has a part and, where there are groups, a group; every group has both parts.
fn check_parts(model: &Model, findings: &mut Findings) {
    let grouped = model.endpoints.iter().any(|endpoint| endpoint.group.is_some());
    let mut groups: BTreeMap<&str, Parts<'_>> = BTreeMap::new();
    let mut sure = true;
    for endpoint in &model.endpoints {
        let group = endpoint.group.as_ref().map_or("", |group| group.value.as_str());
        let parts = groups.entry(group).or_default();
        match endpoint.role.as_ref().map(|role| role.value.as_str()) {
            Some("prefill") => parts.prefill = parts.prefill.or(Some(endpoint)),
            Some("decode") => parts.decode = parts.decode.or(Some(endpoint)),
            // Noted already, and it may be what the group lacks.
            Some(_) => sure = false,
            None => {
                sure = false;
                let fix = "write role: prefill or role: decode";
                findings.error(&endpoint.url.place, "has no role, unlike other endpoints of the model", fix);
            }
        }
        if grouped && endpoint.group.is_none() {
            sure = false;
            let fix = "write group: with the name of its group";
            findings.error(&endpoint.url.place, "has no group, unlike other endpoints of the model", fix);
        }
    }
    for (name, parts) in groups.into_iter().filter(|_| sure) {
        let (has, lacks, one) = match (parts.prefill, parts.decode) {
            (Some(one), None) => ("prefill", "decode", one),
            (None, Some(one)) => ("decode", "prefill", one),
            _ => continue,
        };
        let whose = if grouped { format!("the group {name:?}") } else { "the model".to_owned() };
        let place = one.role.as_ref().map_or(&one.url.place, |role| &role.place);
        let fix = format!("add an endpoint with role: {lacks}{}", if grouped { " to the group" } else { "" });
        findings.error(place, format!("{whose} can {has} and not {lacks}"), fix);
    }
}

fn unknown(said: &Located<String>, what: &str, other: &str, known: &[&str], findings: &mut Findings) {
    let fix = match suggest::closest(other, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("known: {}", known.join(", ")),
    };
    findings.error(&said.place, format!("there is no {what} {other:?}"), fix);
}
