//! How the cluster looks from here: `/debug/kubernetes`, `/debug/config_dump`, metrics.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kvasir_controllers::webhook::{Source, Trusted, Webhook};
use kvasir_controllers::{KindStatus, Room, RoomStatus, dump};
use kvasir_gateway::Exhibit;
use kvasir_state::State;
use kvasir_telemetry::{Page, names};
use serde_json::{Value, json};

use super::document::Documents;
use super::pods;

/// Everything that is shown.
pub(super) struct View {
    room: Arc<Room>,
    state: Arc<State>,
    webhook: Option<Arc<Webhook>>,
    documents: Option<Arc<Documents>>,
}

impl View {
    pub(super) fn new(
        room: Arc<Room>,
        state: Arc<State>,
        webhook: Option<Arc<Webhook>>,
        documents: Option<Arc<Documents>>,
    ) -> Self {
        Self { room, state, webhook, documents }
    }

    fn summary(&self) -> Value {
        let status = self.room.status();
        json!({
            "synced": status.synced,
            "kinds": status.kinds.iter().map(kind).collect::<Vec<_>>(),
            "plans": status.translations,
            "last_plan_ms": status.last_translation.map(|took| took.as_secs_f64() * 1e3),
            "objects_passed_over": status.skipped,
            "leader": status.leader,
            "lease_holder": status.lease_holder,
            "statuses": {
                "written": status.statuses_written,
                "failed": status.status_failures,
                "waiting": status.statuses_waiting,
            },
            "webhook": self.webhook.as_deref().map(webhook),
            "router_document": self.documents.as_deref().map(document),
        })
    }
}

fn kind(kind: &KindStatus) -> Value {
    json!({
        "name": kind.name,
        "objects": kind.objects,
        "unreadable": kind.unreadable,
        "listed": kind.listed,
        "watch_restarts": kind.restarts,
        "last_event_s": kind.last_event_age.map(|age| age.as_secs()),
        "trouble": kind.trouble,
    })
}

fn webhook(webhook: &Webhook) -> Value {
    let status = webhook.status();
    let certificate = status.certificate.map(|certificate| {
        json!({
            "from": match certificate.source {
                Source::Files => "files",
                Source::Secret => "secret",
            },
            "until_unix_s": unix(certificate.until),
        })
    });
    json!({
        "address": status.address,
        "certificate": certificate,
        "trusted": match status.trusted {
            Trusted::Unknown => "unknown",
            Trusted::ByOthers => "by others",
            Trusted::Absent => "no configuration",
            Trusted::Yes => "yes",
        },
        "connections": status.connections,
        "problems": status.problems,
    })
}

fn document(documents: &Documents) -> Value {
    let (taken, rejected) = documents.status();
    json!({"config_map": documents.name(), "versions_taken_over": taken, "rejected": rejected})
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Exhibit for View {
    fn debug(&self, path: &str) -> Result<Value, String> {
        match path.split_once('/') {
            None if path == "kubernetes" => Ok(self.summary()),
            Some(("config_dump", what)) => {
                dump(&self.room.objects(), what).map(|dump| pods::with_live(dump, what, &self.state))
            }
            _ => Err("write /debug/kubernetes or /debug/config_dump/KIND".to_owned()),
        }
    }

    fn add_to(&self, page: &mut Page) {
        let status = self.room.status();
        add_kinds(&status, page);
        let mut number = |family: &names::Family, value: f64| page.family(family, [(Vec::new(), value)]);
        number(&names::KUBERNETES_SYNCED, f64::from(u8::from(status.synced)));
        number(&names::KUBERNETES_PLANS, status.translations as f64);
        if let Some(took) = status.last_translation {
            number(&names::KUBERNETES_PLAN_SECONDS, took.as_secs_f64());
        }
        number(&names::KUBERNETES_SKIPPED, status.skipped as f64);
        number(&names::KUBERNETES_LEADER, f64::from(u8::from(status.leader)));
        number(&names::KUBERNETES_STATUSES, status.statuses_written as f64);
        number(&names::KUBERNETES_STATUS_FAILURES, status.status_failures as f64);
        if let Some(documents) = &self.documents {
            let rejected = documents.status().1.is_some();
            number(&names::KUBERNETES_DOCUMENT_REJECTED, f64::from(u8::from(rejected)));
        }
    }
}

fn add_kinds(status: &RoomStatus, page: &mut Page) {
    let mut family = |family: &names::Family, number: &dyn Fn(&KindStatus) -> f64| {
        page.family(
            family,
            status.kinds.iter().map(|kind| (vec![kind.name], number(kind))).collect::<Vec<_>>(),
        );
    };
    family(&names::KUBERNETES_OBJECTS, &|kind| kind.objects as f64);
    family(&names::KUBERNETES_UNREADABLE, &|kind| kind.unreadable as f64);
    family(&names::KUBERNETES_WATCH_RESTARTS, &|kind| kind.restarts as f64);
    family(&names::KUBERNETES_WATCH_UP, &|kind| f64::from(u8::from(kind.is_watched())));
    // A kind of which nothing was heard has no age.
    let ages =
        status.kinds.iter().filter_map(|kind| Some((vec![kind.name], kind.last_event_age?.as_secs_f64())));
    page.family(&names::KUBERNETES_EVENT_AGE, ages.collect::<Vec<_>>());
}
