//! Hundreds of pods and routes that change all the time under requests; `make bench` measures thousands.

use std::time::Duration;

use kvasir_settings::kubernetes::KubernetesSettings;
use kvasir_suite::GUARD;
use kvasir_suite::cluster::{Cluster, Crds, install_crds};
use kvasir_suite::router::{Router, settings};
use kvasir_suite::scale::{Changes, Fleet, Hosts, Line, Load, PodNumber, Size, model_name};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const SIZE: Size = Size { servers: 25, pods_each: 8, routes: 100, hot: 8 };
const CHANGES: Changes = Changes { per_second: 50, lasts: Duration::from_secs(5) };

/// Every request is answered, by a pod that its route led to at some moment of the last second, under the name that this
/// pod serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_never_fail_a_request_nor_apply_to_a_half_of_it() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Ours).await.unwrap();
    let space = cluster.namespace("scale").await.unwrap();
    let hosts = Hosts::start().await.unwrap();
    let fleet = Fleet::make(&client, &space, SIZE, hosts.port).await.unwrap();
    let mut settings = settings(&[]).unwrap();
    settings.models.clear();
    settings.kubernetes = Some(KubernetesSettings {
        kubeconfig: vec![cluster.kubeconfig().to_owned()],
        in_cluster: false,
        ..KubernetesSettings::default()
    });
    let router = Router::start(settings).await.unwrap();
    until_ready(&router).await;
    assert_eq!(router.gateway.state.endpoints().len(), SIZE.pods());

    let load = Load { router: router.inference, pods: None, clients: 8, per_second: 100 };
    let stop = CancellationToken::new();
    let (heard, made) = tokio::join!(load.run(&fleet, &stop), async {
        let made = CHANGES.make(&fleet).await;
        stop.cancel();
        made
    });
    let (heard, made) = (heard.unwrap(), made.unwrap());
    assert_eq!((heard.failed, heard.wrong), (0, 0), "{:?} after {made:?}", heard.first);
    assert!(heard.routed.len() > 100, "{} requests", heard.routed.len());
    let kinds = [made.routes, made.flips, made.added, made.removed];
    assert!(kinds.iter().all(|count| *count > 10), "{made:?}");

    // What was said last holds in the end.
    let mut line = Line::new(router.inference);
    for route in 0..SIZE.hot {
        let server = fleet.truth.target(route).unwrap();
        let deadline = Instant::now() + GUARD;
        loop {
            let told = line.ask(&model_name(route)).await.unwrap();
            if matches!(told.answer, Some((PodNumber { server: answered, .. }, _)) if answered == server) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{} never leads to server {server}: {told:?}",
                model_name(route)
            );
            sleep(Duration::from_millis(5)).await;
        }
    }
    router.stop().await.unwrap();
}

/// A router serves before it is ready; nothing is asked of it until every kind was listed.
async fn until_ready(router: &Router) {
    let mut line = Line::new(router.inference);
    let deadline = Instant::now() + GUARD;
    while !matches!(line.get("/readyz").await, Ok((200, _))) {
        assert!(Instant::now() < deadline, "the router is never ready");
        sleep(Duration::from_millis(5)).await;
    }
}
