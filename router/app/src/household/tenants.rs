//! One site of the household: its endpoints, and whether it is learned about.

use std::sync::Arc;

use kvasir_core::{Endpoint, EndpointId};
use kvasir_settings::resolved::KvEventsSettings;
use tokio_util::sync::CancellationToken;

use crate::knowledge::{Learner, Site};

/// An engine, whatever the number of its data-parallel ranks.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct SiteKey(EndpointId);

impl SiteKey {
    pub(super) fn of(endpoint: &EndpointId) -> Self {
        Self(EndpointId { rank: 0, ..endpoint.clone() })
    }
}

/// The endpoints of one engine.
#[derive(Debug)]
pub(super) struct Tenant {
    ranks: Vec<Arc<Endpoint>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Not learned about yet; told when what was before has ended.
    Waiting(Option<CancellationToken>),
    /// Learned about, until `stop`; `ended` says that it is over.
    Learning { stop: CancellationToken, ended: CancellationToken },
}

impl Tenant {
    /// One that waits, `before` being when those before it have ended.
    pub(super) fn new(ranks: Vec<Arc<Endpoint>>, before: Option<CancellationToken>) -> Self {
        Self { ranks, stage: Stage::Waiting(before) }
    }

    pub(super) fn ranks(&self) -> &[Arc<Endpoint>] {
        &self.ranks
    }

    /// Begins to learn, as soon as what was before has ended: two followers of one number would mix their batches.
    pub(super) fn begin(
        &mut self,
        learner: &Arc<Learner>,
        configured: &[KvEventsSettings],
        stop: &CancellationToken,
    ) {
        let Stage::Waiting(before) = &mut self.stage else { return };
        let before = before.take();
        let (stop, ended) = (stop.child_token(), CancellationToken::new());
        if let Some(site) = Site::new(learner, self.ranks.clone(), configured, stop.clone()) {
            // Also when the task panics.
            let end = ended.clone().drop_guard();
            tokio::spawn(async move {
                let _end = end;
                if let Some(before) = before {
                    before.cancelled().await;
                }
                site.run().await;
            });
        } else {
            ended.cancel();
        }
        self.stage = Stage::Learning { stop, ended };
    }

    /// Ends what is learned. Gives the endpoints, and what is cancelled once it has ended.
    pub(super) fn end(self) -> (Vec<Arc<Endpoint>>, Option<CancellationToken>) {
        let ended = match self.stage {
            Stage::Waiting(before) => before,
            Stage::Learning { stop, ended } => {
                stop.cancel();
                Some(ended)
            }
        };
        (self.ranks, ended)
    }
}
