//! The Secret that replicas share: what is in it, what becomes of it, what is put into it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kvasir_state::plan::ObjectName;

use super::authority::{Authority, SERVER_LIFE};
use super::material::{Material, certificates};
use super::validity::Validity;

#[cfg(test)]
mod tests;

/// Tells a Secret that was made here from one that somebody else made. Only the former is ever written again.
const LABEL: (&str, &str) = ("kvasir.io/webhook-certificate", "generated");

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";

/// Authorities that stay trusted beside a new one, while other replicas still serve what those issued.
const MOST_FORMER: usize = 2;

/// What is in the Secret.
#[derive(Clone, Default)]
pub struct Stored {
    /// Whether it was made here.
    pub ours: bool,
    chain: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
    authority_key: Vec<u8>,
}

/// What is to be done about the certificate.
#[derive(Debug)]
pub enum Decision {
    /// Serve what is there, in spite of the problem, if there is one.
    Serve(Material, Option<String>),
    /// Issue another and store it.
    Issue(Order),
    /// Nothing can be served, for this reason.
    Nothing(String),
}

/// What to issue, and why.
#[derive(Debug)]
pub struct Order {
    /// One sentence for the log.
    pub reason: String,
    /// The authority that is to issue it; `None` for a new one.
    pub authority: Option<Authority>,
    /// The authorities that are trusted now, PEM.
    pub trusted: Vec<u8>,
    /// What can be served until it is stored.
    pub meanwhile: Option<Material>,
}

impl Stored {
    /// Reads a Secret.
    pub fn read(secret: &Secret) -> Self {
        let data = |name: &str| {
            secret.data.as_ref().and_then(|data| data.get(name)).map_or(Vec::new(), |bytes| bytes.0.clone())
        };
        let labels = secret.metadata.labels.as_ref();
        Self {
            ours: labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1),
            chain: data(CHAIN),
            key: data(KEY),
            authorities: data(AUTHORITIES),
            authority_key: data(AUTHORITY_KEY),
        }
    }

    /// The authority that can issue another certificate: the first of those trusted, if its key is there and it outlives
    /// what it would issue.
    fn authority(&self, now: SystemTime) -> Option<Authority> {
        let first = certificates(&self.authorities).ok()?.into_iter().next()?;
        let validity = Validity::read(&first)?;
        (validity.from <= now && validity.until > now + SERVER_LIFE).then_some(())?;
        Material::read(&self.authorities, &self.authority_key, &[]).ok()?;
        let pem = String::from_utf8(self.authorities.clone()).ok()?;
        Some(Authority {
            certificate: blocks(&pem).next()?.to_owned(),
            key: String::from_utf8(self.authority_key.clone()).ok()?,
        })
    }
}

/// Decides. `stored` is the Secret as far as it exists, `managed` whether we may write it, `name` what the API server
/// calls us.
pub fn decide(stored: Option<&Stored>, managed: bool, name: &str, now: SystemTime) -> Decision {
    let Some(stored) = stored else {
        return if managed {
            Decision::Issue(Order::first("there is no certificate yet"))
        } else {
            Decision::Nothing("the Secret does not exist".to_owned())
        };
    };
    if managed && stored.chain.is_empty() && stored.key.is_empty() {
        return Decision::Issue(Order::first("the Secret is empty"));
    }
    let read = Material::read(&stored.chain, &stored.key, &stored.authorities);
    let problem = match &read {
        Err(problem) => Some(problem.clone()),
        // Whom the API server trusts is then said elsewhere, perhaps not in the Secret.
        Ok(material) if !managed => {
            (!material.validity.holds(now)).then(|| "the certificate does not hold at this time".to_owned())
        }
        Ok(material) => material.convinces(name, now).err(),
    };
    let due = read.as_ref().is_ok_and(|material| material.validity.is_due(now));
    if managed && stored.ours && (problem.is_some() || due) {
        return Decision::Issue(Order {
            reason: problem.unwrap_or_else(|| "a third of the certificate's life is left".to_owned()),
            authority: stored.authority(now),
            trusted: stored.authorities.clone(),
            meanwhile: read.ok(),
        });
    }
    match read {
        Ok(material) => Decision::Serve(material, problem),
        Err(problem) => Decision::Nothing(problem),
    }
}

impl Order {
    fn first(reason: &str) -> Self {
        Self { reason: reason.to_owned(), authority: None, trusted: Vec::new(), meanwhile: None }
    }

    /// Issues what was ordered, with the content of a Secret for it.
    ///
    /// # Errors
    /// One sentence: what cannot be issued.
    pub fn issue(&self, names: &[String], now: SystemTime) -> Result<(Stored, Material), String> {
        if let Some(authority) = &self.authority
            && let Ok(issued) = self.issue_by(authority, names, now)
        {
            return Ok(issued);
        }
        let authority = Authority::make(now).map_err(|error| format!("cannot make an authority: {error}"))?;
        self.issue_by(&authority, names, now)
    }

    /// What is stored is looked at as a client would: an authority that was described otherwise by another version
    /// convinces nobody, and is replaced.
    fn issue_by(
        &self,
        authority: &Authority,
        names: &[String],
        now: SystemTime,
    ) -> Result<(Stored, Material), String> {
        let issued =
            authority.issue(names, now).map_err(|error| format!("cannot issue a certificate: {error}"))?;
        let stored = Stored {
            ours: true,
            chain: issued.certificate.into_bytes(),
            key: issued.key.into_bytes(),
            authorities: trusting(&authority.certificate, &self.trusted, now).into_bytes(),
            authority_key: authority.key.clone().into_bytes(),
        };
        let material = Material::read(&stored.chain, &stored.key, &stored.authorities)?;
        for name in names {
            material.convinces(name, now)?;
        }
        Ok((stored, material))
    }
}

/// The authorities to trust from now on: the one that issues, and those former ones that still hold.
fn trusting(authority: &str, former: &[u8], now: SystemTime) -> String {
    let mut trusted = ended(authority);
    let known = certificates(authority.as_bytes()).unwrap_or_default();
    let former = String::from_utf8_lossy(former);
    let kept = blocks(&former).filter(|block| {
        let read = certificates(block.as_bytes()).unwrap_or_default();
        read.len() == 1
            && read != known
            && read
                .iter()
                .all(|certificate| Validity::read(certificate).is_some_and(|validity| validity.holds(now)))
    });
    for block in kept.take(MOST_FORMER) {
        trusted.push_str(&ended(block));
    }
    trusted
}

fn ended(block: &str) -> String {
    format!("{}\n", block.trim_end())
}

/// The certificates of a PEM text, each as text.
fn blocks(pem: &str) -> impl Iterator<Item = &str> {
    const END: &str = "-----END CERTIFICATE-----";
    pem.split_inclusive(END)
        .filter_map(|part| part.find("-----BEGIN CERTIFICATE-----").and_then(|start| part.get(start..)))
        .filter(|part| part.ends_with(END))
}

impl Stored {
    /// A Secret with this content, in place of `former` where there is one: what else is in that one stays, and the write
    /// fails if it has changed since.
    pub fn secret(&self, name: &ObjectName, former: Option<&Secret>) -> Secret {
        let mut secret = former.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(name.name.to_string()),
                namespace: Some(name.namespace.to_string()),
                ..ObjectMeta::default()
            },
            // The type that mounts, and the tools around certificates, expect.
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        });
        // The server sets these; sent back, they only make the write larger.
        secret.metadata.managed_fields = None;
        let labels = secret.metadata.labels.get_or_insert_with(BTreeMap::new);
        labels.insert(LABEL.0.to_owned(), LABEL.1.to_owned());
        let data = secret.data.get_or_insert_with(BTreeMap::new);
        for (name, bytes) in [
            (CHAIN, &self.chain),
            (KEY, &self.key),
            (AUTHORITIES, &self.authorities),
            (AUTHORITY_KEY, &self.authority_key),
        ] {
            data.insert(name.to_owned(), ByteString(bytes.clone()));
        }
        secret
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("ours", &self.ours).finish_non_exhaustive()
    }
}
