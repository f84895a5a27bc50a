//! Pods come and go under load, and the API server too: no request may notice.
//!
//! Outages last as long as `KVASIR_OUTAGE_MS` says, three seconds by default; `make faults-long` makes them long.

mod fleet;

use std::time::{Duration, Instant};

use kvasir_coordination::testing::{Proxy, Weather};
use kvasir_suite::cluster::{Cluster, Crds, delete_pod, install_crds, set_ready};
use kvasir_suite::report::Report;

use fleet::{Cost, Fleet, Load, until};

/// How long an engine goes on after its pod's deletion mark.
const GRACE: Duration = Duration::from_millis(2_500);

/// How long after its deletion mark a pod may get requests.
const LATE: Duration = Duration::from_secs(1);

/// How long after an outage everything must be as it should: three times the longest wait between two tries.
const WHOLE: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "how long a test's outage lasts is no setting of the router")]
fn outage() -> Duration {
    let said = std::env::var("KVASIR_OUTAGE_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(said.unwrap_or(3_000))
}

/// Writes a row, and holds what must hold whatever happens.
fn report(event: &str, seen: Option<Duration>, whole: Duration, load: &Cost, fleet: &Fleet) {
    let millis = |took: Duration| format!("{:.0}", took.as_secs_f64() * 1e3);
    let row = vec![
        event.to_owned(),
        seen.map_or_else(|| "-".to_owned(), millis),
        millis(whole),
        load.requests.to_string(),
        load.lost.to_string(),
        format!("{:.1}", load.median_ms),
        format!("{:.1}", load.longest_ms),
    ];
    let header = [
        "cluster event",
        "seen after ms",
        "whole again after ms",
        "requests",
        "lost",
        "p50 ms",
        "longest ms",
    ];
    Report::table(&format!("{event} ({} ms)", outage().as_millis()), &header, &[row]).publish().unwrap();
    assert!(load.requests > 100, "{event}: only {} requests", load.requests);
    assert_eq!(load.lost, 0, "{event}: requests were lost: {}{}", load.errors, fleet.failures());
    assert!(whole < WHOLE, "{event}: {whole:?}");
}

/// A cluster that may be killed.
async fn own_cluster() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    install_crds(&cluster.client().await.unwrap(), Crds::Ours).await.unwrap();
    cluster
}

/// Eight pods are replaced one by one, as a Deployment does it: a new one is made and becomes ready, then an old one is
/// told to end, whose engine goes on for a while and then is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_loses_no_request() {
    const PODS: usize = 8;
    let cluster = Cluster::shared().await.unwrap();
    let mut fleet = Fleet::start(cluster, cluster.kubeconfig(), PODS).await;
    let load = Load::start(&fleet.router, &[true, false]);
    fleet.until_all_serve().await;

    let began = Instant::now();
    let mut ending = Vec::new();
    for number in 0..PODS {
        let (old, new) = (format!("pod-{number}"), format!("new-{number}"));
        fleet.add(&new, false).await;
        set_ready(&fleet.client, &fleet.space, &new, true).await.unwrap();
        until("the new pod serves", || fleet::asked(&fleet.engines[&new]) > 0).await;
        ending.push(tokio::spawn(end(
            fleet.client.clone(),
            fleet.space.clone(),
            old.clone(),
            fleet.take(&old),
        )));
    }
    let mut worst = Duration::ZERO;
    for ended in ending {
        let Ended { name, last, late } = ended.await.unwrap();
        assert_eq!(late, 0, "{name} got requests more than {LATE:?} after its deletion mark");
        worst = worst.max(last);
    }
    let whole = began.elapsed();
    report("rolling update of 8 pods", Some(worst), whole, &load.end().await, &fleet);
    fleet.router.stop().await.unwrap();
}

/// What an old pod still got.
struct Ended {
    name: String,
    /// From just before the deletion was asked for to the last request.
    last: Duration,
    /// Requests after that and [`LATE`].
    late: usize,
}

async fn end(client: kube::Client, space: String, name: String, engine: kvasir_mock_engine::Engine) -> Ended {
    engine.clear_requests();
    let mark = Instant::now();
    delete_pod(&client, &space, &name, 30).await.unwrap();
    let (mut last, mut in_time, mut all) = (Duration::ZERO, 0, 0);
    while mark.elapsed() < GRACE {
        let (now, count) = (mark.elapsed(), fleet::asked(&engine));
        if count > all {
            (last, all) = (now, count);
        }
        if now < LATE {
            in_time = count;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // It has finished what it had long before.
    engine.stop().await;
    delete_pod(&client, &space, &name, 0).await.unwrap();
    Ended { name, last, late: all - in_time }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_killed_is_not_missed() {
    let mut cluster = own_cluster().await;
    let kubeconfig = cluster.kubeconfig().to_owned();
    let mut fleet = Fleet::start(&cluster, &kubeconfig, 4).await;
    let load = Load::start(&fleet.router, &[true, false]);
    fleet.until_all_serve().await;

    let killed = Instant::now();
    cluster.kill();
    until("the router says so", || fleet.is_cut_off()).await;
    let seen = killed.elapsed();
    tokio::time::sleep(outage()).await;
    assert!(fleet.engines.values().all(|engine| fleet.serves(engine)), "an outage took pods out of service");

    cluster.restart().await.unwrap();
    let mended = Instant::now();
    let gone = fleet.change().await;
    fleet.until_changed(WHOLE).await;
    let whole = mended.elapsed();
    fleet.until_said(WHOLE).await;
    report("the API server killed", Some(seen), whole, &load.end().await, &fleet);
    drop(gone);
    fleet.router.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_hangs_is_not_missed() {
    let cluster = own_cluster().await;
    let mut fleet = Fleet::start(&cluster, cluster.kubeconfig(), 4).await;
    let load = Load::start(&fleet.router, &[true, false]);
    fleet.until_all_serve().await;

    cluster.pause().unwrap();
    tokio::time::sleep(outage()).await;
    assert!(fleet.engines.values().all(|engine| fleet.serves(engine)), "an outage took pods out of service");

    cluster.resume().unwrap();
    let mended = Instant::now();
    let gone = fleet.change().await;
    fleet.until_changed(WHOLE).await;
    let whole = mended.elapsed();
    fleet.until_said(WHOLE).await;
    report("the API server paused", None, whole, &load.end().await, &fleet);
    drop(gone);
    fleet.router.stop().await.unwrap();
}

/// While the router cannot see the API server, a pod is deleted and its engine dies, another pod and another route are
/// made, and the API server is started anew: it knows nothing of the past, so that the router's watches end with 410.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_out_of_sight_is_seen_afterwards() {
    let mut cluster = own_cluster().await;
    let port = cluster.url().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
    let proxy = Proxy::start(port).await;
    let kubeconfig = cluster.folder().join("proxied.kubeconfig");
    let direct = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let proxied = direct.replace(&cluster.url(), &format!("https://127.0.0.1:{}", proxy.node().port));
    assert_ne!(direct, proxied);
    std::fs::write(&kubeconfig, proxied).unwrap();

    let mut fleet = Fleet::start(&cluster, &kubeconfig, 4).await;
    // A stream that its engine leaves in the middle is lost whoever routes it.
    let load = Load::start(&fleet.router, &[false, false]);
    fleet.until_all_serve().await;

    let cut = Instant::now();
    proxy.set(Weather::Cut);
    until("the router says so", || fleet.is_cut_off()).await;
    let seen = cut.elapsed();
    fleet.change().await.stop().await;
    tokio::time::sleep(outage()).await;
    assert!(!fleet.knows_the_changes(), "the router is not cut off at all");
    cluster.restart().await.unwrap();

    proxy.set(Weather::Fair);
    let mended = Instant::now();
    fleet.until_changed(WHOLE).await;
    let whole = mended.elapsed();
    fleet.until_said(WHOLE).await;
    let event = "the API server out of reach, then without a past";
    report(event, Some(seen), whole, &load.end().await, &fleet);
    fleet.router.stop().await.unwrap();
}
