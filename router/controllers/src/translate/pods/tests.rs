use proptest::prelude::*;

use super::*;
use crate::translate::testing::labels;

fn facts(pairs: &[(&str, &str)], gone: bool) -> Arc<PodFacts> {
    let ready = !gone;
    Arc::new(PodFacts {
        labels: labels(pairs),
        ranks: 1,
        pin_ranks: None,
        ip: None,
        ready,
        gone,
        containers: [].into(),
    })
}

fn names(selected: &[(&ObjectName, &PodFacts)]) -> Vec<String> {
    selected.iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn a_pod_needs_the_namespace_and_every_label() {
    let pods = BTreeMap::from([
        (ObjectName::new("a", "one"), facts(&[("app", "m"), ("version", "1")], false)),
        (ObjectName::new("a", "two"), facts(&[("app", "m"), ("version", "2")], false)),
        (ObjectName::new("a", "done"), facts(&[("app", "m"), ("version", "2")], true)),
        (ObjectName::new("b", "one"), facts(&[("app", "m"), ("version", "1")], false)),
        (ObjectName::new("b", "bare"), facts(&[], false)),
    ]);
    let index = PodIndex::of(&pods);
    let select = |namespace: &str, pairs: &[(&str, &str)]| names(&index.select(namespace, &labels(pairs)));
    assert_eq!(select("a", &[("app", "m")]), ["a/one", "a/two"]);
    assert_eq!(select("a", &[("app", "m"), ("version", "2")]), ["a/two"]);
    assert_eq!(select("b", &[("version", "1")]), ["b/one"]);
    for nothing in [
        select("a", &[("app", "m"), ("version", "3")]),
        select("a", &[("app", "m"), ("tier", "")]),
        select("c", &[("app", "m")]),
        select("a", &[]),
        select("b", &[]),
    ] {
        assert_eq!(nothing, Vec::<String>::new());
    }
}

fn some_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[abc]", "[12]?", 0..4)
}

proptest! {
    #[test]
    fn the_index_finds_what_looking_at_every_pod_finds(
        pods in prop::collection::btree_map(("[xyz]", "p[0-9]"), (some_labels(), any::<bool>()), 0..24),
        selector in some_labels(),
        namespace in "[wxyz]",
    ) {
        let pods: BTreeMap<ObjectName, Arc<PodFacts>> = pods
            .into_iter()
            .map(|((namespace, name), (labels, gone))| {
                let facts = PodFacts { labels, gone, ..PodFacts::clone(&facts(&[], gone)) };
                (ObjectName::new(namespace, name), Arc::new(facts))
            })
            .collect();
        let naive: Vec<String> = pods
            .iter()
            .filter(|(name, facts)| {
                *name.namespace == *namespace
                    && !facts.gone
                    && !selector.is_empty()
                    && selector.iter().all(|(key, value)| facts.labels.get(key) == Some(value))
            })
            .map(|(name, _)| name.to_string())
            .collect();
        prop_assert_eq!(names(&PodIndex::of(&pods).select(&namespace, &selector)), naive);
    }
}
