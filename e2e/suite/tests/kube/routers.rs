//! Routers in this process that watch a cluster of these tests.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Mutex;

use kvasir_settings::Settings;
use kvasir_settings::kubernetes::KubernetesSettings;
use kvasir_suite::router::settings;
use rand::RngExt as _;

/// Settings of a router that watches one namespace, in which its lease lies too. Its own port is 0: any.
pub fn watching(kubeconfig: &Path, namespace: &str) -> Settings {
    let mut settings = settings(&[]).unwrap();
    settings.models.clear();
    settings.replica_name = Some(format!("router-of-{namespace}"));
    settings.kubernetes = Some(KubernetesSettings {
        kubeconfig: vec![kubeconfig.to_owned()],
        in_cluster: false,
        namespace: namespace.to_owned(),
        watch_namespace: Some(namespace.to_owned()),
        ..KubernetesSettings::default()
    });
    settings
}

/// A port of 127.0.0.1 that this process has not given away yet and nobody listens on. Below the ports that systems lend
/// to outgoing connections.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = rand::rng().random_range(18_000..32_000);
        let is_free = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).is_ok();
        if is_free && GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}
