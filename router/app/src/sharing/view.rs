//! How the shared view looks from here: `/debug/coordination`, the summary in `/readyz`, metrics.

use std::sync::Arc;
use std::time::Instant;

use kvasir_coordination::kthena::{Garbage, LookupStats};
use kvasir_coordination::load::LoadExchange;
use kvasir_coordination::{
    KthenaLookup, Mirror, MirrorStatus, MirroredOwner, OwnerState, Redis, UsageExchange,
};
use kvasir_gateway::CoordinationView;
use kvasir_plugins::{HitPolicy, HitSource};
use kvasir_state::State;
use kvasir_telemetry::names::admission;
use kvasir_telemetry::{Page, names};
use serde_json::{Map, Value, json};

use super::Store;

/// Everything that is shown.
pub(super) struct View {
    redis: Redis,
    name: String,
    lookup: KthenaLookup,
    source: Arc<HitSource>,
    state: Arc<State>,
    mirror: Option<Arc<Mirror>>,
    load: Option<LoadExchange>,
    usage: Option<UsageExchange>,
    garbage: Garbage,
}

impl View {
    pub(super) fn new(
        store: &Store,
        state: Arc<State>,
        mirror: Option<Arc<Mirror>>,
        garbage: Garbage,
    ) -> Self {
        Self {
            redis: store.redis.clone(),
            name: store.name.clone(),
            lookup: store.lookup.clone(),
            source: Arc::clone(&store.source),
            state,
            mirror,
            load: None,
            usage: None,
            garbage,
        }
    }

    /// Shows these too.
    pub(super) fn with_exchanges(self, load: Option<LoadExchange>, usage: Option<UsageExchange>) -> Self {
        Self { load, usage, ..self }
    }

    /// The mirror, with the owners that this router routes to. Others may share the Redis.
    fn mirrored(&self) -> Option<MirrorStatus> {
        let mut status = self.mirror.as_ref()?.status();
        let is_wanted = |owner: &MirroredOwner| {
            owner.state != OwnerState::Unwanted && self.state.endpoint(&owner.owner).is_some()
        };
        status.owners.retain(is_wanted);
        Some(status)
    }

    /// How lookups in kthena's layout do.
    fn query(&self) -> Value {
        let mut query = lookup(&self.lookup.stats());
        if let Value::Object(fields) = &mut query {
            let sizes = self.source.other_sizes().into_iter();
            let sizes: Map<String, Value> =
                sizes.filter_map(|(model, size)| Some((model.to_string(), json!(size?)))).collect();
            fields.insert("asked_now".to_owned(), json!(self.source.asks_store()));
            fields.insert("models_with_other_block_size".to_owned(), Value::Object(sizes));
        }
        query
    }
}

impl CoordinationView for View {
    fn debug(&self) -> Value {
        let status = self.redis.status();
        json!({
            "redis": {
                "at": self.name,
                "connected": status.connected,
                "since_s": Instant::now().saturating_duration_since(status.since).as_secs(),
                "reconnects": status.reconnects,
                "last_error": status.last_error,
            },
            "mode": self.source.policy().as_str(),
            "mirror": self.mirror.as_ref().map(|mirror| mirror.status()),
            "query": self.query(),
            "load": self.load.as_ref().map(|load| json!(load.status())),
            "usage": self.usage.as_ref().map(|usage| json!(usage.status())),
            "garbage": self.garbage.stats(),
        })
    }

    fn summary(&self) -> Value {
        let mut summary = json!({
            "mode": self.source.policy().as_str(),
            "connected": self.redis.status().connected,
        });
        if let (Some(status), Value::Object(fields)) = (self.mirrored(), &mut summary) {
            let synced = status.owners.iter().filter(|owner| owner.state == OwnerState::Synced);
            fields.insert("owners_published".to_owned(), json!(status.owners.len()));
            fields.insert("owners_synced".to_owned(), json!(synced.count()));
            fields.insert("last_contact_ms".to_owned(), json!(status.last_contact_ms));
            let lag = status.owners.iter().map(|owner| owner.lag_ms).max();
            fields.insert("most_lag_ms".to_owned(), json!(lag));
        }
        summary
    }

    fn add_to(&self, page: &mut Page) {
        let status = self.redis.status();
        page.family(&names::REDIS_CONNECTED, [(Vec::new(), f64::from(u8::from(status.connected)))]);
        page.family(&names::REDIS_RECONNECTS, [(Vec::new(), status.reconnects as f64)]);
        page.family(
            &names::COORDINATION_MODE,
            HitPolicy::ALL
                .map(|policy| (vec![policy.as_str()], f64::from(u8::from(policy == self.source.policy())))),
        );
        if let Some(status) = self.mirrored() {
            add_mirror(&status, page);
        }
        if self.source.asks_store() {
            add_lookup(&self.lookup.stats(), page);
            let sizes = self.source.other_sizes();
            let sizes =
                sizes.iter().map(|(model, size)| (vec![model.as_str()], f64::from(u8::from(size.is_some()))));
            page.family(&names::QUERY_BLOCK_SIZE_DIFFERS, sizes);
        }
        if let Some(load) = &self.load {
            page.family(&names::LOAD_PEERS, [(Vec::new(), load.status().peers as f64)]);
        }
        if let Some(usage) = &self.usage {
            let status = usage.status();
            page.family(&admission::USAGE_PEERS, [(Vec::new(), status.peers as f64)]);
            page.family(&admission::USAGE_EXCHANGES, [(Vec::new(), status.exchanges as f64)]);
            page.family(&admission::USAGE_FAILURES, [(Vec::new(), status.failures as f64)]);
        }
    }
}

fn add_mirror(status: &MirrorStatus, page: &mut Page) {
    let contact = status.last_contact_ms.map(|millis| (Vec::new(), millis as f64 / 1000.0));
    page.family(&names::MIRROR_CONTACT_AGE, contact);
    page.family(&names::MIRROR_EMPTIED, [(Vec::new(), status.emptied as f64)]);
    page.family(&names::MIRROR_MALFORMED, [(Vec::new(), status.malformed as f64)]);
    let owners: Vec<(String, &MirroredOwner)> =
        status.owners.iter().map(|owner| (owner.owner.to_string(), owner)).collect();
    let states = owners.iter().map(|(name, owner)| (vec![name.as_str(), owner.state.as_str()], 1.0));
    page.family(&names::MIRROR_OWNER_STATE, states);
    let mut family = |family: &names::Family, number: &dyn Fn(&MirroredOwner) -> f64| {
        page.family(family, owners.iter().map(|(name, owner)| (vec![name.as_str()], number(owner))));
    };
    family(&names::MIRROR_LEASE, &|owner| owner.lease_left_ms as f64 / 1000.0);
    family(&names::MIRROR_LAG, &|owner| owner.lag_ms as f64 / 1000.0);
    family(&names::MIRROR_LOADS, &|owner| owner.loads as f64);
    family(&names::MIRROR_GAPS, &|owner| owner.gaps as f64);
}

fn add_lookup(stats: &LookupStats, page: &mut Page) {
    let results = [
        ("hit", stats.hits),
        (
            "miss",
            stats.lookups.saturating_sub(stats.hits + stats.unreachable + stats.timeouts + stats.refused),
        ),
        ("unreachable", stats.unreachable),
        ("timeout", stats.timeouts),
        ("refused", stats.refused),
        ("skipped", stats.skipped),
    ];
    page.family(&names::QUERY_LOOKUPS, results.map(|(result, count)| (vec![result], count as f64)));
    page.family(&names::QUERY_BREAKER, [(vec![stats.breaker.as_str()], 1.0)]);
}

fn lookup(stats: &LookupStats) -> Value {
    json!({
        "lookups": stats.lookups,
        "hits": stats.hits,
        "skipped": stats.skipped,
        "unreachable": stats.unreachable,
        "timeouts": stats.timeouts,
        "refused": stats.refused,
        "wrong_type": stats.wrong_type,
        "breaker": stats.breaker.as_str(),
        "breaker_openings": stats.openings,
        "mean_us": stats.duration_sum_micros.checked_div(stats.lookups),
    })
}
