//! A certificate authority of our own, and the server certificates it issues.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// The names by which kthena's tools know the authority.
const COMMON_NAME: &str = "kthena-webhook-ca";
const ORGANIZATION: &str = "Volcano";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an authority holds. Its certificate is in the webhook configuration, so a new one costs more than a new
/// server certificate.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * DAY.as_secs());

/// How long a server certificate holds.
pub const SERVER_LIFE: Duration = Duration::from_secs(365 * DAY.as_secs());

/// How long before it is made a certificate already holds: clocks of the API servers may be behind ours.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// Largest common name that X.509 has room for.
const MOST_COMMON_NAME: usize = 64;

/// An authority: its certificate and its key, both PEM.
#[derive(Clone)]
pub struct Authority {
    /// Its certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// A server's certificate with its key, both PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// Makes one, with an ECDSA P-256 key; ring makes no RSA keys.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn make(now: SystemTime) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = described();
        hold(&mut params, now, AUTHORITY_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// Issues a certificate for a server with these DNS names; the first of them is its common name where it is short
    /// enough.
    ///
    /// # Errors
    /// The key cannot be read, a name is no DNS name, or the system has no random numbers.
    pub fn issue(&self, names: &[String], now: SystemTime) -> Result<Issued, rcgen::Error> {
        // The issuer's name and the identifier of its key follow from the description and the key; the certificate of
        // the authority need not be read for them.
        let issuer = Issuer::new(described(), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, ORGANIZATION);
        if let Some(name) = names.first().filter(|name| name.len() <= MOST_COMMON_NAME) {
            subject.push(DnType::CommonName, name.as_str());
        }
        params.distinguished_name = subject;
        hold(&mut params, now, SERVER_LIFE);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(Issued { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// The names under which the API server calls a Service, the one it uses first.
pub fn names_of(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
    ]
}

/// What every authority of ours says of itself, whenever it was made.
fn described() -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, ORGANIZATION);
    subject.push(DnType::CommonName, COMMON_NAME);
    params.distinguished_name = subject;
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn hold(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let now = rcgen::date_time_ymd(1970, 1, 1) + now.duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = now - EARLIER;
    params.not_after = now + life;
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
