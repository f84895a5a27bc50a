//! The CustomResourceDefinitions that a cluster may have: ours, or those of other projects beside the checkout.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ResourceExt as _};
use kube::core::GroupVersionKind;
use kube::discovery;
use tokio::time::Instant;

use super::manifests::apply;
use crate::GUARD;

const POLL: Duration = Duration::from_millis(20);
const KTHENAS: &str = "networking.serving.volcano.sh_";

/// A set of definitions. Ours and kthena's are of the same kinds, so a cluster has one or the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crds {
    /// Those of the chart.
    Ours,
    /// kthena's own, from beside the checkout.
    Kthenas,
    /// Gateway API's and InferencePool's, from beside the checkout.
    GatewayApi,
}

/// A folder of other projects' files that lie beside the checkout, where they do. Where they do not, a line on the standard
/// error says so past the test runner's capture, and `make test` counts it as skipped.
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let folder = repository().join("../shared/data").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: there is no {}", folder.display());
    None
}

/// Installs definitions and waits until the API serves their kinds.
///
/// # Errors
/// The files are not there, or the API refuses one.
pub async fn install_crds(client: &Client, set: Crds) -> Result<()> {
    let mut made = Vec::new();
    for file in set.files()? {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for object in apply(client, "", &text).await? {
            made.push(object.name_any());
        }
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let deadline = Instant::now() + GUARD;
    for name in made {
        while !is_served(client, &definitions.get(&name).await?).await {
            if Instant::now() > deadline {
                bail!("the API never served the kind of {name}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn is_served(client: &Client, definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    {
        return false;
    }
    for version in definition.spec.versions.iter().filter(|version| version.served) {
        let kind = GroupVersionKind::gvk(&definition.spec.group, &version.name, &definition.spec.names.kind);
        if discovery::pinned_kind(client, &kind).await.is_err() {
            return false;
        }
    }
    true
}

impl Crds {
    fn files(self) -> Result<Vec<PathBuf>> {
        let folder = match self {
            Self::Ours => repository().join("charts/kvasir/crds"),
            Self::Kthenas | Self::GatewayApi => {
                shared_data("crds").context("there are no other projects' files beside the checkout")?
            }
        };
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .filter(|path| match self {
                Self::Ours => true,
                Self::Kthenas => is_kthenas(path),
                Self::GatewayApi => !is_kthenas(path),
            })
            .collect();
        files.sort();
        Ok(files)
    }
}

fn is_kthenas(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(KTHENAS))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
