//! The validating webhook: an HTTPS server that API servers ask before they store one of kthena's objects.
//!
//! What it says of an object is `kvasir_api`'s word and kthena's text ([`answer`]). Its certificate comes from files, from
//! a Secret that somebody else fills, or from an authority of its own that replicas share in a Secret and that it has the
//! webhook configuration trust; every way is looked at again each minute, so that nothing needs a restart.
//!
//! Nothing here is ever a reason for the router to stop: what fails is in [`Webhook::status`], is said once in the log,
//! and is tried again.

mod activity;
mod admission;
mod authority;
mod board;
mod cluster;
mod configuration;
mod desk;
mod keeper;
mod material;
mod served;
mod server;
mod stored;
mod validity;
mod warnings;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvasir_state::plan::ObjectName;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use admission::{Malformed, answer};
pub use board::{CertificateStatus, Source, Trusted, WebhookStatus};

use board::{Board, Topic};
use cluster::Cluster;
use desk::{Desk, Limits};
use keeper::Keeper;
use served::{Served, tls};
use server::{Bounds, Server, bind};

/// Before an address that could not be bound is tried again.
const BIND_PAUSE: Duration = Duration::from_secs(10);

/// Where the webhook listens and where its certificate is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookOptions {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// A certificate chain in PEM, usually a mounted Secret's `tls.crt`.
    pub cert_file: PathBuf,
    /// Its key in PEM, usually `tls.key`.
    pub key_file: PathBuf,
    /// The Secret with the certificate. Its namespace is also that of the Service.
    pub secret: ObjectName,
    /// The Service by which API servers reach the webhook; the certificate is for its names.
    pub service_name: String,
    /// The ValidatingWebhookConfiguration whose hooks are to trust the certificate.
    pub configuration_name: String,
    /// Whether the certificate is made here, stored in the Secret, and entered into the configuration. Else files count
    /// where they exist, the Secret where they do not, and nothing is written.
    pub manage_certificate: bool,
}

/// The webhook, running.
#[derive(Debug)]
pub struct Webhook {
    board: Arc<Board>,
    open: Arc<AtomicUsize>,
    tasks: TaskTracker,
    #[cfg(test)]
    served: Arc<Served>,
    #[cfg(test)]
    desk: Arc<Desk>,
}

impl Webhook {
    /// Starts it in the background, until `stop`; to be called inside a tokio runtime. Without a client only files are
    /// looked at.
    pub fn start(client: Option<kube::Client>, options: WebhookOptions, stop: CancellationToken) -> Self {
        Self::start_within(client, options, stop, Limits::default(), Bounds::default())
    }

    fn start_within(
        client: Option<kube::Client>,
        options: WebhookOptions,
        stop: CancellationToken,
        limits: Limits,
        bounds: Bounds,
    ) -> Self {
        let board = Arc::new(Board::default());
        let open = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(Served::default());
        let desk = Arc::new(Desk::new(limits));
        let tasks = TaskTracker::new();
        match tls(Arc::clone(&served)) {
            Ok(config) => {
                let server = Arc::new(Server {
                    acceptor: TlsAcceptor::from(Arc::new(config)),
                    desk: Arc::clone(&desk),
                    bounds,
                    open: Arc::clone(&open),
                });
                listen(server, options.listen, &board, &tasks, stop.clone());
            }
            Err(error) => {
                board.report(Topic::Listen, Some(format!("TLS cannot be set up: {error}")));
            }
        }
        let cluster = client
            .map(|client| Cluster::new(client, options.secret.clone(), options.configuration_name.clone()));
        let keeper = Keeper::new(cluster, options, Arc::clone(&served), Arc::clone(&board));
        tasks.spawn(keeper.keep(stop));
        tasks.close();
        Self {
            board,
            open,
            tasks,
            #[cfg(test)]
            served,
            #[cfg(test)]
            desk,
        }
    }

    /// Where it listens; `None` while the address cannot be bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.board.status().address
    }

    /// How it is.
    pub fn status(&self) -> WebhookStatus {
        WebhookStatus { connections: self.open.load(Ordering::Relaxed), ..self.board.status() }
    }

    /// Waits until everything has ended, at most 30 seconds after the stop.
    pub async fn ended(&self) {
        self.tasks.wait().await;
    }
}

/// Binds now, so that the address is known at once; where that fails, again and again.
fn listen(
    server: Arc<Server>,
    address: SocketAddr,
    board: &Arc<Board>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) {
    let board = Arc::clone(board);
    let attempt = move || match bind(address) {
        Ok(listener) => {
            board.report(Topic::Listen, None);
            board.change(|status| status.address = listener.local_addr().ok());
            Some(listener)
        }
        Err(error) => {
            board.report(Topic::Listen, Some(format!("cannot listen at {address}: {error}")));
            None
        }
    };
    let mut listener = attempt();
    tasks.spawn(async move {
        loop {
            if let Some(listener) = listener {
                return server.serve(listener, stop).await;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(BIND_PAUSE) => {}
            }
            listener = attempt();
        }
    });
}
