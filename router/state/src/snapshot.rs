//! One swap's worth of names and endpoints, sharing with the swap before what did not change.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kvasir_core::{AdapterName, Endpoint, EndpointId, ModelName, OwnerSlot};

use crate::live::Live;
use crate::plan::{Changes, Plan, PlanEndpoint};
use crate::routes::RoutingTable;
use crate::slots::SlotPool;

/// An endpoint with its live numbers.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) live: Arc<Live>,
}

/// Names and endpoints. Immutable but for the live numbers that it points to.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) table: RoutingTable,
    /// Endpoints by served name, in the plan's order.
    pub(crate) pools: HashMap<ModelName, Arc<[Member]>>,
    pub(crate) members: HashMap<EndpointId, Member>,
    pub(crate) by_slot: HashMap<OwnerSlot, Arc<Endpoint>>,
}

/// An endpoint of a plan, with what all its mentions say.
struct Wanted<'a> {
    planned: &'a PlanEndpoint,
    served: &'a ModelName,
    adapters: BTreeSet<&'a AdapterName>,
}

impl Snapshot {
    /// The snapshot that `plan` asks for. Endpoints that stay keep slot and live numbers; those that are the same in
    /// every respect stay the same value.
    pub(crate) fn next(&self, plan: &Plan, slots: &mut SlotPool) -> (Self, Changes) {
        let mut changes = Changes::default();
        let (order, wanted) = gather(plan, &mut changes.conflicts);
        let stays = |member: &Member| {
            wanted.get(&member.endpoint.id).is_some_and(|wanted| is_same_owner(&member.endpoint, wanted))
        };
        // What goes is put to rest before numbers are taken; a resting number is not given out.
        for member in self.members.values().filter(|member| !stays(member)) {
            slots.rest(member.endpoint.slot);
            changes.removed.push(Arc::clone(&member.endpoint));
        }
        changes.removed.sort_unstable_by_key(|endpoint| endpoint.slot);

        let mut next = Self::default();
        for id in order {
            let Some(wanted) = wanted.get(id) else { continue };
            let member = match self.members.get(id).filter(|member| stays(member)) {
                Some(member) => member.updated(wanted),
                None => {
                    let endpoint = Arc::new(make(wanted, slots.take()));
                    changes.added.push(Arc::clone(&endpoint));
                    Member { endpoint, live: Arc::default() }
                }
            };
            next.by_slot.insert(member.endpoint.slot, Arc::clone(&member.endpoint));
            next.members.insert(id.clone(), member);
        }
        next.pools = pools(plan, &next.members);
        let empty: Arc<[Arc<Endpoint>]> = Arc::default();
        let endpoints: HashMap<&ModelName, Arc<[Arc<Endpoint>]>> = next
            .pools
            .iter()
            .map(|(served, pool)| (served, pool.iter().map(|member| Arc::clone(&member.endpoint)).collect()))
            .collect();
        let endpoints_of = |served: &ModelName| Arc::clone(endpoints.get(served).unwrap_or(&empty));
        next.table = RoutingTable::build(&plan.models, endpoints_of, &mut changes.conflicts);
        (next, changes)
    }
}

impl Member {
    fn updated(&self, wanted: &Wanted<'_>) -> Self {
        let endpoint = make(wanted, self.endpoint.slot);
        let before = &self.endpoint;
        let same = before.role == endpoint.role
            && before.pin_rank == endpoint.pin_rank
            && before.adapters == endpoint.adapters
            && before.labels == endpoint.labels;
        let endpoint = if same { Arc::clone(before) } else { Arc::new(endpoint) };
        Self { endpoint, live: Arc::clone(&self.live) }
    }
}

/// Every endpoint once, in the order of first mention.
fn gather<'a>(
    plan: &'a Plan,
    conflicts: &mut Vec<String>,
) -> (Vec<&'a EndpointId>, HashMap<&'a EndpointId, Wanted<'a>>) {
    let mut order = Vec::new();
    let mut wanted: HashMap<&EndpointId, Wanted<'_>> = HashMap::new();
    for model in &plan.models {
        for planned in &model.endpoints {
            let entry = wanted.entry(&planned.id).or_insert_with(|| {
                order.push(&planned.id);
                Wanted { planned, served: &model.served, adapters: BTreeSet::new() }
            });
            entry.adapters.extend(&model.adapters);
            if entry.planned.address != planned.address {
                conflicts.push(format!(
                    "endpoint {} is at {} and at {}; the first is used",
                    planned.id,
                    entry.planned.address.url(),
                    planned.address.url()
                ));
            }
            if *entry.served != model.served {
                conflicts.push(format!(
                    "endpoint {} serves {:?} and {:?}; cached blocks are known for the first only",
                    planned.id,
                    entry.served.as_str(),
                    model.served.as_str()
                ));
            }
        }
    }
    (order, wanted)
}

/// Whether what the endpoint cached may still be there. Another address is another process.
fn is_same_owner(endpoint: &Endpoint, wanted: &Wanted<'_>) -> bool {
    endpoint.address == wanted.planned.address
        && endpoint.engine == wanted.planned.engine
        && endpoint.model == *wanted.served
}

fn make(wanted: &Wanted<'_>, slot: OwnerSlot) -> Endpoint {
    let planned = wanted.planned;
    Endpoint {
        id: planned.id.clone(),
        slot,
        address: planned.address.clone(),
        engine: planned.engine,
        role: planned.role,
        model: wanted.served.clone(),
        started_at: None,
        pin_rank: planned.pin_rank,
        adapters: wanted.adapters.iter().map(|adapter| (*adapter).clone()).collect(),
        labels: planned.labels.clone(),
    }
}

fn pools(plan: &Plan, members: &HashMap<EndpointId, Member>) -> HashMap<ModelName, Arc<[Member]>> {
    let mut pools: HashMap<&ModelName, (Vec<Member>, HashSet<&EndpointId>)> = HashMap::new();
    for model in &plan.models {
        let (pool, seen) = pools.entry(&model.served).or_default();
        for planned in &model.endpoints {
            if let Some(member) = members.get(&planned.id).filter(|_| seen.insert(&planned.id)) {
                pool.push(member.clone());
            }
        }
    }
    pools.into_iter().map(|(served, (pool, _))| (served.clone(), pool.into())).collect()
}
