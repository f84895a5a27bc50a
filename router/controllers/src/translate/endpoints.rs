//! From a pod and a port to endpoints, one for each data-parallel rank.

use std::net::{IpAddr, SocketAddr};

use kvasir_core::{Address, EndpointId, EngineKind, Role};
use kvasir_state::PlanEndpoint;
use kvasir_state::plan::ObjectName;

use crate::objects::PodFacts;

/// What a target says about its pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// The port.
    pub(super) port: u16,
    /// The engine.
    pub(super) engine: EngineKind,
    /// The part in prefill/decode serving.
    pub(super) role: Role,
}

/// The endpoints of a pod: none before it has an address. They are known by the pod's name, so pods that share an
/// address, as those in the host's network do, stay apart.
pub(super) fn of_pod<'a>(
    name: &'a ObjectName,
    facts: &'a PodFacts,
    served: Served,
) -> impl Iterator<Item = PlanEndpoint> + 'a {
    let Served { port, engine, role } = served;
    let address = facts.ip.map(|ip| address(ip, port));
    let started_at = facts.started_at(port);
    address.into_iter().flat_map(move |address| {
        (0..facts.ranks.max(1)).map(move |rank| PlanEndpoint {
            id: EndpointId::new(name.namespace.clone(), name.name.clone(), port, rank),
            address: address.clone(),
            engine,
            role,
            // Every vLLM takes a rank by header; not every SGLang does.
            pin_rank: facts.ranks > 1 && facts.pin_ranks.unwrap_or(engine == EngineKind::Vllm),
            labels: facts.labels.clone(),
            started_at,
            ready: facts.ready,
        })
    })
}

fn address(ip: IpAddr, port: u16) -> Address {
    let socket = SocketAddr::new(ip, port);
    Address {
        authority: socket.to_string().into(),
        host: ip.to_string().into(),
        port,
        socket: Some(socket),
        path_prefix: "".into(),
        tls: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ContainerFacts;

    #[test]
    fn a_restart_beside_the_engine_makes_no_other_engine() {
        let container = |port: u16, at| ContainerFacts { ports: Box::new([port]), started_at: Some(at) };
        let name = ObjectName::new("n", "p");
        let engine = |proxy| {
            let facts = PodFacts {
                labels: [].into(),
                ranks: 2,
                pin_ranks: None,
                ip: Some(IpAddr::from([10, 0, 0, 1])),
                ready: true,
                gone: false,
                containers: Box::new([container(8000, 100), container(9000, proxy)]),
            };
            let served = Served { port: 8000, engine: EngineKind::Vllm, role: Role::Both };
            of_pod(&name, &facts, served).map(|endpoint| endpoint.started_at).collect::<Vec<_>>()
        };
        assert_eq!(engine(100), [Some(100), Some(100)]);
        assert_eq!(engine(200), engine(100));
    }

    #[test]
    fn ranks_are_pinned_where_the_engine_takes_it_or_the_pod_says_so() {
        let name = ObjectName::new("n", "p");
        for (engine, ranks, choice, pinned) in [
            (EngineKind::Vllm, 2, None, true),
            (EngineKind::Vllm, 2, Some(false), false),
            (EngineKind::Vllm, 1, Some(true), false),
            (EngineKind::Sglang, 2, None, false),
            (EngineKind::Sglang, 2, Some(true), true),
        ] {
            let facts = PodFacts {
                labels: [].into(),
                ranks,
                pin_ranks: choice,
                ip: Some(IpAddr::from([10, 0, 0, 1])),
                ready: true,
                gone: false,
                containers: Box::new([]),
            };
            let served = Served { port: 8000, engine, role: Role::Both };
            let made: Vec<bool> = of_pod(&name, &facts, served).map(|endpoint| endpoint.pin_rank).collect();
            assert_eq!(made, vec![pinned; ranks as usize], "{engine:?} {ranks} {choice:?}");
        }
    }

    #[test]
    fn an_address_is_what_its_url_would_be_read_as() {
        for (ip, url) in [
            ("10.0.0.1", "http://10.0.0.1:8000"),
            ("fd00::5", "http://[fd00::5]:8000"),
            ("::1", "http://[::1]:8000"),
        ] {
            let address = address(ip.parse().expect("an address"), 8000);
            assert_eq!(Ok(&address), Address::parse(url).as_ref());
            assert_eq!(address.url(), url);
        }
    }
}
