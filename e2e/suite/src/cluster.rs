//! A real Kubernetes API for tests: etcd and kube-apiserver on free loopback ports, without nodes and controllers.
//!
//! Nobody runs pods here: [`PodDraft`] writes what a kubelet would. A cluster and its folder are gone when the test is,
//! however it ends. `e2e/kube/setup.sh` builds the programs.

mod account;
mod audit;
mod credentials;
mod definitions;
mod folder;
mod manifests;
mod pods;
mod program;

pub use account::{Account, Grant};
pub use audit::Call;
pub use definitions::{Crds, install_crds, shared_data};
pub use manifests::{apply, apply_into, delete, documents, dry_run, find};
pub use pods::{PodDraft, delete_pod, restart_containers, set_phase, set_ready, update_status};
pub use program::binary;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use credentials::Credentials;
use folder::Folder;
use program::{Program, free_port};

/// A start takes a few seconds; a machine that builds at the same time needs many more.
const START_GUARD: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// Somebody else may take a free port before its program does.
const START_ATTEMPTS: usize = 5;
const PORT_IS_TAKEN: &str = "address already in use";

/// A running cluster. Dropping it kills its programs and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    api_server: Program,
    etcd: Program,
    port: u16,
    kubeconfig: PathBuf,
    // After the programs: it is removed when they are gone.
    folder: Folder,
}

impl Cluster {
    /// Starts a cluster of the caller's own and waits until it is ready: a few seconds, 400 MB.
    ///
    /// # Errors
    /// The programs are missing, or do not become ready; the error has the end of their logs.
    pub async fn start() -> Result<Self> {
        Self::start_as(false).await
    }

    /// As [`start`](Self::start), with a record of every call by service accounts: [`calls`](Self::calls).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_audited() -> Result<Self> {
        Self::start_as(true).await
    }

    async fn start_as(is_audited: bool) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let mut cluster = Self::spawn(is_audited)?;
            match cluster.ready().await {
                Ok(()) => return Ok(cluster),
                Err(error) if attempt < START_ATTEMPTS && format!("{error:?}").contains(PORT_IS_TAKEN) => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The cluster that all tests of this process share. It has our definitions and those of Gateway API where they
    /// lie beside the checkout; each test takes a [`namespace`](Self::namespace) of its own and leaves the rest alone.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| async {
                let cluster = Self::start().await?;
                let client = cluster.client().await?;
                install_crds(&client, Crds::Ours).await?;
                if shared_data("crds").is_some() {
                    install_crds(&client, Crds::GatewayApi).await?;
                }
                Ok(cluster)
            })
            .await
    }

    /// The API's address.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A kubeconfig file of the administrator: for kubectl, helm and the router.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new client of the administrator. A client belongs to the runtime that made it, so to one test.
    ///
    /// # Errors
    /// The kubeconfig file cannot be used.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig).await
    }

    /// Makes a namespace that nobody else has.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let made = Api::all(self.client().await?).create(&PostParams::default(), &namespace).await?;
        made.metadata.name.context("the namespace has no name")
    }

    /// Kills the API server (SIGKILL). etcd goes on.
    pub fn kill(&mut self) {
        self.api_server.kill();
    }

    /// Starts a killed API server again, at the same address, with the same data, and waits until it is ready. It
    /// knows nothing of the past: a watch from an earlier version is answered with 410.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn restart(&mut self) -> Result<()> {
        self.api_server.kill();
        self.api_server.spawn()?;
        self.ready().await
    }

    /// Stops the API server without ending it (SIGSTOP): connections stay open and nothing is said on them.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&self) -> Result<()> {
        self.api_server.signal("-STOP")
    }

    /// Lets a paused API server go on.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn resume(&self) -> Result<()> {
        self.api_server.signal("-CONT")
    }

    /// The numbers of the processes, etcd's and the API server's.
    pub fn processes(&self) -> [u32; 2] {
        [self.etcd.pid(), self.api_server.pid()]
    }

    /// What service accounts asked of an audited cluster so far.
    ///
    /// # Errors
    /// There is no record.
    pub fn calls(&self) -> Result<Vec<Call>> {
        audit::read(self.folder.path())
    }

    /// Where its data, logs and credentials are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn spawn(is_audited: bool) -> Result<Self> {
        let folder = Folder::new()?;
        let credentials = Credentials::write(folder.path())?;
        let [client_port, peer_port, port] = [free_port()?, free_port()?, free_port()?];
        let kubeconfig = folder.path().join("admin.kubeconfig");
        let user = serde_json::json!({
            "client-certificate": credentials.admin.certificate,
            "client-key": credentials.admin.key,
        });
        write_kubeconfig(&kubeconfig, port, &credentials.authority, &user)?;
        let etcd =
            Program::start("etcd", folder.path(), etcd_arguments(folder.path(), client_port, peer_port))?;
        let mut arguments = api_server_arguments(&credentials, client_port, port);
        if is_audited {
            arguments.extend(audit::arguments(folder.path())?);
        }
        let api_server = Program::start("kube-apiserver", folder.path(), arguments)?;
        Ok(Self { api_server, etcd, port, kubeconfig, folder })
    }

    async fn ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + START_GUARD;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let Err(error) = client.request_text(request).await else { return Ok(()) };
            for program in [&self.etcd, &self.api_server] {
                if !program.is_running() {
                    bail!("{} ended: {}", program.name(), program.log_tail());
                }
            }
            if Instant::now() > deadline {
                bail!("the API server is not ready: {error}\n{}", self.api_server.log_tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn write_kubeconfig(path: &Path, port: u16, authority: &Path, user: &serde_json::Value) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "test",
            "cluster": {"server": format!("https://127.0.0.1:{port}"), "certificate-authority": authority},
        }],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    std::fs::write(path, serde_json::to_vec_pretty(&config)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn etcd_arguments(folder: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let clients = format!("http://127.0.0.1:{client_port}");
    let peers = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        // A process that is killed loses nothing: what it wrote is in the system's hands.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server_arguments(credentials: &Credentials, etcd_port: u16, port: u16) -> Vec<String> {
    let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // It wants a default account in every namespace, which a controller would make.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        path("client-ca-file", &credentials.authority),
        path("tls-cert-file", &credentials.server.certificate),
        path("tls-private-key-file", &credentials.server.key),
        path("service-account-key-file", &credentials.accounts.certificate),
        path("service-account-signing-key-file", &credentials.accounts.key),
    ]
}
