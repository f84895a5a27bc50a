//! Whatever happens to the stream, the chunks and the readers: at rest all readers have what the writer has.

use kvasir_core::{HeldOn, SystemClock};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

use super::fleet::{Agent, Router, hash, keys, quick_mirror, quick_publisher, until};
use crate::key;
use crate::publish::{PublisherOptions, PublisherState};
use crate::testing::TestServer;

#[derive(Clone, Debug)]
enum Event {
    Change { owner: u32, blocks: Vec<(u64, bool, bool)> },
    Many { owner: u32, from: u64, count: u64, held: bool },
    RestartEngine { owner: u32 },
    Trim { keep: u8 },
    Flush,
    DropHead { owner: u32 },
    RestartReader,
    RestartAgent { killed: bool },
    Wait { ms: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let owner = 0..2u32;
    let blocks = proptest::collection::vec((0..300u64, any::<bool>(), any::<bool>()), 1..40);
    let event = prop_oneof![
        12 => (owner.clone(), blocks).prop_map(|(owner, blocks)| Event::Change { owner, blocks }),
        3 => (owner.clone(), 0..5000u64, 1..3000u64, any::<bool>())
            .prop_map(|(owner, from, count, held)| Event::Many { owner, from, count, held }),
        1 => owner.clone().prop_map(|owner| Event::RestartEngine { owner }),
        2 => (0..20u8).prop_map(|keep| Event::Trim { keep }),
        1 => Just(Event::Flush),
        1 => owner.prop_map(|owner| Event::DropHead { owner }),
        2 => Just(Event::RestartReader),
        1 => any::<bool>().prop_map(|killed| Event::RestartAgent { killed }),
        6 => (0..60u64).prop_map(|ms| Event::Wait { ms }),
    ];
    proptest::collection::vec(event, 1..60)
}

fn options() -> PublisherOptions {
    PublisherOptions {
        lease: Duration::from_millis(400),
        fold_after: Duration::from_millis(30),
        most_changes: 2000,
        ..quick_publisher()
    }
}

async fn run(server: &TestServer, events: Vec<Event>) {
    server.ask(&["FLUSHALL"]).await;
    let redis = server.redis().await;
    let mut agent = Agent::start(&redis, 2, options());
    let mut readers =
        vec![Router::start(&redis, 2, quick_mirror()), Router::start(&redis, 2, quick_mirror())];
    for event in events {
        match event {
            Event::Change { owner, blocks } => {
                for (block, gpu, held) in blocks {
                    let on = if gpu { HeldOn::Gpu } else { HeldOn::OtherTier };
                    agent.journal.change(owner, hash(block), on, held);
                }
            }
            Event::Many { owner, from, count, held: true } => agent.journal.store(owner, from..from + count),
            Event::Many { owner, from, count, held: false } => agent.journal.evict(owner, from..from + count),
            Event::RestartEngine { owner } => agent.journal.restart_engine(owner),
            Event::Trim { keep } => {
                for stream in [keys(0).0, keys(1).0] {
                    server.ask(&["XTRIM", &key::deltas(stream), "MAXLEN", &keep.to_string()]).await;
                }
            }
            Event::Flush => {
                server.ask(&["FLUSHALL"]).await;
            }
            Event::DropHead { owner } => {
                server.ask(&["DEL", &keys(owner).1]).await;
            }
            Event::RestartReader => {
                readers.remove(0);
                readers.push(Router::start(&redis, 2, quick_mirror()));
            }
            Event::RestartAgent { killed } => {
                let journal = Arc::clone(&agent.journal);
                if killed {
                    drop(agent);
                } else {
                    agent.stop().await;
                }
                agent = Agent::with(&redis, journal, options(), Arc::new(SystemClock));
            }
            Event::Wait { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
    readers.push(Router::start(&redis, 2, quick_mirror()));
    for reader in &readers {
        reader.has(&agent.journal, 0..2).await;
    }
    // At rest: nothing more changes what was reached.
    until(|| (0..2).all(|owner| agent.status(owner).state == PublisherState::Following)).await;
    agent.journal.store(0, 10_000..10_001);
    for reader in &readers {
        reader.has(&agent.journal, 0..2).await;
    }
}

#[test]
fn at_rest_all_readers_have_what_the_writer_has() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = runtime.block_on(TestServer::start());
    let config = ProptestConfig {
        cases: 24,
        max_shrink_iters: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(events in events())| {
        runtime.block_on(run(&server, events));
    });
}
