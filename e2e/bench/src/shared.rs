//! What one view through Redis costs: lookups for each request, and a mirror that follows 64 owners.

pub mod bare;
pub mod lookup;
pub mod mirror;
pub mod processor;
pub mod reader;
pub mod steps;

use std::time::Duration;

use anyhow::Context as _;
use kvasir_coordination::PublishedOwner;
use kvasir_coordination::testing::TestServer;
use kvasir_core::{EndpointId, EngineKind, ModelName, OwnerSlot};

/// A wait that is no matter of a busy machine any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The model of every owner.
fn model() -> ModelName {
    ModelName::from("bench")
}

/// So many owners, as agents publish them.
fn owners(count: u32) -> Vec<PublishedOwner> {
    (0..count)
        .map(|number| PublishedOwner {
            id: EndpointId::new("default", format!("vllm-{number}"), 8000, 0),
            slot: OwnerSlot(number),
            model: model(),
            engine: EngineKind::Vllm,
            adapters: Vec::new(),
        })
        .collect()
}

/// A number that a server tells of itself.
async fn told(server: &TestServer, section: &str, name: &str) -> anyhow::Result<f64> {
    // On a machine that is busy elsewhere a first answer may be late.
    let mut answer = Err(String::new());
    for _ in 0..5 {
        answer = server.try_ask(&["INFO", section]).await;
        if answer.is_ok() {
            break;
        }
    }
    let text = answer.map_err(anyhow::Error::msg)?.join("\n");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("the server does not tell {name}"))?.trim().parse()?)
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("never happened: {what}"))
}
