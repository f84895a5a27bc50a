//! What a plan asks for: every target once, every endpoint once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kvasir_core::{AdapterName, Address, Endpoint, EndpointId, ModelName, Role, UpstreamTls};

use crate::plan::{
    Disaggregation, ObjectName, Plan, PlanEndpoint, PlanModel, PlanTarget, PlanTo, TargetId, TargetKind,
};
use crate::snapshot::Member;
use crate::target::Target;

/// A target of a plan, with what all its mentions say.
#[derive(Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) id: TargetId,
    pub(crate) served: Option<&'a ModelName>,
    pub(crate) index_model: &'a ModelName,
    /// Each once.
    pub(crate) endpoints: Vec<&'a PlanEndpoint>,
    /// Asked for by routes that lead here.
    adapters: BTreeSet<&'a AdapterName>,
    disaggregation: Option<&'a Disaggregation>,
    /// `None` for a model of the settings, which has no policies.
    policies: Option<&'a PlanTarget>,
}

/// An endpoint of a plan, with what all its mentions say.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) planned: &'a PlanEndpoint,
    /// The name that its blocks are filed under.
    pub(crate) model: &'a ModelName,
    pub(crate) adapters: BTreeSet<&'a AdapterName>,
    /// The part that the first target with prefill and decode apart gives it. Targets whose endpoints do both do not
    /// look at it.
    pub(crate) role: Role,
    /// How it is spoken to over TLS, where its address does not say.
    tls: Option<&'a UpstreamTls>,
}

impl Wanted<'_> {
    /// Takes in the part that another mention gives it.
    fn play(&mut self, role: Role, conflicts: &mut Vec<String>) {
        match (self.role, role) {
            (Role::Both, role) => self.role = role,
            (Role::Prefill, Role::Decode) | (Role::Decode, Role::Prefill) => conflicts.push(format!(
                "endpoint {} is to prefill for one target and to decode for another; the first alone can use it",
                self.planned.id
            )),
            _ => {}
        }
    }

    /// Where it listens, and how it is spoken to.
    pub(crate) fn address(&self) -> Address {
        let tls = self.tls().cloned();
        Address { tls, ..self.planned.address.clone() }
    }

    /// How it is spoken to over TLS.
    pub(crate) fn tls(&self) -> Option<&UpstreamTls> {
        self.planned.address.tls.as_ref().or(self.tls)
    }
}

impl TargetId {
    /// The target of a model of the settings.
    pub(crate) fn of(model: &PlanModel) -> Self {
        Self { kind: TargetKind::Model, name: ObjectName::new("default", model.served.as_str()) }
    }
}

impl Sought<'_> {
    /// Whether the endpoint that was `planned` so can be chosen. Where prefill and decode are apart it needs a part, the
    /// one that is planned here, and a group.
    pub(crate) fn can_choose(&self, planned: &PlanEndpoint, endpoint: &Endpoint) -> bool {
        self.disaggregation.is_none_or(|apart| {
            planned.role != Role::Both && planned.role == endpoint.role && apart.group_of(endpoint).is_some()
        })
    }

    /// The target, filed under `index_model`, with `pool`.
    pub(crate) fn target(&self, index_model: ModelName, pool: Arc<[Member]>) -> Target {
        let policies = self.policies;
        Target {
            id: self.id.clone(),
            label: self.id.name.to_string().into(),
            served: self.served.cloned(),
            index_model,
            disaggregation: self.disaggregation.cloned(),
            timeout: policies.and_then(|target| target.timeout),
            retry: policies.and_then(|target| target.retry),
            refused: policies.and_then(|target| target.refused),
            adapters: self.adapters.iter().map(|adapter| (*adapter).clone()).collect(),
            pool,
        }
    }
}

/// Every target once, in the order of first mention. Models of one served name are one target.
pub(crate) fn seek<'a>(plan: &'a Plan, conflicts: &mut Vec<String>) -> Vec<Sought<'a>> {
    let mut sought: Vec<Sought<'a>> = Vec::with_capacity(plan.models.len() + plan.targets.len());
    let mut places: HashMap<TargetId, usize> = HashMap::new();
    for model in &plan.models {
        let id = TargetId::of(model);
        let place = *places.entry(id.clone()).or_insert_with(|| {
            sought.push(Sought {
                id,
                served: Some(&model.served),
                index_model: &model.served,
                endpoints: Vec::new(),
                adapters: BTreeSet::new(),
                disaggregation: None,
                policies: None,
            });
            sought.len() - 1
        });
        if let Some(target) = sought.get_mut(place) {
            target.endpoints.extend(&model.endpoints);
            target.adapters.extend(&model.adapters);
            target.disaggregation = target.disaggregation.or(model.disaggregation.as_ref());
        }
    }
    for target in &plan.targets {
        if places.contains_key(&target.id) {
            conflicts.push(format!("{:?} is planned twice; the first is used", target.id));
            continue;
        }
        places.insert(target.id.clone(), sought.len());
        sought.push(Sought {
            id: target.id.clone(),
            served: target.served.as_ref(),
            index_model: &target.index_model,
            endpoints: target.endpoints.iter().collect(),
            adapters: BTreeSet::new(),
            disaggregation: target.disaggregation.as_ref(),
            policies: Some(target),
        });
    }
    for route in plan.routes.iter().filter(|route| !route.adapters.is_empty()) {
        for (to, _) in route.rules.iter().flat_map(|rule| &rule.to) {
            if let PlanTo::Target(id) = to
                && let Some(target) = places.get(id).and_then(|place| sought.get_mut(*place))
            {
                target.adapters.extend(&route.adapters);
            }
        }
    }
    let mut seen = HashSet::new();
    for target in &mut sought {
        seen.clear();
        target.endpoints.retain(|planned| seen.insert(&planned.id));
    }
    sought
}

/// Every endpoint once, in the order of first mention. What its blocks are filed under is said by the first target that
/// names a served model; without one, by the first target.
pub(crate) fn gather<'a>(
    sought: &'a [Sought<'a>],
    conflicts: &mut Vec<String>,
) -> (Vec<&'a EndpointId>, HashMap<&'a EndpointId, Wanted<'a>>) {
    let count = sought.iter().map(|target| target.endpoints.len()).sum();
    let mut order = Vec::with_capacity(count);
    let mut wanted: HashMap<&EndpointId, Wanted<'_>> = HashMap::with_capacity(count);
    let named = sought.iter().filter(|target| target.served.is_some());
    let nameless = sought.iter().filter(|target| target.served.is_none());
    for target in named.chain(nameless) {
        for planned in &target.endpoints {
            let entry = wanted.entry(&planned.id).or_insert_with(|| {
                order.push(&planned.id);
                Wanted {
                    planned,
                    model: target.index_model,
                    adapters: BTreeSet::new(),
                    role: Role::Both,
                    tls: None,
                }
            });
            entry.play(planned.role, conflicts);
            entry.adapters.extend(&target.adapters);
            entry.tls = entry.tls.or(target.policies.and_then(|target| target.tls.as_ref()));
            if entry.planned.address != planned.address {
                conflicts.push(format!(
                    "endpoint {} is at {} and at {}; the first is used",
                    planned.id,
                    entry.planned.address.url(),
                    planned.address.url()
                ));
            }
            if target.served.is_some() && entry.model != target.index_model {
                conflicts.push(format!(
                    "endpoint {} serves {:?} and {:?}; cached blocks are known for the first only",
                    planned.id,
                    entry.model.as_str(),
                    target.index_model.as_str()
                ));
            }
        }
    }
    (order, wanted)
}
