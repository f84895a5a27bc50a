//! Introduces the rooms to each other: from settings to a gateway that can serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvasir_core::connector::BOOTSTRAP_PORT;
use kvasir_core::plugin::ScheduleMeter;
use kvasir_core::{
    Address, AdmissionMeter, BlockIndex, Clock, DataProducer, EndpointDirectory, EndpointId, EngineKind,
    ModelPods, Needs, PlacementObserver, Scorer, SideClient, SystemClock, Tokenizer,
};
use kvasir_gateway::{
    ByteBudget, Connections, Coordination, Counted, DecisionRing, Exhibits, Gateway, Ports, Readiness,
    Scheduled, Scheduling, SessionRule,
};
use kvasir_kvcache::placements::DEFAULT_LIFETIME;
use kvasir_kvcache::{Index, Placements};
use kvasir_plugins::{Built, Parts};
use kvasir_scheduler::{Profile, Scheduler};
use kvasir_settings::Settings;
use kvasir_settings::resolved::{EndpointSettings, ModelSettings};
use kvasir_state::plan::Disaggregation;
use kvasir_state::{Plan, PlanEndpoint, PlanModel, ResponseMemory, RetryBudget, State, StateOptions};
use kvasir_telemetry::{AccessLogger, Metrics};
use kvasir_tokenize::Chain;
use kvasir_upstream::{HyperSideClient, SideClientOptions};

use crate::admission;
use crate::sharing::Store;

/// Stored responses remembered, and for how long.
const RESPONSES: (usize, Duration) = (65_536, Duration::from_secs(24 * 3600));

/// Endpoints that a cluster may have, for the pool of connections.
const ENDPOINTS_OF_A_CLUSTER: usize = 2_000;

/// The rooms, introduced.
pub struct House {
    /// The door.
    pub gateway: Arc<Gateway>,
    /// For side calls.
    pub client: Arc<HyperSideClient>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The Redis that is shared with other replicas.
    pub store: Option<Store>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl House {
    /// A scheduler as these settings want it, over what the router knows already.
    ///
    /// # Errors
    /// When a plugin cannot be built.
    pub fn schedule(&self, settings: &Settings) -> anyhow::Result<Scheduled> {
        let gateway = &self.gateway;
        let parts = Parts {
            index: Arc::clone(&gateway.index) as Arc<dyn BlockIndex>,
            tokenizer: Arc::clone(&gateway.tokens) as Arc<dyn Tokenizer>,
            meter: Arc::clone(&gateway.metrics) as Arc<dyn ScheduleMeter>,
            seed: rand::random(),
        };
        scheduler(settings, Furniture::default(), self.store.as_ref(), parts, &gateway.index, &self.clock)
    }
}

/// What a caller may put in the place of the usual parts; the demo uses it for its perfect router.
#[derive(Default)]
pub struct Furniture {
    /// More producers, run after the usual ones.
    pub producers: Vec<Arc<dyn DataProducer>>,
    /// Scorers instead of the configured ones.
    pub scorers: Option<Vec<(Arc<dyn Scorer>, f64)>>,
}

impl std::fmt::Debug for Furniture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Furniture").field("producers", &self.producers.len()).finish_non_exhaustive()
    }
}

/// Builds the house. Files are read and threads started; no socket is opened. Nobody lives in it yet; see
/// [`Household`](crate::household::Household).
///
/// # Errors
/// When the access log cannot be opened or a plugin cannot be built.
pub fn build(settings: &Settings, furniture: Furniture) -> anyhow::Result<House> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Arc::new(Metrics::new().context("metrics")?);
    let state =
        Arc::new(State::new(Arc::clone(&clock), StateOptions { scrape_interval: settings.scrape_interval }));
    let index = Arc::new(Index::new(Arc::clone(&clock)));
    let client = Arc::new(HyperSideClient::new(SideClientOptions::default()));
    let tokens = Arc::new(Chain::new(
        Vec::new(),
        Arc::clone(&client) as Arc<dyn SideClient>,
        Arc::clone(&state) as Arc<dyn EndpointDirectory>,
        Arc::clone(&clock),
    ));
    let store = Store::prepare(settings)?;
    let meter = Arc::clone(&metrics) as Arc<dyn ScheduleMeter>;
    let parts = Parts {
        index: Arc::clone(&index) as Arc<dyn BlockIndex>,
        tokenizer: Arc::clone(&tokens) as Arc<dyn Tokenizer>,
        meter,
        seed: rand::random(),
    };
    let scheduled = scheduler(settings, furniture, store.as_ref(), parts, &index, &clock)?;
    let access_log = match &settings.access_log {
        log if log.enabled => Some(
            AccessLogger::start(&log.output, log.json, metrics.log_dropped.clone())
                .with_context(|| format!("the access log {} cannot be opened", log.output))?,
        ),
        _ => None,
    };
    let turnstile = admission::build(
        &settings.admission,
        Arc::clone(&clock),
        Arc::clone(&metrics) as Arc<dyn AdmissionMeter>,
        Arc::clone(&state) as Arc<dyn ModelPods>,
    );
    let gateway = Arc::new(Gateway {
        state,
        turnstile,
        scheduling: Scheduling::new(scheduled),
        index,
        tokens,
        metrics,
        access_log,
        limits: settings.limits.clone(),
        headers: settings.headers.clone(),
        connections: Connections::new(&settings.limits, endpoints(settings)),
        ring: DecisionRing::new(settings.decision_ring),
        responses: ResponseMemory::new(RESPONSES.0, RESPONSES.1),
        retry_budget: RetryBudget::new(settings.limits.retry_budget),
        buffers: ByteBudget::new(settings.limits.max_buffered_bytes),
        coordination: Coordination::default(),
        exhibits: Exhibits::default(),
        ports: Ports::default(),
        metrics_on_router_port: settings.metrics_on_router_port,
        readiness: Arc::new(Readiness::default()),
        clock: Arc::clone(&clock),
    });
    Ok(House { gateway, client, clock, store })
}

fn scheduler(
    settings: &Settings,
    furniture: Furniture,
    store: Option<&Store>,
    parts: Parts,
    index: &Arc<Index>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Scheduled> {
    let meter = Arc::clone(&parts.meter);
    let built = match store {
        Some(store) => kvasir_plugins::build_with_store(&settings.scheduler, parts, store.for_plugins()),
        None => kvasir_plugins::build(&settings.scheduler, parts),
    };
    let Built { filters, scorers, picker, mut producers, mut observers, prefix_cache } =
        built.context("the scheduler's plugins")?;
    producers.extend(furniture.producers);
    let scorers = furniture.scorers.unwrap_or(scorers);
    let cache_aware = scorers.iter().any(|(scorer, _)| scorer.needs().contains(Needs::PREFIX_HITS));
    // Placements are remembered only where somebody asks for prefixes; a router by load needs no tokens.
    let extra = if cache_aware {
        observers.push(
            Arc::new(Placements::new(Arc::clone(index), DEFAULT_LIFETIME)) as Arc<dyn PlacementObserver>
        );
        Needs::BLOCKS
    } else {
        Needs::NONE
    };
    let profile = Profile { filters, scorers, picker, observers };
    let deadline = settings.scheduler.gather_deadline;
    let scheduler = Scheduler::new(profile, producers, deadline, meter, Arc::clone(clock), extra);
    let entries = Counted(Arc::new(move || prefix_cache.as_ref().map(|cache| cache.entries() as u64)));
    let session = SessionRule::of(&settings.scheduler);
    Ok(Scheduled { scheduler: Arc::new(scheduler), prefix_cache_entries: entries, session })
}

/// For how many endpoints idle connections are kept. A cluster's come later; no more is reserved than is used.
fn endpoints(settings: &Settings) -> usize {
    let named: usize = settings.models.iter().map(|model| model.endpoints.len()).sum();
    if settings.kubernetes.is_some() { named.max(ENDPOINTS_OF_A_CLUSTER) } else { named }
}

/// The label that a group of the models file becomes.
const GROUP: &str = "group";

/// The routing plan of the models of the settings.
pub fn plan(settings: &Settings) -> Plan {
    Plan { models: settings.models.iter().map(plan_model).collect(), ..Plan::default() }
}

fn plan_model(model: &ModelSettings) -> PlanModel {
    let endpoints = model
        .endpoints
        .iter()
        .flat_map(|endpoint| {
            (0..endpoint.ranks.max(1)).map(|rank| PlanEndpoint {
                id: endpoint_id(&endpoint.address, rank),
                address: endpoint.address.clone(),
                engine: model.engine,
                role: endpoint.role,
                pin_rank: endpoint.ranks > 1
                    && endpoint.pin_ranks.unwrap_or(model.engine == EngineKind::Vllm),
                labels: labels(endpoint),
                started_at: None,
                ready: true,
            })
        })
        .collect();
    let grouped = model.endpoints.iter().any(|endpoint| endpoint.group.is_some());
    let group_key = grouped.then(|| GROUP.into());
    PlanModel {
        name: model.name.clone(),
        served: served(model),
        aliases: model.aliases.clone(),
        adapters: model.adapters.clone(),
        endpoints,
        disaggregation: model.connector.map(|connector| Disaggregation { group_key, connector }),
    }
}

/// What decides in a cluster by a pod's labels is said in labels here, too.
fn labels(endpoint: &EndpointSettings) -> BTreeMap<String, String> {
    let group = endpoint.group.iter().map(|group| (GROUP.to_owned(), group.clone()));
    let port = endpoint.bootstrap_port.map(|port| (BOOTSTRAP_PORT.to_owned(), port.to_string()));
    group.chain(port).collect()
}

/// Standalone endpoints are named by their URL; two prefixes on one port are two endpoints.
pub fn endpoint_id(address: &Address, rank: u32) -> EndpointId {
    EndpointId::new("default", format!("{}{}", address.host, address.path_prefix), address.port, rank)
}

/// The name the engines use.
fn served(model: &ModelSettings) -> kvasir_core::ModelName {
    model.served_name.clone().unwrap_or_else(|| model.name.clone())
}

#[cfg(test)]
mod tests {
    use kvasir_core::{ConnectorKind, Role};

    use super::*;

    #[test]
    fn parts_and_groups_of_the_settings_reach_the_plan() {
        let endpoint = |url: &str, role, group: Option<&str>, bootstrap_port| EndpointSettings {
            role,
            group: group.map(str::to_owned),
            bootstrap_port,
            ..EndpointSettings::new(Address::parse(url).unwrap())
        };
        for (group, key) in [(Some("rack"), Some("group")), (None, None)] {
            let model = ModelSettings {
                name: "m".into(),
                served_name: None,
                aliases: Vec::new(),
                engine: EngineKind::Sglang,
                tokenizer: None,
                chat_template: None,
                adapters: Vec::new(),
                connector: Some(ConnectorKind::Sglang),
                endpoints: vec![
                    endpoint("http://127.0.0.1:1", Role::Prefill, group, Some(8997)),
                    endpoint("http://127.0.0.1:2", Role::Decode, group, None),
                ],
            };
            let plan = plan(&Settings { models: vec![model], ..Settings::default() });
            let [planned] = &*plan.models else { panic!("one model") };
            let apart = planned.disaggregation.as_ref().unwrap();
            assert_eq!((apart.group_key.as_deref(), apart.connector), (key, ConnectorKind::Sglang));
            let parts: Vec<(Role, Option<&str>, Option<&str>)> = planned
                .endpoints
                .iter()
                .map(|endpoint| {
                    let label = |name: &str| endpoint.labels.get(name).map(String::as_str);
                    (endpoint.role, label("group"), label(BOOTSTRAP_PORT))
                })
                .collect();
            assert_eq!(parts, [(Role::Prefill, group, Some("8997")), (Role::Decode, group, None)]);
        }
    }
}
