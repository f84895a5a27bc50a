//! Which pods a selector means, without looking at every pod for every selector.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kvasir_state::plan::ObjectName;

use crate::objects::PodFacts;

/// Pods by namespace and label.
#[derive(Debug, Default)]
pub(super) struct PodIndex<'a> {
    /// In the order of names.
    pods: Vec<(&'a ObjectName, &'a PodFacts)>,
    /// For each namespace, who has a label: places in `pods`, in their order.
    holders: HashMap<&'a str, Holders<'a>>,
}

type Holders<'a> = HashMap<(&'a str, &'a str), Vec<usize>>;

impl<'a> PodIndex<'a> {
    /// An index of all pods that are not gone.
    pub(super) fn of(pods: &'a BTreeMap<ObjectName, Arc<PodFacts>>) -> Self {
        let mut index = Self { pods: Vec::with_capacity(pods.len()), ..Self::default() };
        for (name, facts) in pods.iter().filter(|(_, facts)| !facts.gone) {
            let place = index.pods.len();
            index.pods.push((name, facts.as_ref()));
            let holders = index.holders.entry(&*name.namespace).or_default();
            for (key, value) in &facts.labels {
                holders.entry((key.as_str(), value.as_str())).or_default().push(place);
            }
        }
        index
    }

    /// The pods of `namespace` that have all of `labels`, by name. No labels select nothing.
    pub(super) fn select(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<(&'a ObjectName, &'a PodFacts)> {
        let Some(holders) = self.holders.get(namespace) else { return Vec::new() };
        // The rarest label leaves the fewest pods to look at; one that nobody has leaves none.
        let of_labels = labels.iter().map(|(key, value)| holders.get(&(key.as_str(), value.as_str())));
        let rarest = of_labels.map(|pods| pods.map_or(&[][..], Vec::as_slice)).min_by_key(|pods| pods.len());
        let has_all =
            |facts: &PodFacts| labels.iter().all(|(key, value)| facts.labels.get(key) == Some(value));
        let candidates = rarest.into_iter().flatten().filter_map(|place| self.pods.get(*place));
        candidates.filter(|(_, facts)| has_all(facts)).copied().collect()
    }
}

#[cfg(test)]
mod tests;
