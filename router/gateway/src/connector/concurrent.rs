//! Prompt and answer at once: SGLang's engines meet in a bootstrap room, and the cache goes over as it is computed.

use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::connector::BOOTSTRAP_PORT;
use kvasir_core::{Endpoint, Phase, Pick, PrefillPick};
use kvasir_wire::{Addition, body_for_decode, body_for_prefill};

use super::upstream::{self, Late, Prefill, Prompt};
use super::{Answer, Exchange, Failure, Running};
use crate::buffers::HeldBytes;
use crate::dispatch::answered;
use crate::leg::LegError;
use crate::outbound;
use crate::settle::Trail;

/// A number that 1 to 16, 20, 24, 32, 48 and 64 divide, and so nearly every number of data-parallel ranks.
const RANK_STEP: u64 = 2_882_880;

/// Tries one pair, both at once. Whichever fails before the first piece of the answer ends the other.
pub(super) async fn attempt<'g>(
    exchange: Exchange<'g, '_>,
    pick: &Pick,
    prefill: &PrefillPick,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, Failure> {
    let Exchange { gateway, bound, placed } = exchange;
    let model = bound.request.model.as_str();
    let mut decoding = Running::begin(gateway, placed, pick.index, &pick.endpoint, Phase::Decode);
    let mut computing = Running::begin(gateway, placed, prefill.index, &prefill.endpoint, Phase::Prefill);
    decoding.predicted = computing.predicted;
    let meeting = meeting(&prefill.endpoint, room(&prefill.endpoint, &mut rand::rng()));
    let garbage = |running: &Running| Failure::of(running, LegError::Garbage);
    let prefill_body =
        body_for_prefill(exchange.shape(false), &bound.body, &meeting).ok_or_else(|| garbage(&computing))?;
    let body = body_for_decode(&bound.body, &meeting).ok_or_else(|| garbage(&decoding))?;
    let header = outbound::header(gateway, bound, &prefill.endpoint, prefill_body.len())
        .map_err(|_| garbage(&computing))?;
    trail.attempt_begun(&pick.endpoint);
    trail.prefill_begun(&prefill.endpoint);
    trail.decode_begun();
    let now = gateway.clock.now();
    computing.sent(now);
    decoding.sent(now);
    let (kind, limit) = (bound.request.kind, bound.route.timeout);
    let mut prefilling = Box::pin(upstream::prefill(gateway, kind, limit, header, prefill_body, computing));
    let answering = exchange.answer(decoding, body, Prompt::Unknown);
    tokio::pin!(answering);
    let told = tokio::select! {
        biased;
        told = &mut prefilling => told,
        answer = &mut answering => {
            return match answer {
                Ok(mut answer) if answer.header.status.is_success() => {
                    let endpoint = Arc::clone(&prefill.endpoint);
                    let (model, held) = (bound.request.model.clone(), HeldBytes::default());
                    let late = Late { prefill: prefilling, endpoint, model, held };
                    answer.prompt = Prompt::Pending(late);
                    Ok(answer)
                }
                // Without a decode nobody needs the prompt.
                other => {
                    trail.prefill_dropped();
                    other
                }
            };
        }
    };
    trail.prefill_ended(&told);
    if !matches!(told, Ok(Prefill::Done { .. })) {
        // It waits for a prompt that does not come, and is left with this try.
        trail.decode_dropped();
    }
    match told? {
        Prefill::Refused(mut refusal) => {
            refusal.edited = exchange.edited();
            Ok(*refusal)
        }
        Prefill::Done { status, usage, .. } => {
            answered(gateway, model, &prefill.endpoint, Phase::Prefill, status, trail);
            let mut answer = answering.await?;
            answer.prompt = Prompt::Elsewhere(usage.and_then(|usage| usage.cached_tokens));
            Ok(answer)
        }
    }
}

/// What both engines are told, so that they meet. SGLang joins host and port into an address, in its older versions
/// without a look at the host, so that an IPv6 address comes in brackets.
fn meeting(prefill: &Endpoint, room: u64) -> Vec<Addition> {
    let host = match &*prefill.address.host {
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let mut members = vec![
        ("bootstrap_room", Bytes::from(room.to_string())),
        ("bootstrap_host", Bytes::from(serde_json::Value::String(host).to_string())),
    ];
    let port = prefill.labels.get(BOOTSTRAP_PORT).and_then(|port| port.parse::<u16>().ok());
    members.extend(port.map(|port| ("bootstrap_port", Bytes::from(port.to_string()))));
    members
}

/// A number that no other request of the two engines has: 63 bits of chance. Where the prefill rank is pinned, the
/// number leads to it too: SGLang's decode engines look for a prompt at rank `room % ranks`.
fn room(prefill: &Endpoint, rng: &mut impl rand::Rng) -> u64 {
    let room = rng.next_u64() >> 1;
    if !prefill.pin_rank {
        return room;
    }
    (room / RANK_STEP).saturating_sub(1) * RANK_STEP + u64::from(prefill.id.rank)
}

#[cfg(test)]
mod tests {
    use kvasir_core::{Address, EndpointId, EngineKind, OwnerSlot, Role};
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn endpoint(url: &str, port: Option<&str>, rank: Option<u32>) -> Endpoint {
        Endpoint {
            id: EndpointId::new("ns", "p", 30000, rank.unwrap_or(0)),
            slot: OwnerSlot(0),
            address: Address::parse(url).unwrap(),
            engine: EngineKind::Sglang,
            role: Role::Prefill,
            model: "m".into(),
            pin_rank: rank.is_some(),
            adapters: Vec::new(),
            labels: port.map(|port| (BOOTSTRAP_PORT.to_owned(), port.to_owned())).into_iter().collect(),
            started_at: None,
        }
    }

    #[test]
    fn the_engines_are_told_where_they_meet() {
        for (url, port, expected) in [
            ("http://10.0.0.1:30000", None, "bootstrap_room:7 bootstrap_host:\"10.0.0.1\""),
            (
                "http://[fd00::1]:30000",
                Some("8999"),
                "bootstrap_room:7 bootstrap_host:\"[fd00::1]\" bootstrap_port:8999",
            ),
            ("http://prefill-0:30000", Some("many"), "bootstrap_room:7 bootstrap_host:\"prefill-0\""),
        ] {
            let members = meeting(&endpoint(url, port, None), 7);
            let text = |(name, value): &Addition| format!("{name}:{}", std::str::from_utf8(value).unwrap());
            assert_eq!(members.iter().map(text).collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn a_room_is_a_large_number_of_chance_that_leads_to_the_pinned_rank() {
        let mut rng = StdRng::seed_from_u64(1);
        let any = endpoint("http://10.0.0.1:30000", None, None);
        let rooms: std::collections::BTreeSet<u64> = (0..1000).map(|_| room(&any, &mut rng)).collect();
        assert_eq!(rooms.len(), 1000);
        assert!(rooms.iter().all(|room| *room < 1 << 63) && rooms.iter().any(|room| *room > 1 << 60));
        for ranks in (1..=16).chain([24, 32, 64]) {
            let pinned = endpoint("http://10.0.0.1:30000", None, Some(ranks - 1));
            let room = room(&pinned, &mut rng);
            assert!(room < 1 << 63);
            assert_eq!(room % u64::from(ranks), u64::from(ranks - 1), "{ranks} ranks");
        }
    }
}
