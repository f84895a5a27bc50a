//! One swap's worth of routes, targets and endpoints, sharing with the swap before what did not change.

use std::collections::HashMap;
use std::sync::Arc;

use kvasir_core::{Endpoint, EndpointId, ModelName, OwnerSlot};

use crate::live::Live;
use crate::plan::{Changes, Plan, PlanEndpoint, PlanModel, TargetId};
use crate::query::Resolved;
use crate::routes::{PlannedRoutes, RoutingTable, Targets};
use crate::slots::SlotPool;
use crate::target::{Target, same_members};
use crate::wanted::{Sought, Wanted, gather, seek};

/// An endpoint with its live numbers.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) live: Arc<Live>,
    /// Whether new requests may go there.
    pub(crate) ready: bool,
}

/// Routes, targets and endpoints. Immutable but for the live numbers that it points to.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// How many swaps came before.
    pub(crate) generation: u64,
    pub(crate) table: RoutingTable,
    pub(crate) targets: Targets,
    /// Endpoints in service by the name they are filed under, in the plan's order.
    pub(crate) by_model: HashMap<ModelName, Arc<[Member]>>,
    pub(crate) members: HashMap<EndpointId, Member>,
    pub(crate) by_slot: HashMap<OwnerSlot, Arc<Endpoint>>,
    /// What the plan contradicts itself in.
    pub(crate) conflicts: Vec<String>,
}

impl Snapshot {
    /// A frozen endpoint, while it is the same engine in the same slot.
    pub(crate) fn member(&self, endpoint: &Endpoint) -> Option<&Member> {
        self.members.get(&endpoint.id).filter(|member| member.endpoint.slot == endpoint.slot)
    }

    /// The snapshot that `plan` asks for. Endpoints that stay keep slot and live numbers; what is the same in every
    /// respect stays the same value.
    pub(crate) fn next(&self, plan: Plan, slots: &mut SlotPool) -> (Self, Changes) {
        let mut changes = Changes::default();
        let sought = seek(&plan, &mut changes.conflicts);
        let (order, wanted) = gather(&sought, &mut changes.conflicts);
        let stays = |member: &Member| {
            wanted.get(&member.endpoint.id).is_some_and(|wanted| is_same_owner(&member.endpoint, wanted))
        };
        // What goes is put to rest before numbers are taken; a resting number is not given out.
        for member in self.members.values().filter(|member| !stays(member)) {
            slots.rest(member.endpoint.slot);
            changes.removed.push(Arc::clone(&member.endpoint));
        }
        changes.removed.sort_unstable_by_key(|endpoint| endpoint.slot);

        let mut next = Self { generation: self.generation + 1, ..Self::default() };
        next.members.reserve(order.len());
        next.by_slot.reserve(order.len());
        for id in order {
            let Some(wanted) = wanted.get(id) else { continue };
            let member = match self.members.get(id).filter(|member| stays(member)) {
                Some(member) => member.updated(wanted),
                None => {
                    let endpoint = Arc::new(make(wanted, slots.take()));
                    changes.added.push(Arc::clone(&endpoint));
                    Member { endpoint, live: Arc::default(), ready: wanted.planned.ready }
                }
            };
            next.by_slot.insert(member.endpoint.slot, Arc::clone(&member.endpoint));
            next.members.insert(id.clone(), member);
        }
        for sought in &sought {
            let target = self.target(sought, &next.members);
            next.targets.insert(target.id.clone(), target);
        }
        next.by_model = by_model(sought.iter().filter_map(|sought| next.targets.get(&sought.id)));
        let planned = PlannedRoutes {
            models: plan.models.into_iter().map(with_target).collect(),
            routes: plan.routes,
            http_routes: plan.http_routes,
            gateways: plan.gateways,
        };
        next.table = self.table.next(planned, &next.targets, &mut changes.conflicts);
        next.conflicts.clone_from(&changes.conflicts);
        (next, changes)
    }

    /// The target as `sought`: the value that is here where that is the same.
    fn target(&self, sought: &Sought<'_>, members: &HashMap<EndpointId, Member>) -> Arc<Target> {
        let with_plan =
            sought.endpoints.iter().filter_map(|planned| Some((*planned, members.get(&planned.id)?)));
        let all = with_plan.clone().map(|(_, member)| member);
        let chosen = with_plan
            .filter(|(planned, member)| member.ready && sought.can_choose(planned, &member.endpoint));
        let pool: Vec<Member> = chosen.map(|(_, member)| member.clone()).collect();
        let before = self.targets.get(&sought.id);
        let pool = match before {
            Some(before) if same_members(&before.pool, &pool) => Arc::clone(&before.pool),
            _ => pool.into(),
        };
        let target = sought.target(filed_under(sought, all), pool);
        before.filter(|before| before.same(&target)).map_or_else(|| Arc::new(target), Arc::clone)
    }

    /// The endpoints for a request that was resolved now or under an earlier snapshot: today's of its target, as long as
    /// they understand what was written for yesterday's.
    pub(crate) fn pool<'a>(&'a self, resolved: &'a Resolved) -> &'a [Member] {
        if resolved.generation == self.generation {
            return &resolved.target.pool;
        }
        match self.targets.get(&resolved.target.id) {
            Some(now) if resolved.target.speaks_like(now) => &now.pool,
            _ => &resolved.target.pool,
        }
    }
}

fn with_target(model: PlanModel) -> (PlanModel, TargetId) {
    let target = TargetId::of(&model);
    (model, target)
}

impl Member {
    fn updated(&self, wanted: &Wanted<'_>) -> Self {
        let (before, planned) = (&self.endpoint, wanted.planned);
        let same = before.role == wanted.role
            && before.pin_rank == planned.pin_rank
            && (before.started_at == planned.started_at || planned.started_at.is_none())
            && before.adapters.iter().eq(wanted.adapters.iter().copied())
            && before.address.tls.as_ref() == wanted.tls()
            && before.labels == planned.labels;
        let endpoint = if same { Arc::clone(before) } else { Arc::new(make(wanted, before.slot)) };
        Self { endpoint, live: Arc::clone(&self.live), ready: planned.ready }
    }

    /// Whether the two are the same value.
    pub(crate) fn same(one: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&one.endpoint, &other.endpoint)
            && Arc::ptr_eq(&one.live, &other.live)
            && one.ready == other.ready
    }
}

/// Whether what the endpoint cached may still be there. Another address is another process, and so is another start.
fn is_same_owner(endpoint: &Endpoint, wanted: &Wanted<'_>) -> bool {
    let restarted =
        matches!((endpoint.started_at, wanted.planned.started_at), (Some(one), Some(other)) if one != other);
    endpoint.address.is_where(&wanted.planned.address)
        && endpoint.engine == wanted.planned.engine
        && endpoint.model == *wanted.model
        && !restarted
}

fn make(wanted: &Wanted<'_>, slot: OwnerSlot) -> Endpoint {
    let planned: &PlanEndpoint = wanted.planned;
    Endpoint {
        id: planned.id.clone(),
        slot,
        address: wanted.address(),
        engine: planned.engine,
        role: wanted.role,
        model: wanted.model.clone(),
        started_at: planned.started_at,
        pin_rank: planned.pin_rank,
        adapters: wanted.adapters.iter().map(|adapter| (*adapter).clone()).collect(),
        labels: planned.labels.clone(),
    }
}

/// The name that a target's blocks are under. Endpoints that another target has a served name for are filed under that.
fn filed_under<'a>(sought: &Sought<'_>, mut members: impl Iterator<Item = &'a Member>) -> ModelName {
    if sought.served.is_none()
        && let Some(first) = members.next().map(|member| &member.endpoint.model)
        && members.all(|member| member.endpoint.model == *first)
    {
        return first.clone();
    }
    sought.index_model.clone()
}

/// The endpoints of each model. Targets of one model are put together; one alone shares its list.
fn by_model<'a>(targets: impl Iterator<Item = &'a Arc<Target>>) -> HashMap<ModelName, Arc<[Member]>> {
    let mut models: HashMap<ModelName, Arc<[Member]>> = HashMap::new();
    for target in targets {
        match models.get_mut(&target.index_model) {
            None => {
                models.insert(target.index_model.clone(), Arc::clone(&target.pool));
            }
            Some(pool) => {
                let new = |member: &&Member| !pool.iter().any(|known| Member::same(known, member));
                let more: Vec<Member> = target.pool.iter().filter(new).cloned().collect();
                if !more.is_empty() {
                    *pool = pool.iter().cloned().chain(more).collect();
                }
            }
        }
    }
    models
}
