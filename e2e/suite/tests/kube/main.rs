//! Against a real Kubernetes API: etcd and kube-apiserver, which `e2e/kube/setup.sh` builds.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod cases;
mod chart;
mod crds;
mod docs;
mod harness;
mod rbac;
mod refusals;
mod routers;
mod statuses;
