//! Which pods a selector means, without looking at every pod for every selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_state::plan::ObjectName;

use crate::objects::PodFacts;

/// Pods by namespace and label.
#[derive(Debug)]
pub(super) struct PodIndex<'a> {
    pods: &'a BTreeMap<ObjectName, Arc<PodFacts>>,
}

impl<'a> PodIndex<'a> {
    /// An index of all pods that are not gone.
    pub(super) fn of(pods: &'a BTreeMap<ObjectName, Arc<PodFacts>>) -> Self {
        Self { pods }
    }

    /// The pods of `namespace` that have all of `labels`, by name. No labels select nothing.
    pub(super) fn select(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<(&'a ObjectName, &'a PodFacts)> {
        let has_all = |pod: &PodFacts| labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        self.pods
            .iter()
            .filter(|(name, pod)| *name.namespace == *namespace && !labels.is_empty() && has_all(pod))
            .map(|(name, pod)| (name, pod.as_ref()))
            .collect()
    }
}
