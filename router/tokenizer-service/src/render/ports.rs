//! Ports for renderers: the lowest free one, held until the process that had it is gone.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use parking_lot::Mutex;

/// Ports that are looked at, from the first one on.
const RANGE: u16 = 2_000;

/// Gives out ports of 127.0.0.1.
#[derive(Clone, Debug)]
pub struct Ports {
    first: u16,
    taken: Arc<Mutex<BTreeSet<u16>>>,
}

/// A port that nobody else gets until this is dropped. Whoever runs a process on it drops it after the process has
/// ended, so that a replacement never meets a predecessor that is still shutting down.
#[derive(Debug)]
pub struct Port {
    number: u16,
    taken: Arc<Mutex<BTreeSet<u16>>>,
}

impl Ports {
    /// Ports from `first` on.
    pub fn from(first: u16) -> Self {
        Self { first, taken: Arc::default() }
    }

    /// The lowest port that is neither given out nor in use by another program.
    pub fn take(&self) -> Option<Port> {
        let mut taken = self.taken.lock();
        let number = (self.first..=self.first.saturating_add(RANGE))
            .find(|number| !taken.contains(number) && is_free(*number))?;
        taken.insert(number);
        Some(Port { number, taken: Arc::clone(&self.taken) })
    }
}

impl Port {
    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.taken.lock().remove(&self.number);
    }
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port with some free ones after it, most likely.
    fn somewhere() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port().min(60_000)
    }

    #[test]
    fn a_port_is_given_out_once_until_it_is_dropped() {
        let ports = Ports::from(somewhere());
        let (first, second) = (ports.take().unwrap(), ports.take().unwrap());
        assert!(first.number() < second.number());
        let number = first.number();
        drop(first);
        assert_eq!(ports.take().unwrap().number(), number, "the lowest one again");
    }

    #[test]
    fn a_port_in_use_by_another_program_is_passed_over() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let used = other.local_addr().unwrap().port();
        let port = Ports::from(used).take();
        assert!(port.is_none_or(|port| port.number() > used));
    }
}
