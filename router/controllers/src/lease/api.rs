//! The calls about a lease.

use std::fmt::Display;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::watch::causes;

/// Where the lease is.
pub(crate) trait LeaseApi: Send + Sync {
    /// Why a call failed.
    type Problem: Display + Send;

    /// The lease, if there is one.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, Self::Problem>> + Send;
    /// Makes it. `None`: another was faster.
    fn create(&self, spec: LeaseSpec) -> impl Future<Output = Result<Option<Lease>, Self::Problem>> + Send;
    /// Writes it, if it is still what was read. `None`: it is not.
    fn replace(&self, lease: Lease) -> impl Future<Output = Result<Option<Lease>, Self::Problem>> + Send;
}

/// A lease in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterLease {
    api: Api<Lease>,
    name: String,
}

impl ClusterLease {
    /// The lease of this name.
    pub(crate) fn new(client: Client, namespace: &str, name: impl Into<String>) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.into() }
    }
}

impl LeaseApi for ClusterLease {
    type Problem = String;

    async fn read(&self) -> Result<Option<Lease>, String> {
        self.api.get_opt(&self.name).await.map_err(|error| causes(&error))
    }

    async fn create(&self, spec: LeaseSpec) -> Result<Option<Lease>, String> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(spec) };
        unless_another_was_faster(self.api.create(&PostParams::default(), &lease).await)
    }

    async fn replace(&self, lease: Lease) -> Result<Option<Lease>, String> {
        unless_another_was_faster(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }
}

fn unless_another_was_faster(answer: kube::Result<Lease>) -> Result<Option<Lease>, String> {
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(causes(&error)),
    }
}
