//! The certificates and keys of a cluster, all signed by an authority of its own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate, or a public key, and its private key, as files.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

#[derive(Debug)]
pub(super) struct Credentials {
    /// The authority's certificate.
    pub(super) authority: PathBuf,
    /// The API server's, for 127.0.0.1.
    pub(super) server: Pair,
    /// A user whom every rule lets do everything.
    pub(super) admin: Pair,
    /// What tokens of service accounts are signed with.
    pub(super) accounts: Pair,
}

impl Credentials {
    pub(super) fn write(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "kvasir-test-authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority_file = folder.join("authority.crt");
        std::fs::write(&authority_file, authority.pem())?;

        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];

        let mut admin = CertificateParams::new(Vec::new())?;
        admin.distinguished_name.push(DnType::CommonName, "kvasir-test-admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];

        let accounts = KeyPair::generate()?;
        Ok(Self {
            server: sign(folder, "server", server, &authority)?,
            admin: sign(folder, "admin", admin, &authority)?,
            accounts: write(folder, "accounts", &accounts.public_key_pem(), &accounts)?,
            authority: authority_file,
        })
    }
}

fn sign(
    folder: &Path,
    name: &str,
    params: CertificateParams,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> Result<Pair> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    write(folder, name, &certificate.pem(), &key)
}

fn write(folder: &Path, name: &str, public: &str, key: &KeyPair) -> Result<Pair> {
    let pair =
        Pair { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) };
    std::fs::write(&pair.certificate, public)?;
    std::fs::write(&pair.key, key.serialize_pem())?;
    Ok(pair)
}
