//! The same view over Sentinel and Cluster, with a failover and a slot that moves.

use std::time::Instant;

use kvasir_coordination::testing::{TestCluster, TestSentinel};

use crate::fleet::{Fleet, Traffic, quick};
use crate::outages::{Cost, report};

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_failover() {
    let sentinel = TestSentinel::start().await;
    let mut fleet = Fleet::start(&quick(), sentinel.settings()).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    let traffic = Traffic::start(&fleet.router, fleet.seeds);
    let begun = Instant::now();
    sentinel.fail_over().await;
    fleet.fill(2).await;
    let figures = traffic.end().await;
    fleet.until_true("the view is whole behind the new master").await;
    report("a Sentinel failover", &Cost { seen: None, whole: begun.elapsed(), figures });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves() {
    let cluster = TestCluster::start(3).await;
    let mut fleet = Fleet::start(&quick(), cluster.settings()).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    let traffic = Traffic::start(&fleet.router, fleet.seeds);
    let begun = Instant::now();
    // The slots of all streams go to one master. With several targets in quick succession the masters may never agree,
    // because a later claim of one has an epoch that the others have not heard of.
    for stream in 0..16 {
        let slot = cluster.slot(&format!("kvasir:1:{{kv{stream:02}}}:deltas")).await;
        let from = cluster.master_of(slot).await;
        if from != 0 {
            cluster.move_slot(slot, from, 0).await;
        }
    }
    fleet.fill(2).await;
    let figures = traffic.end().await;
    fleet.until_true("the view is whole behind the moved slots").await;
    report("the streams' slots moved in Cluster", &Cost { seen: None, whole: begun.elapsed(), figures });
}
