//! Who lives here now. Endpoints come and go with every plan, and with each what is learned of it.

mod tenants;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Endpoint, ModelName};
use kvasir_gateway::Gateway;
use kvasir_settings::Settings;
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_state::{Changes, Plan, PlanModel};
use kvasir_tokenize::ModelTokens;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::house::{self, House};
use crate::knowledge::{Learner, Learning, PLACEMENTS};
use crate::sharing::Sharing;
use tenants::{SiteKey, Tenant};

/// How long a number rests that Redis may still be writing to: the mirror learns with its next refresh, a second later
/// plus the time of a call, that an owner has moved to another number.
const REST: Duration = Duration::from_secs(10);

/// Makes plans the state, and keeps everything that follows from it: the index, event followers, tokenizers, ports.
pub struct Household {
    gateway: Arc<Gateway>,
    settings: Mutex<Arc<Settings>>,
    sharing: Arc<Sharing>,
    learner: Arc<Learner>,
    /// The models of the settings, before those of every plan.
    models: Vec<PlanModel>,
    /// Event sources that the settings name.
    configured: HashMap<SiteKey, Vec<KvEventsSettings>>,
    inside: Mutex<Inside>,
    /// How many sites were learned about with the first plan.
    first: watch::Sender<Option<usize>>,
    runtime: Handle,
    stop: CancellationToken,
}

/// What plans have changed so far.
#[derive(Default)]
struct Inside {
    tenants: HashMap<SiteKey, Tenant>,
    /// Those of them that are not learned about yet, since their pods are not ready.
    waiting: BTreeSet<SiteKey>,
    index_models: BTreeSet<ModelName>,
}

impl fmt::Debug for Household {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = self.inside.lock();
        f.debug_struct("Household")
            .field("sites", &inside.tenants.len())
            .field("waiting", &inside.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Household {
    /// Nobody lives here before the first plan, and what is learned ends with `stop`. To be called in a runtime.
    pub fn new(
        house: &House,
        settings: &Arc<Settings>,
        sharing: &Arc<Sharing>,
        stop: &CancellationToken,
    ) -> (Arc<Self>, Learning) {
        let first = watch::Sender::new(None);
        let (learner, learning) = Learner::new(house, sharing, first.subscribe());
        let endpoints = settings.models.iter().flat_map(|model| &model.endpoints);
        let configured = endpoints
            .filter(|endpoint| !endpoint.kv_events.is_empty())
            .map(|endpoint| {
                let id = house::endpoint_id(&endpoint.address, 0);
                (SiteKey::of(&id), endpoint.kv_events.clone())
            })
            .collect();
        let household = Self {
            gateway: Arc::clone(&house.gateway),
            settings: Mutex::new(Arc::clone(settings)),
            sharing: Arc::clone(sharing),
            learner,
            models: house::plan(settings).models,
            configured,
            inside: Mutex::default(),
            first,
            runtime: Handle::current(),
            stop: stop.clone(),
        };
        (Arc::new(household), learning)
    }

    /// Makes `plan` the state, after the models of the settings, and begins and ends what is learned accordingly. Waits
    /// for nothing but another call, and takes some milliseconds for thousands of endpoints. From any thread.
    pub fn apply(&self, plan: Plan) {
        let _runtime = self.runtime.enter();
        let mut inside = self.inside.lock();
        let changes = self.gateway.state.replace(self.with_own_models(plan));
        let state = &self.gateway.state;
        self.gateway.turnstile.admission().keep_models(&|model| state.claims(model));
        self.gateway.readiness.routes_are_known();
        self.gateway.ports.want(self.gateway.state.gateway_ports().unwrap_or_default());
        self.register(&changes.added);
        let begun = self.move_tenants(&mut inside, &changes);
        self.follow_models(&mut inside);
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(begun);
            is_first
        });
    }

    fn with_own_models(&self, mut plan: Plan) -> Plan {
        if !self.models.is_empty() {
            let theirs = std::mem::replace(&mut plan.models, self.models.clone());
            plan.models.extend(theirs);
        }
        plan
    }

    fn register(&self, added: &[Arc<Endpoint>]) {
        for endpoint in added {
            let registered = self.gateway.index.register(endpoint.slot, &endpoint.model, PLACEMENTS);
            if let Err(error) = registered {
                tracing::warn!(endpoint = %endpoint.id, %error, "what the endpoint caches is not known");
            }
        }
    }

    /// Ends what was learned where somebody left, and begins to learn where somebody came, as soon as they are ready.
    /// Gives the number of sites that are begun now.
    fn move_tenants(&self, inside: &mut Inside, changes: &Changes) -> usize {
        let mut moves: HashMap<SiteKey, Moves> = HashMap::new();
        for endpoint in &changes.removed {
            moves.entry(SiteKey::of(&endpoint.id)).or_default().left.push(Arc::clone(endpoint));
        }
        for endpoint in &changes.added {
            moves.entry(SiteKey::of(&endpoint.id)).or_default().came.push(Arc::clone(endpoint));
        }
        for (key, Moves { left, came }) in moves {
            let before = inside.tenants.remove(&key);
            inside.waiting.remove(&key);
            let (mut ranks, ended) = before.map(Tenant::end).unwrap_or_default();
            ranks.retain(|rank| !left.iter().any(|gone| gone.slot == rank.slot));
            ranks.extend(came);
            if !left.is_empty() {
                self.let_go(left, ended.clone());
            }
            if !ranks.is_empty() {
                ranks.sort_by_key(|rank| rank.id.rank);
                inside.waiting.insert(key.clone());
                inside.tenants.insert(key, Tenant::new(ranks, ended));
            }
        }
        let state = &self.gateway.state;
        let Inside { tenants, waiting, .. } = inside;
        let before = waiting.len();
        waiting.retain(|key| {
            let Some(tenant) = tenants.get_mut(key) else { return false };
            let is_ready = tenant.ranks().iter().any(|rank| state.is_ready(&rank.id));
            if is_ready {
                let configured = self.configured.get(key).map_or(&[][..], Vec::as_slice);
                tenant.begin(&self.learner, configured, &self.stop);
            }
            !is_ready
        });
        before - waiting.len()
    }

    /// Gives up the numbers of endpoints that left: first nobody may write to them any more, then the index forgets
    /// them, and only then are they given out again.
    fn let_go(&self, left: Vec<Arc<Endpoint>>, ended: Option<CancellationToken>) {
        for endpoint in &left {
            // Another engine under this name tells anew whether it sleeps.
            self.sharing.sources().woke(&endpoint.id);
        }
        let (state, index) = (Arc::clone(&self.gateway.state), Arc::clone(&self.gateway.index));
        let sharing = Arc::clone(&self.sharing);
        self.runtime.spawn(async move {
            if let Some(ended) = ended {
                ended.cancelled().await;
            }
            let slots: Vec<_> = left.iter().map(|endpoint| endpoint.slot).collect();
            let forget = {
                let slots = slots.clone();
                move || slots.iter().for_each(|slot| index.forget(*slot))
            };
            // Millions of blocks take a while.
            let _ = tokio::task::spawn_blocking(forget.clone()).await;
            if sharing.mirrors() {
                tokio::time::sleep(REST).await;
                let _ = tokio::task::spawn_blocking(forget).await;
            }
            for slot in slots {
                sharing.sources().forget(slot);
                state.release_slot(slot);
            }
        });
    }

    /// Tells the tokenizers which models there are, when others came or went.
    fn follow_models(&self, inside: &mut Inside) {
        let models = self.gateway.state.index_models();
        if models != inside.index_models {
            self.tell_models(&models);
            inside.index_models = models;
        }
    }

    fn tell_models(&self, models: &BTreeSet<ModelName>) {
        let tokens = models.iter().map(|model| (model.clone(), self.tokens_of(model))).collect();
        self.gateway.tokens.set_models(tokens);
    }

    /// Goes by these settings from now on, as far as they say where tokens come from; models of the settings stay.
    pub fn go_by(&self, settings: Arc<Settings>) {
        let _runtime = self.runtime.enter();
        let inside = self.inside.lock();
        *self.settings.lock() = settings;
        self.tell_models(&inside.index_models);
    }

    fn tokens_of(&self, model: &ModelName) -> ModelTokens {
        let tokens = self.settings.lock().tokens_for(model);
        ModelTokens {
            local_dir: tokens.directory,
            chat_template: tokens.chat_template,
            order: tokens.order,
            service_url: tokens.service_url,
            vllm_port: tokens.vllm_port,
            sglang_port: tokens.sglang_port,
            deadline: tokens.deadline,
        }
    }
}

/// Who left a site and who came, in one plan.
#[derive(Default)]
struct Moves {
    left: Vec<Arc<Endpoint>>,
    came: Vec<Arc<Endpoint>>,
}

#[cfg(test)]
mod tests;
