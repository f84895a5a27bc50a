//! A large cluster: thousands of pods and routes, one listener that plays all their engines, changes at a rate, and
//! requests meanwhile, each of which is judged by what the cluster said at its time.

mod asking;
mod changes;
mod fleet;
mod hosts;
mod load;
mod objects;
mod truth;

pub use asking::{Line, Told};
pub use changes::{Changes, Made};
pub use fleet::Fleet;
pub use hosts::Hosts;
pub use load::{Heard, Load};
pub use truth::{GRACE, Truth};

use std::net::Ipv4Addr;

/// How large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// ModelServers, at most 10,000.
    pub servers: usize,
    /// Pods of each, at most 100.
    pub pods_each: usize,
    /// ModelRoutes; each has one ModelServer as its target.
    pub routes: usize,
    /// The first so many routes are asked, and their targets are among the first twice as many servers, so that changes
    /// and requests meet.
    pub hot: usize,
}

impl Size {
    /// All pods.
    pub fn pods(&self) -> usize {
        self.servers * self.pods_each
    }

    /// The servers that hot routes have as targets.
    pub fn hot_servers(&self) -> usize {
        (2 * self.hot).min(self.servers)
    }

    /// Where a route points at first.
    pub fn first_target(&self, route: usize) -> usize {
        if route < self.hot { route % self.hot_servers().max(1) } else { route % self.servers.max(1) }
    }
}

/// A pod: the server that selects it, and its number there. Its name and its address say both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodNumber {
    /// Whose.
    pub server: usize,
    /// Which of them, from 0.
    pub number: usize,
}

/// Servers whose pods share the second number of their addresses.
const BLOCK: usize = 200;

/// The second number of the first block; those below are used by other tests.
const FIRST_BLOCK: usize = 100;

impl PodNumber {
    /// The pod's name.
    pub fn name(self) -> String {
        format!("{}-{}", server_name(self.server), self.number)
    }

    /// The pod's address.
    pub fn address(self) -> Ipv4Addr {
        let part = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let (block, place) = (FIRST_BLOCK + self.server / BLOCK, 1 + self.server % BLOCK);
        Ipv4Addr::new(127, part(block), part(place), part(1 + self.number))
    }

    /// The pod with this address.
    pub fn of(address: Ipv4Addr) -> Option<Self> {
        let [_, block, place, last] = address.octets().map(usize::from);
        let server = block.checked_sub(FIRST_BLOCK)? * BLOCK + place.checked_sub(1)?;
        Some(Self { server, number: last.checked_sub(1)? })
    }
}

/// The name of a ModelServer.
pub fn server_name(server: usize) -> String {
    format!("server-{server:04}")
}

/// The name of a ModelRoute.
pub fn route_name(route: usize) -> String {
    format!("route-{route:04}")
}

/// The model that a route takes requests for.
pub fn model_name(route: usize) -> String {
    format!("model-{route:04}")
}

/// The model that the engines of a server serve.
pub fn served_name(server: usize) -> String {
    format!("served-{server:04}")
}

#[test]
fn an_address_names_its_pod() {
    for pod in [(0, 0), (199, 7), (200, 0), (249, 99)].map(|(server, number)| PodNumber { server, number }) {
        assert_eq!(PodNumber::of(pod.address()), Some(pod));
        assert!(pod.address().is_loopback());
    }
    assert_eq!(PodNumber::of(Ipv4Addr::LOCALHOST), None);
}
