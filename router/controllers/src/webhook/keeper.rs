//! Keeps the certificate and whoever must trust it up to date, for as long as the webhook runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::WebhookOptions;
use super::authority::names_of;
use super::board::{Board, CertificateStatus, Source, Topic, Trusted};
use super::cluster::{Cluster, Unwritten};
use super::configuration::{Needed, needed};
use super::material::Material;
use super::served::Served;
use super::stored::{Decision, Stored, decide};

#[cfg(test)]
mod tests;

/// Between two looks. A mount follows its Secret within a minute or two, so nothing is late by more than that.
const PAUSE: Duration = Duration::from_secs(60);

/// Before the second look while there is no certificate; doubles until [`PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// One look, with all its calls.
const LOOK: Duration = Duration::from_secs(30);

/// Largest file, bytes. A chain of certificates has some thousand.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// Between a change of whom the API servers trust and the first certificate that needs it: each of them hears of it by a
/// watch of its own.
const HEARD: Duration = Duration::from_secs(1);

/// How often a Secret that other replicas write at the same time is read again in one look.
const ATTEMPTS: usize = 3;

/// Looks after one webhook's certificate.
#[derive(Debug)]
pub struct Keeper {
    cluster: Option<Cluster>,
    options: WebhookOptions,
    names: Vec<String>,
    served: Arc<Served>,
    board: Arc<Board>,
}

impl Keeper {
    /// Of a webhook that serves `served` and is described by `board`. Without a cluster only files are looked at.
    pub fn new(
        cluster: Option<Cluster>,
        options: WebhookOptions,
        served: Arc<Served>,
        board: Arc<Board>,
    ) -> Self {
        let names = names_of(&options.service_name, &options.secret.namespace);
        Self { cluster, options, names, served, board }
    }

    /// Looks again and again until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        loop {
            let look = timeout(LOOK, self.look(SystemTime::now()));
            tokio::select! {
                () = stop.cancelled() => return,
                looked = look => if looked.is_err() {
                    let problem = format!("the API server did not answer within {} seconds", LOOK.as_secs());
                    self.board.report(Topic::Secret, Some(problem));
                },
            }
            if self.served.is_ready() {
                pause = PAUSE;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE);
        }
    }

    /// Looks once: takes what is there, makes what is missing, serves it, and has it trusted. Whatever fails leaves what
    /// is served as it was.
    pub async fn look(&self, now: SystemTime) {
        let secret = async || self.take_from_secret(now).await.map(|material| (material, Source::Secret));
        let files = async || self.take_from_files(now).await.map(|material| (material, Source::Files));
        let found = if self.options.manage_certificate {
            let served = self.board.status().certificate;
            match secret().await {
                // The Secret may be mounted where it may not be read.
                None if served.is_none_or(|served| served.source == Source::Files) => files().await,
                found => found,
            }
        } else {
            match files().await {
                None => secret().await,
                found => {
                    self.board.report(Topic::Secret, None);
                    found
                }
            }
        };
        let Some((material, source)) = found else { return };
        // Trusted first, served then: a certificate of another authority would be refused in between.
        let is_news = self.have_trusted(&material, source).await;
        if is_news && self.served.is_ready() {
            sleep(HEARD).await;
        }
        let until = material.validity.until;
        if self.served.exchange(material) {
            let left = until.duration_since(now).unwrap_or_default().as_secs() / (24 * 60 * 60);
            tracing::info!(?source, days_left = left, "admission webhook: certificate");
        }
        self.board.change(|status| status.certificate = Some(CertificateStatus { source, until }));
    }

    async fn take_from_secret(&self, now: SystemTime) -> Option<Material> {
        let cluster = self.cluster.as_ref()?;
        let mut looked = Err(Unwritten::Overtaken);
        for _ in 0..ATTEMPTS {
            looked = self.look_at_secret(cluster, now).await;
            if !matches!(looked, Err(Unwritten::Overtaken)) {
                break;
            }
        }
        let (material, problem) = match looked {
            Ok(found) => found,
            Err(Unwritten::Overtaken) => (None, Some("others write the Secret all the time".to_owned())),
            Err(Unwritten::Refused(problem)) => (None, Some(problem)),
        };
        self.board.report(Topic::Secret, problem);
        material
    }

    async fn look_at_secret(
        &self,
        cluster: &Cluster,
        now: SystemTime,
    ) -> Result<(Option<Material>, Option<String>), Unwritten> {
        let secret = cluster.secret().await.map_err(Unwritten::Refused)?;
        let stored = secret.as_ref().map(Stored::read);
        let name = self.names.first().map_or("", String::as_str);
        match decide(stored.as_ref(), self.options.manage_certificate, name, now) {
            Decision::Serve(material, problem) => Ok((Some(material), problem)),
            Decision::Nothing(problem) => {
                Ok((None, Some(format!("Secret {}: {problem}", self.options.secret))))
            }
            Decision::Issue(mut order) => {
                if order.trusted.is_empty() {
                    // Somebody deleted the Secret. Other replicas serve what was in it for a minute yet.
                    order.trusted = self.served.authorities();
                }
                let (stored, material) = match order.issue(&self.names, now) {
                    Ok(issued) => issued,
                    Err(problem) => return Ok((order.meanwhile, Some(problem))),
                };
                match cluster.write_secret(&stored.secret(&self.options.secret, secret.as_ref())).await {
                    Ok(()) => {
                        tracing::info!(reason = %order.reason, "admission webhook: certificate issued");
                        Ok((Some(material), None))
                    }
                    Err(Unwritten::Refused(problem)) => Ok((order.meanwhile, Some(problem))),
                    Err(Unwritten::Overtaken) => Err(Unwritten::Overtaken),
                }
            }
        }
    }

    async fn take_from_files(&self, now: SystemTime) -> Option<Material> {
        let (chain, key) =
            tokio::join!(read_file(&self.options.cert_file), read_file(&self.options.key_file));
        let (material, problem) = match (chain, key) {
            (Ok(Some(chain)), Ok(Some(key))) => match Material::read(&chain, &key, &[]) {
                Ok(material) => {
                    let problem = "the certificate does not hold at this time";
                    let problem = (!material.validity.holds(now)).then(|| self.about_file(problem));
                    (Some(material), problem)
                }
                Err(problem) => (None, Some(self.about_file(&problem))),
            },
            (Err(problem), _) | (_, Err(problem)) => (None, Some(problem)),
            // With a cluster, the Secret is the other way; without one, there is none.
            _ if self.cluster.is_some() => (None, None),
            _ => (None, Some(self.about_file("the certificate or its key does not exist"))),
        };
        self.board.report(Topic::Files, problem);
        material
    }

    fn about_file(&self, problem: &str) -> String {
        format!("{}: {problem}", self.options.cert_file.display())
    }

    /// Gives whether somebody is trusted now who was not before.
    async fn have_trusted(&self, material: &Material, source: Source) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        if !self.options.manage_certificate || source == Source::Files || material.authorities.is_empty() {
            self.board.change(|status| status.trusted = Trusted::ByOthers);
            return false;
        }
        let answer = trust(cluster, &material.authorities).await;
        let is_news = matches!(answer, Ok((_, true)));
        let (trusted, problem) = match answer {
            Ok((Trusted::Absent, _)) => {
                let problem = format!(
                    "ValidatingWebhookConfiguration {} does not exist: nothing is reviewed",
                    self.options.configuration_name
                );
                (Trusted::Absent, Some(problem))
            }
            Ok((trusted, _)) => (trusted, None),
            Err(problem) => (Trusted::Unknown, Some(problem)),
        };
        self.board.report(Topic::Configuration, problem);
        self.board.change(|status| status.trusted = trusted);
        is_news
    }
}

/// Has every hook of the webhook configuration trust these authorities. Gives whether that changed it.
async fn trust(cluster: &Cluster, authorities: &[u8]) -> Result<(Trusted, bool), String> {
    let Some(configuration) = cluster.configuration().await? else { return Ok((Trusted::Absent, false)) };
    match needed(&configuration, authorities) {
        Needed::Injected => Ok((Trusted::ByOthers, false)),
        Needed::Nothing => Ok((Trusted::Yes, false)),
        Needed::Patch(patch) => {
            let was_there = cluster.patch_configuration(&patch).await?;
            Ok((if was_there { Trusted::Yes } else { Trusted::Absent }, was_there))
        }
    }
}

/// The content of a file, if it exists.
async fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(told(error)),
    };
    let mut content = Vec::new();
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut content).await.map_err(told)?;
    if content.len() as u64 > MOST_FILE_BYTES {
        return Err(format!("{}: larger than {MOST_FILE_BYTES} bytes", path.display()));
    }
    Ok(Some(content))
}
