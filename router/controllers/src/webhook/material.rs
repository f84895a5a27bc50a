//! A certificate with its key, ready to be served, and what can be said of it.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::validity::Validity;

/// Certificates of one chain, or of one list of authorities, at most.
const MOST_CERTIFICATES: usize = 16;

/// A certificate with its key.
#[derive(Clone)]
pub struct Material {
    /// What rustls serves.
    pub key: Arc<CertifiedKey>,
    /// When the server's certificate holds.
    pub validity: Validity,
    /// The certificates of the authorities that a client should trust, PEM; may be empty.
    pub authorities: Vec<u8>,
}

impl Material {
    /// Reads a certificate chain and its key, PEM both.
    ///
    /// # Errors
    /// One sentence: what cannot be read, or that the two do not belong together.
    pub fn read(chain: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, String> {
        let chain = certificates(chain).map_err(|problem| format!("the certificate {problem}"))?;
        let Some(first) = chain.first() else { return Err("the certificate is empty".to_owned()) };
        let validity = Validity::read(first).ok_or_else(|| "the certificate cannot be read".to_owned())?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| "the key cannot be read: it must be a private key in PEM".to_owned())?;
        let key = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|error| format!("the certificate and the key cannot be used together: {error}"))?;
        Ok(Self { key: Arc::new(key), validity, authorities: authorities.to_vec() })
    }

    /// Whether a client that trusts the authorities and calls `name` accepts it at this time.
    ///
    /// # Errors
    /// One sentence: why not.
    pub fn convinces(&self, name: &str, now: SystemTime) -> Result<(), String> {
        let authorities =
            certificates(&self.authorities).map_err(|problem| format!("the authority {problem}"))?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| format!("the authority cannot be trusted: {error}"))?;
        }
        let refused =
            |error: &dyn fmt::Display| format!("the certificate is not accepted for {name}: {error}");
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()))
            .build()
            .map_err(|error| refused(&error))?;
        let Some((first, others)) = self.key.cert.split_first() else {
            return Err("the certificate is empty".to_owned());
        };
        let server = ServerName::try_from(name).map_err(|error| refused(&error))?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        verifier.verify_server_cert(first, others, &server, &[], now).map_err(|error| refused(&error))?;
        Ok(())
    }

    /// Whether both would be served alike.
    pub fn serves_as(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").field("validity", &self.validity).finish_non_exhaustive()
    }
}

/// The certificates in a PEM text, in order.
///
/// # Errors
/// The text is no PEM, or holds too many.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        if found.len() == MOST_CERTIFICATES {
            return Err(format!("has more than {MOST_CERTIFICATES} parts"));
        }
        found.push(certificate.map_err(|_| "cannot be read: it must be PEM".to_owned())?);
    }
    Ok(found)
}

/// The one provider of cryptography, whatever another part of the process installed as its default.
pub fn provider() -> CryptoProvider {
    ring::default_provider()
}
