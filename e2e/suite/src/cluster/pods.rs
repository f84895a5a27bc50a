//! Pods without a kubelet: what one would write about them is written here.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodCondition,
    PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use tokio::time::Instant;

use crate::GUARD;

const CONTAINER: &str = "engine";
const POLL: Duration = Duration::from_millis(20);

/// A pod to be made: with an address, running and ready unless it is told otherwise.
#[derive(Clone, Debug)]
pub struct PodDraft {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    addresses: Vec<String>,
    ports: Vec<i32>,
    phase: String,
    is_ready: bool,
}

impl PodDraft {
    /// A pod with this name and this address.
    pub fn new(name: &str, address: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: vec![address.to_owned()],
            ports: Vec::new(),
            phase: "Running".to_owned(),
            is_ready: true,
        }
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With one more address, of the other family.
    #[must_use]
    pub fn second_address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// With a container port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port.into());
        self
    }

    /// In this phase.
    #[must_use]
    pub fn phase(mut self, phase: &str) -> Self {
        phase.clone_into(&mut self.phase);
        self
    }

    /// Ready or not.
    #[must_use]
    pub fn ready(mut self, is_ready: bool) -> Self {
        self.is_ready = is_ready;
        self
    }

    /// Makes it: the object, then its status.
    ///
    /// # Errors
    /// The API refuses one of them.
    pub async fn create(self, client: &Client, namespace: &str) -> Result<Pod> {
        let ports =
            self.ports.iter().map(|port| ContainerPort { container_port: *port, ..ContainerPort::default() });
        let container = Container {
            name: CONTAINER.to_owned(),
            image: Some(CONTAINER.to_owned()),
            ports: Some(ports.collect()),
            ..Container::default()
        };
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(self.annotations.clone()),
                ..ObjectMeta::default()
            },
            // A pod on no node is deleted at once, whatever time it is given to end.
            spec: Some(PodSpec {
                containers: vec![container],
                node_name: Some("node".to_owned()),
                ..PodSpec::default()
            }),
            status: None,
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let mut made = pods
            .create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("cannot make pod {}", self.name))?;
        made.status = Some(self.status());
        pods.replace_status(&self.name, &PostParams::default(), &made)
            .await
            .with_context(|| format!("cannot write the status of pod {}", self.name))
    }

    fn status(&self) -> PodStatus {
        let now = Time(Timestamp::now());
        let running = ContainerStateRunning { started_at: Some(now.clone()) };
        PodStatus {
            phase: Some(self.phase.clone()),
            pod_ip: self.addresses.first().cloned(),
            pod_ips: Some(self.addresses.iter().map(|address| PodIP { ip: address.clone() }).collect()),
            start_time: Some(now.clone()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: word(self.is_ready).to_owned(),
                last_transition_time: Some(now),
                ..PodCondition::default()
            }]),
            container_statuses: Some(vec![ContainerStatus {
                name: CONTAINER.to_owned(),
                image: CONTAINER.to_owned(),
                image_id: CONTAINER.to_owned(),
                ready: self.is_ready,
                started: Some(true),
                state: Some(ContainerState { running: Some(running), ..ContainerState::default() }),
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        }
    }
}

/// Changes what a kubelet says about a pod.
///
/// # Errors
/// The pod is not there, or the API refuses the change.
pub async fn update_status(
    client: &Client,
    namespace: &str,
    name: &str,
    change: impl FnOnce(&mut PodStatus),
) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pod = pods.get(name).await?;
    change(pod.status.get_or_insert_default());
    pods.replace_status(name, &PostParams::default(), &pod)
        .await
        .with_context(|| format!("cannot change the status of pod {name}"))
}

/// Makes a pod ready, or not ready.
///
/// # Errors
/// As [`update_status`].
pub async fn set_ready(client: &Client, namespace: &str, name: &str, is_ready: bool) -> Result<Pod> {
    update_status(client, namespace, name, |status| {
        for condition in status.conditions.iter_mut().flatten().filter(|condition| condition.type_ == "Ready")
        {
            word(is_ready).clone_into(&mut condition.status);
            condition.last_transition_time = Some(Time(Timestamp::now()));
        }
        for container in status.container_statuses.iter_mut().flatten() {
            container.ready = is_ready;
        }
    })
    .await
}

/// Puts a pod into a phase; readiness is left as it is, as kubelets do for a while.
///
/// # Errors
/// As [`update_status`].
pub async fn set_phase(client: &Client, namespace: &str, name: &str, phase: &str) -> Result<Pod> {
    update_status(client, namespace, name, |status| status.phase = Some(phase.to_owned())).await
}

/// Lets a pod's containers have been started again at `at`, with the pod and its address as they were.
///
/// # Errors
/// As [`update_status`].
pub async fn restart_containers(client: &Client, namespace: &str, name: &str, at: Timestamp) -> Result<Pod> {
    update_status(client, namespace, name, |status| {
        for container in status.container_statuses.iter_mut().flatten() {
            container.restart_count += 1;
            let running = ContainerStateRunning { started_at: Some(Time(at)) };
            container.state = Some(ContainerState { running: Some(running), ..ContainerState::default() });
        }
    })
    .await
}

/// Deletes a pod. With seconds to end in, it stays and terminates until it is deleted again with zero; with zero it is
/// gone when this returns.
///
/// # Errors
/// The API refuses, or the pod stays.
pub async fn delete_pod(client: &Client, namespace: &str, name: &str, seconds: u32) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.delete(name, &DeleteParams::default().grace_period(seconds))
        .await
        .with_context(|| format!("cannot delete pod {name}"))?;
    let deadline = Instant::now() + GUARD;
    while seconds == 0 && pods.get_opt(name).await?.is_some() {
        if Instant::now() > deadline {
            bail!("pod {name} is still there");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn word(is_so: bool) -> &'static str {
    if is_so { "True" } else { "False" }
}
