//! The little world of one case: its namespaces, objects, pods with their engines, and its router.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kvasir_suite::cluster::{
    Cluster, PodDraft, apply, delete, delete_pod, restart_containers, set_phase, set_ready,
};
use kvasir_suite::echo::{Echo, Manner, loopback};
use kvasir_suite::router::Router;
use serde_json::{Value, json};

use super::format::{Answers, Case, Mode, Names, PodSpec, Scope, Step, named};
use super::objects;
use crate::routers::{free_port, watching};

/// Ports that a case may name.
const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// How long a pod that is deleted with grace stays: longer than any case.
const GRACE_SECONDS: u32 = 600;

pub struct World {
    pub client: Client,
    /// The case's namespace.
    pub space: String,
    /// Ports by letter; the router's own has none.
    pub ports: BTreeMap<String, u16>,
    /// Whether something changed since the last check that held.
    pub changed: bool,
    pods: BTreeMap<String, Housed>,
    /// What has to be taken away again.
    made: Vec<Value>,
    router: Option<Router>,
    /// Ports that somebody else listens on.
    taken: BTreeMap<String, TcpListener>,
}

/// A pod with its engines.
struct Housed {
    namespace: String,
    ip: IpAddr,
    engines: Vec<Echo>,
}

impl World {
    /// A world without anything in it, and the case with its names.
    pub async fn new(cluster: &Cluster, written: &Value) -> Result<(Self, Case)> {
        let client = cluster.client().await?;
        let space = cluster.namespace("case").await?;
        let mut names = Names::from([("$NS".to_owned(), Value::from(space.clone()))]);
        let mut ports = BTreeMap::from([(String::new(), free_port())]);
        names.insert("$PORT".to_owned(), ports[""].into());
        for letter in LETTERS {
            let port = free_port();
            names.insert(format!("$PORT_{letter}"), port.into());
            ports.insert(letter.to_owned(), port);
        }
        let others = written.get("namespaces").and_then(Value::as_object);
        for (key, labels) in others.into_iter().flatten() {
            let name = cluster.namespace("case").await?;
            let patch = json!({"metadata": {"labels": labels}});
            let namespaces: Api<Namespace> = Api::all(client.clone());
            namespaces.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            names.insert(format!("$NS_{}", key.to_uppercase()), name.into());
        }
        let case = named(written, &names).context("the case cannot be read")?;
        let world = Self {
            client,
            space,
            ports,
            changed: true,
            pods: BTreeMap::new(),
            made: Vec::new(),
            router: None,
            taken: BTreeMap::new(),
        };
        Ok((world, case))
    }

    /// Everything that the case begins with, and a router over it.
    pub async fn begin(&mut self, cluster: &Cluster, case: &Case) -> Result<()> {
        for letter in &case.taken {
            let listener = TcpListener::bind(("127.0.0.1", self.port(Some(letter))?))?;
            self.taken.insert(letter.clone(), listener);
        }
        if !case.older.is_empty() {
            self.apply(&case.older).await?;
            next_second().await;
        }
        self.apply(&case.objects).await?;
        let servers = case.servers.iter().map(|name| objects::server(name));
        let pools = case.pools.iter().map(|name| objects::pool(name));
        self.apply(&servers.chain(pools).collect::<Vec<_>>()).await?;
        for name in case.servers.iter().chain(&case.pools) {
            if !case.pods.iter().any(|pod| pod.name == *name) {
                self.make_pod(&serde_json::from_value(json!({"name": name}))?).await?;
            }
        }
        for pod in &case.pods {
            self.make_pod(pod).await?;
        }
        self.start_router(cluster, case).await
    }

    async fn start_router(&mut self, cluster: &Cluster, case: &Case) -> Result<()> {
        let mut settings = watching(cluster.kubeconfig(), &self.space);
        settings.listen.set_port(self.port(None)?);
        if let Some(kubernetes) = &mut settings.kubernetes {
            kubernetes.gateway_api = case.mode != Mode::Default;
            kubernetes.inference_extension = case.mode == Mode::Inference;
            if case.scope == Scope::Cluster {
                kubernetes.watch_namespace = None;
            }
        }
        self.router = Some(Router::start(settings).await?);
        Ok(())
    }

    /// Takes everything away that others could see.
    pub async fn end(mut self) -> Result<()> {
        if let Some(router) = self.router.take() {
            router.stop().await?;
        }
        for object in self.made.iter().rev() {
            delete(&self.client, &self.space, &object.to_string()).await?;
        }
        for (name, pod) in &self.pods {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            if pods.get_opt(name).await?.is_some() {
                delete_pod(&self.client, &pod.namespace, name, 0).await?;
            }
        }
        Ok(())
    }

    /// The port of a letter, the router's own without one.
    pub fn port(&self, letter: Option<&str>) -> Result<u16> {
        let letter = letter.unwrap_or_default();
        self.ports.get(letter).copied().with_context(|| format!("there is no port {letter:?}"))
    }

    /// Makes the changes of a step.
    pub async fn change(&mut self, step: &Step) -> Result<()> {
        self.apply(&step.apply).await?;
        for named in &step.delete {
            let (kind, name) = named.split_once('/').context("what is deleted is written Kind/name")?;
            let object =
                objects::whole(&json!({"kind": kind, "name": name})).map_err(|error| anyhow!(error))?;
            delete(&self.client, &self.space, &object.to_string()).await?;
            self.changed = true;
        }
        for letter in &step.free {
            self.taken.remove(letter).with_context(|| format!("nobody has the port {letter}"))?;
            self.changed = true;
        }
        for pod in &step.pods {
            self.make_pod(pod).await?;
        }
        for (name, ready) in &step.ready {
            let pod = self.changed_pod(name)?;
            set_ready(&self.client, &self.pods[&pod].namespace, name, *ready).await?;
        }
        for (name, phase) in &step.phase {
            let pod = self.changed_pod(name)?;
            set_phase(&self.client, &self.pods[&pod].namespace, name, phase).await?;
        }
        for (name, labels) in &step.labels {
            let pod = self.changed_pod(name)?;
            self.relabel(&pod, labels).await?;
        }
        for name in &step.restart {
            let pod = self.changed_pod(name)?;
            let at = Timestamp::now();
            restart_containers(&self.client, &self.pods[&pod].namespace, name, at).await?;
        }
        for (names, seconds) in [(&step.terminate, GRACE_SECONDS), (&step.remove, 0)] {
            for name in names {
                let pod = self.changed_pod(name)?;
                delete_pod(&self.client, &self.pods[&pod].namespace, name, seconds).await?;
            }
        }
        for (name, answers) in &step.answers {
            let pod = self.pods.get(name).with_context(|| format!("there is no pod {name}"))?;
            pod.engines.iter().for_each(|engine| engine.behave(manner(answers)));
        }
        Ok(())
    }

    fn changed_pod(&mut self, name: &str) -> Result<String> {
        if !self.pods.contains_key(name) {
            bail!("there is no pod {name}");
        }
        self.changed = true;
        Ok(name.to_owned())
    }

    async fn apply(&mut self, short: &[Value]) -> Result<()> {
        for short in short {
            let object = objects::whole(short).map_err(|error| anyhow!(error))?;
            apply(&self.client, &self.space, &object.to_string()).await?;
            self.changed = true;
            // Nobody finishes what is in a namespace, so none ever goes away.
            if object["kind"] != "Namespace" {
                self.made.push(object);
            }
        }
        Ok(())
    }

    async fn relabel(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.pods[name].namespace);
        let mut pod = pods.get(name).await?;
        pod.metadata.labels = Some(labels.clone());
        pods.replace(name, &PostParams::default(), &pod).await?;
        Ok(())
    }

    async fn make_pod(&mut self, spec: &PodSpec) -> Result<()> {
        let namespace = spec.namespace.clone().unwrap_or_else(|| self.space.clone());
        let ip = match &spec.shares {
            Some(other) => self.pods.get(other).map(|pod| pod.ip).context("it shares with nobody")?,
            None if spec.ipv6 => IpAddr::from(Ipv6Addr::LOCALHOST),
            None => IpAddr::from(loopback()),
        };
        let mut engines = Vec::new();
        for port in spec.ports.iter().filter(|_| spec.engine) {
            let address = SocketAddr::new(ip, *port);
            let engine = Echo::start(&spec.name, address, spec.models.clone(), spec.tls.as_deref()).await?;
            engine.behave(manner(&spec.answers));
            engines.push(engine);
        }
        let app = || BTreeMap::from([("app".to_owned(), spec.name.clone())]);
        let mut draft = PodDraft::new(&spec.name, &ip.to_string()).phase(&spec.phase).ready(spec.ready);
        for (name, value) in spec.labels.clone().unwrap_or_else(app) {
            draft = draft.label(&name, &value);
        }
        for (name, value) in &spec.annotations {
            draft = draft.annotation(name, value);
        }
        draft.create(&self.client, &namespace).await?;
        self.pods.insert(spec.name.clone(), Housed { namespace, ip, engines });
        self.changed = true;
        Ok(())
    }
}

fn manner(answers: &Answers) -> Manner {
    Manner {
        status: answers.status.unwrap_or(200),
        headers: answers.headers.clone().into_iter().collect(),
        after: Duration::from_millis(answers.after_ms),
        times: answers.times,
    }
}

/// Objects say in whole seconds when they were made.
async fn next_second() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let rest = Duration::from_secs(1) - Duration::from_nanos(u64::from(now.subsec_nanos()));
    tokio::time::sleep(rest + Duration::from_millis(10)).await;
}
