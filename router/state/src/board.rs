//! Where replicas meet: what this router has in flight, and what its peers have.

use std::collections::HashMap;

use kvasir_core::{EndpointId, LoadBoard, SharedLoad};

use crate::registry::State;

impl LoadBoard for State {
    fn own(&self) -> Vec<(EndpointId, SharedLoad)> {
        let snapshot = self.snapshot.load();
        let mut own: Vec<_> = snapshot
            .members
            .iter()
            .map(|(id, member)| (id.clone(), member.live.own()))
            .filter(|(_, load)| *load != SharedLoad::default())
            .collect();
        own.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        own
    }

    fn endpoints(&self) -> Vec<EndpointId> {
        let mut ids: Vec<_> = self.snapshot.load().members.keys().cloned().collect();
        ids.sort_unstable();
        ids
    }

    fn set_peers(&self, loads: &[(EndpointId, SharedLoad)]) {
        let loads: HashMap<&EndpointId, SharedLoad> = loads.iter().map(|(id, load)| (id, *load)).collect();
        for (id, member) in &self.snapshot.load().members {
            member.live.set_peers(loads.get(id).copied().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
