//! What a rule chooses from, and which targets a route rests on.

use std::collections::HashMap;
use std::sync::Arc;

use kvasir_core::ModelName;

use crate::plan::{PlanTo, TargetId, TargetKind};
use crate::query::{Destination, NoRoute, RouteName};
use crate::target::Target;

/// The targets of a plan.
pub(crate) type Targets = HashMap<TargetId, Arc<Target>>;

/// One of the places that a rule sends requests to.
#[derive(Debug)]
pub(super) enum Choice {
    /// A target.
    To(Arc<Destination>),
    /// A target that does not exist.
    Missing(TargetKind),
    /// What cannot be done.
    Refused(&'static str),
}

impl Choice {
    /// Where the request goes, or why it does not.
    pub(super) fn follow(&self, route: &RouteName) -> Result<&Arc<Destination>, NoRoute> {
        match self {
            Self::To(destination) => Ok(destination),
            Self::Missing(kind) => Err(NoRoute::NoTarget { route: route.clone(), kind: *kind }),
            Self::Refused(what) => Err(NoRoute::Refused { route: route.clone(), what }),
        }
    }
}

/// The targets that a route was made with. As long as they are the same values, so may the route be.
#[derive(Debug, Default)]
pub(super) struct Footing(Vec<(TargetId, Option<Arc<Target>>)>);

impl Footing {
    /// The choice of `to`; `make` fills in what is not about the target.
    pub(super) fn choose(
        &mut self,
        to: &PlanTo,
        targets: &Targets,
        make: impl FnOnce(Arc<Target>) -> Destination,
    ) -> Choice {
        let id = match to {
            PlanTo::Refused(what) => return Choice::Refused(what),
            PlanTo::Target(id) => id,
        };
        let found = targets.get(id);
        self.0.push((id.clone(), found.cloned()));
        match found {
            None => Choice::Missing(id.kind),
            Some(target) => match target.refused {
                Some(what) => Choice::Refused(what),
                None => Choice::To(Arc::new(make(Arc::clone(target)))),
            },
        }
    }

    /// Whether `targets` would give the same choices.
    pub(super) fn holds(&self, targets: &Targets) -> bool {
        self.0.iter().all(|(id, before)| match (before, targets.get(id)) {
            (None, None) => true,
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        })
    }

    /// The targets that exist.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.0.iter().filter_map(|(_, target)| target.as_ref())
    }

    /// The name of the model behind the first target.
    pub(super) fn model(&self) -> Option<&ModelName> {
        self.0.iter().find_map(|(_, target)| target.as_ref()).map(|target| &target.index_model)
    }
}
