//! How the API server is reached: as a pod of its cluster, or by the files that `kubectl` reads.

use std::path::{Path, PathBuf};

use super::names::{NAMESPACE_FIX, is_label, no_namespace};
use crate::defaults;
use crate::facts::{Files, KubernetesEnvironment};
use crate::problems::{Findings, Place};

/// What the environment says about the cluster.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) kubeconfig: Vec<PathBuf>,
    pub(crate) in_cluster: bool,
    pub(crate) namespace: String,
}

impl Access {
    /// Looks for it. `fix` is what somebody without a cluster should do.
    pub(crate) fn find(
        environment: &KubernetesEnvironment,
        files: &dyn Files,
        fix: &str,
        findings: &mut Findings,
    ) -> Self {
        let kubeconfig = kubeconfig(environment, files);
        let in_cluster = environment.in_cluster();
        if !in_cluster && kubeconfig.is_empty() {
            let message = "there is no cluster to reach: the process runs in no pod (KUBERNETES_SERVICE_HOST is not \
                           set), and neither KUBECONFIG nor ~/.kube/config names a file that exists";
            findings.error(&Place::flag("KUBECONFIG"), message, fix);
        }
        let namespace = environment.pod_namespace.as_deref().unwrap_or(defaults::NAMESPACE).trim();
        if !is_label(namespace) {
            findings.error(&Place::flag("POD_NAMESPACE"), no_namespace(namespace), NAMESPACE_FIX);
        }
        Self { kubeconfig, in_cluster, namespace: namespace.to_owned() }
    }
}

/// The files of `KUBECONFIG`, else `~/.kube/config`; those that do not exist are passed over, as `kubectl` does.
fn kubeconfig(environment: &KubernetesEnvironment, files: &dyn Files) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = match (&environment.kubeconfig, &environment.home) {
        (Some(list), _) => std::env::split_paths(list).collect(),
        (None, Some(home)) => vec![Path::new(home).join(".kube/config")],
        (None, None) => Vec::new(),
    };
    named.into_iter().filter(|path| !path.as_os_str().is_empty() && files.is_file(path)).collect()
}
