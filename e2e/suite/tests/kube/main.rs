//! Against a real Kubernetes API: etcd and kube-apiserver, which `e2e/kube/setup.sh` builds.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod agent;
mod cases;
mod chart;
mod crds;
mod docs;
mod dropin;
mod examples;
mod harness;
mod probes;
mod process;
mod rbac;
mod refusals;
mod reload;
mod rolling;
mod routers;
mod scale;
mod statuses;
mod tokenizers;
mod webhook;
