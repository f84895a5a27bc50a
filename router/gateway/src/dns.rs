//! Names of endpoints to addresses, remembered for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kvasir_core::Address;
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

/// How long an answer is used. Short: a name that moves (a pod behind a headless service) is followed soon.
const FRESH: Duration = Duration::from_secs(10);

/// Most names remembered; settings name far fewer.
const MOST_NAMES: usize = 4096;

/// Most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Addresses of one name.
pub(crate) type Addresses = SmallVec<[SocketAddr; 2]>;

/// Resolves endpoint names. A failed look-up falls back to the last answer, however old.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Mutex<HashMap<String, (Addresses, Instant)>>,
}

impl Names {
    /// The addresses to try, in the resolver's order: `localhost` may name an address where nobody listens.
    ///
    /// # Errors
    /// The resolver's text when the name has never resolved.
    pub(crate) async fn resolve(&self, address: &Address) -> Result<Addresses, String> {
        if let Some(socket) = address.socket {
            return Ok(smallvec![socket]);
        }
        let known = self.known.lock().get(&*address.authority).cloned();
        let now = Instant::now();
        if let Some((sockets, when)) = &known
            && now.duration_since(*when) < FRESH
        {
            return Ok(sockets.clone());
        }
        match tokio::net::lookup_host((&*address.host, address.port)).await {
            Ok(found) => {
                let sockets: Addresses = found.take(MOST_ADDRESSES).collect();
                if sockets.is_empty() {
                    return Err(format!("{} has no address", address.host));
                }
                let mut names = self.known.lock();
                if names.len() >= MOST_NAMES {
                    names.clear();
                }
                names.insert(address.authority.to_string(), (sockets.clone(), now));
                Ok(sockets)
            }
            Err(error) => known.map(|(sockets, _)| sockets).ok_or_else(|| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn literals_and_names_resolve() {
        let names = Names::default();
        let literal = Address::parse("http://127.0.0.1:81").unwrap();
        assert_eq!(names.resolve(&literal).await.unwrap()[..], ["127.0.0.1:81".parse().unwrap()]);
        let local = Address::parse("http://localhost:82").unwrap();
        assert!(names.resolve(&local).await.unwrap().iter().all(|socket| socket.ip().is_loopback()));
        let nowhere = Address::parse("http://does-not-exist.invalid:1").unwrap();
        assert!(names.resolve(&nowhere).await.is_err());
    }
}
