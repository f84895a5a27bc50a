//! The certificate that new connections get, exchanged while the server runs.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::material::{Material, provider};

/// What is served now; nothing at first, and then handshakes fail.
#[derive(Debug, Default)]
pub struct Served {
    material: RwLock<Option<Material>>,
}

impl Served {
    /// Serves this from the next connection on. Gives whether it is another certificate than before.
    pub fn exchange(&self, material: Material) -> bool {
        let mut served = self.material.write();
        let is_other = served.as_ref().is_none_or(|before| !before.serves_as(&material));
        *served = Some(material);
        is_other
    }

    /// The authorities of what is served now, PEM; may be empty.
    pub fn authorities(&self) -> Vec<u8> {
        self.material.read().as_ref().map_or(Vec::new(), |material| material.authorities.clone())
    }

    /// Whether something is served.
    pub fn is_ready(&self) -> bool {
        self.material.read().is_some()
    }
}

impl ResolvesServerCert for Served {
    /// Whatever name the client asks for: an API server may have another one for us than the Service's.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.material.read().as_ref().map(|material| Arc::clone(&material.key))
    }
}

/// How TLS is spoken: 1.2 or newer, HTTP/2 or HTTP/1.1, no certificate asked of clients.
///
/// # Errors
/// The provider of cryptography lacks what those versions need.
pub fn tls(served: Arc<Served>) -> Result<ServerConfig, tokio_rustls::rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(served);
    config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// What a client that speaks HTTP/2 calls it.
pub const HTTP_2: &[u8] = b"h2";
