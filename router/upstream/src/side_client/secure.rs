//! Calls over TLS: a pool of connections for each way of checking certificates.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{
    ConfigBuilderExt as _, DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector,
    ResolveServerName,
};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use kvasir_core::{SideError, UpstreamTls};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, crypto};

use super::{SideClientOptions, connector, pooled};

/// Ways with pools of their own. Fleets have one certificate name for each ModelServer at most; beyond that, pools are
/// begun anew, which costs handshakes.
const MOST_POOLS: usize = 256;

/// A client whose connections are all checked in one way.
type SecureClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// What a certificate must be. Connections are never shared between two ways: one that was made without a check must
/// not carry a call that asks for one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Way {
    /// Of the URL's host, and trusted.
    OfHost,
    /// Of this name, and trusted.
    Of(Arc<str>),
    /// Anything.
    Unverified,
}

impl Way {
    fn of(uri: &Uri, tls: Option<&UpstreamTls>) -> Self {
        match tls {
            None => Self::OfHost,
            Some(UpstreamTls::Unverified) => Self::Unverified,
            Some(UpstreamTls::Verified(name)) if uri.host() == Some(name) => Self::OfHost,
            Some(UpstreamTls::Verified(name)) => Self::Of(Arc::clone(name)),
        }
    }
}

/// Whom certificates must come from.
#[derive(Clone, Debug)]
pub(super) enum Roots {
    /// The system's (`SSL_CERT_FILE`), or Mozilla's where it has none.
    System,
    /// These.
    #[cfg(test)]
    Only(Arc<tokio_rustls::rustls::RootCertStore>),
}

/// The clients of all ways, made when they are first needed.
#[derive(Debug)]
pub(super) struct SecureClients {
    options: SideClientOptions,
    roots: Roots,
    verifying: OnceCell<Arc<ClientConfig>>,
    pools: Mutex<HashMap<Way, SecureClient>>,
}

impl SecureClients {
    pub(super) fn new(options: SideClientOptions, roots: Roots) -> Self {
        Self { options, roots, verifying: OnceCell::new(), pools: Mutex::default() }
    }

    /// The client for this URL.
    pub(super) async fn client(
        &self,
        uri: &Uri,
        tls: Option<&UpstreamTls>,
    ) -> Result<SecureClient, SideError> {
        let way = Way::of(uri, tls);
        if let Some(known) = self.pools.lock().get(&way) {
            return Ok(known.clone());
        }
        let made = self.make(&way).await?;
        let mut pools = self.pools.lock();
        if pools.len() >= MOST_POOLS {
            pools.clear();
        }
        Ok(pools.entry(way).or_insert(made).clone())
    }

    async fn make(&self, way: &Way) -> Result<SecureClient, SideError> {
        let config = match way {
            Way::Unverified => Arc::new(unverifying()?),
            Way::OfHost | Way::Of(_) => {
                let roots = self.roots.clone();
                // The system's authorities are read from files.
                let read = || async {
                    let read = tokio::task::spawn_blocking(move || verifying(&roots)).await;
                    read.map_err(|error| SideError::Connect(error.to_string()))?.map(Arc::new)
                };
                Arc::clone(self.verifying.get_or_try_init(read).await?)
            }
        };
        let names: Arc<dyn ResolveServerName + Send + Sync> = match way {
            Way::OfHost | Way::Unverified => Arc::new(DefaultServerNameResolver::default()),
            Way::Of(name) => {
                let name = ServerName::try_from(name.to_string())
                    .map_err(|_| SideError::Bad(format!("{name:?} is no name of a server")))?;
                Arc::new(FixedServerNameResolver::new(name))
            }
        };
        let mut http = connector(self.options);
        http.enforce_http(false);
        Ok(pooled(self.options).build(HttpsConnector::new(http, config, true, names)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn verifying(roots: &Roots) -> Result<ClientConfig, SideError> {
    let builder = || ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = match roots {
        Roots::System => match builder().map_err(unusable)?.with_native_roots() {
            Ok(config) => config,
            Err(_) => builder().map_err(unusable)?.with_webpki_roots(),
        },
        #[cfg(test)]
        Roots::Only(roots) => builder().map_err(unusable)?.with_root_certificates(Arc::clone(roots)),
    };
    Ok(config.with_no_client_auth())
}

fn unverifying() -> Result<ClientConfig, SideError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let anybody = Arc::new(Anybody(provider));
    Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth())
}

fn unusable(error: Error) -> SideError {
    SideError::Connect(error.to_string())
}

/// Takes every certificate, as long as the server has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

impl Anybody {
    fn algorithms(&self) -> &crypto::WebPkiSupportedAlgorithms {
        &self.0.signature_verification_algorithms
    }
}

#[cfg(test)]
mod tests;
