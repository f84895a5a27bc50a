//! `kvasir router` in a cluster: its objects become plans, its statuses are written, its writes are validated, its
//! router document is followed.

mod document;
mod pods;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvasir_controllers::webhook::{Webhook, WebhookOptions};
use kvasir_controllers::{ClientSettings, Options, PlanSink, Room, RoomOptions, config_map, connect};
use kvasir_settings::Settings;
use kvasir_settings::kubernetes::{ConfigMapRef, KubernetesSettings, WebhookSettings};
use kvasir_state::Plan;
use kvasir_state::plan::ObjectName;
use tokio_util::sync::CancellationToken;

use crate::house::House;
use crate::household::Household;
use document::Documents;
use view::View;

/// How long the start waits for the router document of the ConfigMap.
const FIRST_DOCUMENT: Duration = Duration::from_secs(5);

/// How often it is looked which kinds were listed.
const LOOK: Duration = Duration::from_millis(50);

/// The way to the cluster.
pub struct Access {
    client: kvasir_controllers::Client,
    settings: KubernetesSettings,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Access {
    /// The way that the settings name; `None` outside of clusters. An API server that is away is no error.
    ///
    /// # Errors
    /// No credentials that can be used.
    pub async fn find(settings: &Settings) -> anyhow::Result<Option<Self>> {
        let Some(kubernetes) = &settings.kubernetes else { return Ok(None) };
        let client = ClientSettings {
            kubeconfigs: kubernetes.kubeconfig.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ClientSettings::default()
        };
        let client = connect(&client).await.context("Kubernetes")?;
        Ok(Some(Self { client, settings: kubernetes.clone() }))
    }

    /// The settings with the router document as the ConfigMap has it now. Where that cannot be had in time or used, the
    /// router starts with what it has, and takes the document over as soon as it can be.
    pub async fn with_document(&self, settings: Settings) -> Settings {
        let Some(map) = &self.settings.config_map else { return settings };
        let read = config_map::read(self.client.clone(), &map.namespace, &map.name, &map.key);
        let text = match tokio::time::timeout(FIRST_DOCUMENT, read).await {
            Ok(Ok(Some(text))) => text,
            Ok(Ok(None)) => return settings,
            Ok(Err(problem)) => {
                tracing::warn!("ConfigMap {map} cannot be read yet: {problem}");
                return settings;
            }
            Err(_) => {
                tracing::warn!("ConfigMap {map} cannot be read yet: no answer in {FIRST_DOCUMENT:?}");
                return settings;
            }
        };
        match settings.reload_document(&text) {
            Ok(next) => {
                next.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                next
            }
            // Said when it is followed.
            Err(_) => settings,
        }
    }

    /// Begins to watch. What is known of the cluster arrives at the household; the router is not ready before.
    pub fn start(
        self,
        settings: &Arc<Settings>,
        house: &Arc<House>,
        household: &Arc<Household>,
        stop: &CancellationToken,
    ) -> Cluster {
        let Self { client, settings: kubernetes } = self;
        let sink = Arc::new(Sink(Arc::clone(household))) as Arc<dyn PlanSink>;
        let mut options = room_options(&kubernetes, settings);
        options.failed_ports = house.gateway.ports.failed();
        let room = Arc::new(Room::start(client.clone(), options, sink, stop.clone()));
        open_gates(&room, house, stop);
        let webhook = kubernetes.webhook.as_ref().map(|webhook| {
            let options = webhook_options(webhook, settings.listen.ip(), &kubernetes.namespace);
            Arc::new(Webhook::start(Some(client.clone()), options, stop.clone()))
        });
        let documents = kubernetes.config_map.map(|map| {
            let documents = Arc::new(Documents::new(&map, settings, house, household));
            follow(client, map, Arc::clone(&documents), stop);
            documents
        });
        let view = View::new(Arc::clone(&room), Arc::clone(&house.gateway.state), webhook.clone(), documents);
        house.gateway.exhibits.show(&["kubernetes", "config_dump"], Arc::new(view));
        Cluster { room, webhook }
    }
}

/// Everything that runs over the cluster.
#[derive(Debug)]
pub struct Cluster {
    room: Arc<Room>,
    webhook: Option<Arc<Webhook>>,
}

impl Cluster {
    /// Waits until everything has ended after the stop, and the lease is given back.
    pub async fn ended(&self) {
        self.room.ended().await;
        if let Some(webhook) = &self.webhook {
            webhook.ended().await;
        }
    }
}

/// Where plans go.
struct Sink(Arc<Household>);

impl PlanSink for Sink {
    fn apply(&self, plan: Plan) {
        self.0.apply(plan);
    }
}

fn room_options(kubernetes: &KubernetesSettings, settings: &Settings) -> RoomOptions {
    let replica = settings.replica_name.clone().unwrap_or_else(own_name);
    let mut options = RoomOptions::new(kubernetes.namespace.clone(), replica, settings.listen.port());
    let webhook_port = kubernetes.webhook.as_ref().map(|webhook| webhook.port);
    let taken = [settings.metrics_listen.port(), settings.admin_listen.port()];
    options.translate = Options {
        gateway_api: kubernetes.gateway_api,
        inference_extension: kubernetes.inference_extension,
        gateway_class: kubernetes.gateway_class.clone(),
        taken_ports: taken.into_iter().chain(webhook_port).collect(),
        addresses: kubernetes.gateway_addresses.clone(),
        ..Options::default()
    };
    options.lease.clone_from(&kubernetes.lease_name);
    options.watch_namespace.clone_from(&kubernetes.watch_namespace);
    // Statuses are the only calls whose number grows with the cluster.
    let per_second = NonZeroU32::new(kubernetes.api_qps.ceil().min(f64::from(u32::MAX)) as u32);
    options.status_rate = per_second.unwrap_or(options.status_rate);
    options.status_burst = NonZeroU32::new(kubernetes.api_burst).unwrap_or(options.status_burst);
    options
}

/// A name that no other replica has, where the settings give none.
fn own_name() -> String {
    format!("kvasir-{:016x}", rand::random::<u64>())
}

fn webhook_options(webhook: &WebhookSettings, ip: IpAddr, namespace: &str) -> WebhookOptions {
    WebhookOptions {
        listen: SocketAddr::new(ip, webhook.port),
        cert_file: webhook.cert_file.clone(),
        key_file: webhook.key_file.clone(),
        secret: ObjectName::new(namespace, webhook.secret_name.as_str()),
        service_name: webhook.service_name.clone(),
        configuration_name: webhook.configuration_name.clone(),
        manage_certificate: webhook.manage_certificate,
    }
}

/// One gate for each kind, so that `/readyz` says which of them the router waits for, and one for the first plan.
fn open_gates(room: &Arc<Room>, house: &Arc<House>, stop: &CancellationToken) {
    let readiness = &house.gateway.readiness;
    let first = readiness.wait_for("kubernetes: the first plan");
    let mut gates: Vec<_> = room
        .pending()
        .into_iter()
        .map(|kind| (kind, readiness.wait_for(format!("kubernetes: the first list of {kind}"))))
        .collect();
    let (room, stop) = (Arc::clone(room), stop.clone());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while !gates.is_empty() {
            let pending = room.pending();
            let (closed, open) = gates.into_iter().partition(|(kind, _)| pending.contains(kind));
            gates = closed;
            let open: Vec<(&str, kvasir_gateway::Gate)> = open;
            open.into_iter().for_each(|(_, gate)| gate.open());
            tokio::time::sleep(LOOK).await;
        }
        room.synced().await;
        first.open();
    }));
}

fn follow(
    client: kvasir_controllers::Client,
    map: ConfigMapRef,
    documents: Arc<Documents>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    let on_text = Arc::new(move |text: &str| documents.take(text));
    tokio::spawn(async move {
        config_map::watch(client, &map.namespace, &map.name, &map.key, on_text, stop).await;
    });
}
