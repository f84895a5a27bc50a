//! Certificates for a test, made by `openssl` and signed by an authority of the test's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use kvasir_settings::redis::RedisTls;
use tempfile::TempDir;

/// An authority, and what it signed. The files go with the last clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// Certificate and key of a server at 127.0.0.1.
    pub server: (PathBuf, PathBuf),
    /// Certificate and key of a client.
    pub client: (PathBuf, PathBuf),
    _folder: Arc<TempDir>,
}

impl Certificates {
    /// Makes them.
    pub fn make() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        openssl(
            folder.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
             -keyout authority.key -out authority.pem",
        );
        for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
            let extensions = format!("subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\n");
            std::fs::write(at(&format!("{name}.ext")), extensions).expect("the folder can be written");
            openssl(
                folder.path(),
                &format!(
                    "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key \
                     -out {name}.csr"
                ),
            );
            openssl(
                folder.path(),
                &format!(
                    "x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
                     -extfile {name}.ext -out {name}.pem"
                ),
            );
        }
        Self {
            authority: at("authority.pem"),
            server: (at("server.pem"), at("server.key")),
            client: (at("client.pem"), at("client.key")),
            _folder: Arc::new(folder),
        }
    }

    /// Settings of a client that trusts the authority and shows its own certificate.
    pub fn client_tls(&self) -> RedisTls {
        RedisTls { ca_file: Some(self.authority.clone()), client: Some(self.client.clone()) }
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(done.is_ok_and(|status| status.success()), "openssl {arguments}");
}
