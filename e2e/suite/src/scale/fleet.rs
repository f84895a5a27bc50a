//! The objects of a large cluster, and changes to them, with the truth about them.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::truth::Truth;
use super::{PodNumber, Size, objects, route_name};

/// Calls at once while everything is made.
const AT_ONCE: usize = 16;

/// The fleet.
#[derive(Debug)]
pub struct Fleet {
    /// How large it is.
    pub size: Size,
    /// What it was when.
    pub truth: Truth,
    pods: Api<Pod>,
    routes: Api<DynamicObject>,
    servers: Api<DynamicObject>,
    port: u16,
}

impl Fleet {
    /// Makes all objects in a namespace; the engines of the pods listen on `port`.
    ///
    /// # Errors
    /// The API refuses one.
    pub async fn make(client: &Client, namespace: &str, size: Size, port: u16) -> Result<Arc<Self>> {
        let ours = |kind| Api::namespaced_with(client.clone(), namespace, &objects::resource(kind));
        let fleet = Arc::new(Self {
            size,
            truth: Truth::new(size),
            pods: Api::namespaced(client.clone(), namespace),
            routes: ours("ModelRoute"),
            servers: ours("ModelServer"),
            port,
        });
        let pods = (0..size.servers).flat_map(|server| {
            (0..size.pods_each).map(move |number| Thing::Pod(PodNumber { server, number }))
        });
        let things =
            (0..size.servers).map(Thing::Server).chain((0..size.routes).map(Thing::Route)).chain(pods);
        let (mut making, turns) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
        for thing in things {
            let (fleet, turn) = (Arc::clone(&fleet), Arc::clone(&turns).acquire_owned().await?);
            making.spawn(async move {
                let made = fleet.make_one(thing).await.with_context(|| format!("cannot make {thing:?}"));
                drop(turn);
                made
            });
            while let Some(made) = making.try_join_next() {
                made??;
            }
        }
        while let Some(made) = making.join_next().await {
            made??;
        }
        Ok(fleet)
    }

    async fn make_one(&self, thing: Thing) -> Result<()> {
        let params = PostParams::default();
        match thing {
            Thing::Server(number) => {
                self.servers.create(&params, &objects::server(number, self.port)).await?;
            }
            Thing::Route(number) => {
                self.routes.create(&params, &objects::route(self.size, number)).await?;
            }
            Thing::Pod(pod) => {
                self.make_pod(pod).await?;
            }
        }
        Ok(())
    }

    async fn make_pod(&self, pod: PodNumber) -> Result<Instant> {
        let object = serde_json::from_value(objects::pod(pod, self.port))?;
        self.pods.create(&PostParams::default(), &object).await?;
        self.patch_pod(pod, &objects::pod_status(pod, true, Timestamp::now())).await
    }

    async fn patch_pod(&self, pod: PodNumber, status: &serde_json::Value) -> Result<Instant> {
        self.pods.patch_status(&pod.name(), &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(Instant::now())
    }

    /// Points a route to another server. Gives the moment of the API's answer.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn point(&self, route: usize, server: usize) -> Result<Instant> {
        self.truth.pointing(route, server);
        let spec = json!({"spec": objects::route_spec(route, server)});
        self.routes.patch(&route_name(route), &PatchParams::default(), &Patch::Merge(&spec)).await?;
        let answered = Instant::now();
        self.truth.pointed(route, answered);
        Ok(answered)
    }

    /// Lets a pod be ready or not. Gives the moment of the API's answer.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_ready(&self, pod: PodNumber, is_ready: bool) -> Result<Instant> {
        self.truth.letting(pod, is_ready);
        let answered = self.patch_pod(pod, &objects::readiness(is_ready)).await?;
        self.truth.let_be(pod, answered);
        Ok(answered)
    }

    /// Makes one more pod, ready.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn add(&self, pod: PodNumber) -> Result<Instant> {
        self.truth.letting(pod, true);
        let answered = self.make_pod(pod).await?;
        self.truth.let_be(pod, answered);
        Ok(answered)
    }

    /// Takes a pod away, without time to end in.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn remove(&self, pod: PodNumber) -> Result<Instant> {
        self.truth.letting(pod, false);
        self.pods.delete(&pod.name(), &DeleteParams::default().grace_period(0)).await?;
        let answered = Instant::now();
        self.truth.let_be(pod, answered);
        Ok(answered)
    }
}

#[derive(Clone, Copy, Debug)]
enum Thing {
    Server(usize),
    Route(usize),
    Pod(PodNumber),
}
