//! Names of endpoints to addresses, remembered for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kvasir_core::Address;
use parking_lot::Mutex;

/// How long an answer is used. Short: a name that moves (a pod behind a headless service) is followed soon.
const FRESH: Duration = Duration::from_secs(10);

/// Most names remembered; settings name far fewer.
const MOST_NAMES: usize = 4096;

/// Resolves endpoint names. A failed look-up falls back to the last answer, however old.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Mutex<HashMap<String, (SocketAddr, Instant)>>,
}

impl Names {
    /// The address to connect to.
    ///
    /// # Errors
    /// The resolver's text when the name has never resolved.
    pub(crate) async fn resolve(&self, address: &Address) -> Result<SocketAddr, String> {
        if let Some(socket) = address.socket {
            return Ok(socket);
        }
        let known = self.known.lock().get(&*address.authority).copied();
        let now = Instant::now();
        if let Some((socket, when)) = known
            && now.duration_since(when) < FRESH
        {
            return Ok(socket);
        }
        match tokio::net::lookup_host((&*address.host, address.port)).await {
            Ok(mut found) => match found.next() {
                Some(socket) => {
                    let mut names = self.known.lock();
                    if names.len() >= MOST_NAMES {
                        names.clear();
                    }
                    names.insert(address.authority.to_string(), (socket, now));
                    Ok(socket)
                }
                None => Err(format!("{} has no address", address.host)),
            },
            Err(error) => known.map(|(socket, _)| socket).ok_or_else(|| error.to_string()),
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
        assert_eq!(names.resolve(&literal).await.unwrap(), "127.0.0.1:81".parse().unwrap());
        let local = Address::parse("http://localhost:82").unwrap();
        assert!(names.resolve(&local).await.unwrap().ip().is_loopback());
        let nowhere = Address::parse("http://does-not-exist.invalid:1").unwrap();
        assert!(names.resolve(&nowhere).await.is_err());
    }
}
