//! Objects that needed no write when they were last looked at, so that they are not compared again with every plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::found;
use super::outbox::StatusKey;
use crate::objects::Objects;
use crate::status::Status;

/// The objects, each with the version and the status that were compared. What comes of a comparison follows from these
/// two alone.
#[derive(Debug, Default)]
pub(crate) struct Agreed(BTreeMap<StatusKey, (String, Arc<Status>)>);

impl Agreed {
    /// Whether a comparison would only show again that nothing is to be written.
    pub(crate) fn holds(&self, objects: &Objects, key: &StatusKey, status: &Status) -> bool {
        let Some((version, said)) = self.0.get(key) else { return false };
        found::version(objects, key) == Some(version) && **said == *status
    }

    /// Nothing is to be written. Of an object without a version nothing is remembered.
    pub(crate) fn note(&mut self, objects: &Objects, key: &StatusKey, status: &Arc<Status>) {
        match found::version(objects, key) {
            Some(version) => {
                self.0.insert(key.clone(), (version.to_owned(), Arc::clone(status)));
            }
            None => self.forget(key),
        }
    }

    /// The object has to be looked at the next time.
    pub(crate) fn forget(&mut self, key: &StatusKey) {
        self.0.remove(key);
    }

    /// All objects have to be.
    pub(crate) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Forgets objects that are not among `live`.
    pub(crate) fn retain(&mut self, live: impl Fn(&StatusKey) -> bool) {
        self.0.retain(|key, _| live(key));
    }
}

#[cfg(test)]
mod tests {
    use kvasir_api::{ModelRoute, Read};
    use kvasir_state::plan::ObjectName;
    use serde_json::json;

    use super::*;
    use crate::status::{Said, StatusKind, Verdict};

    fn objects(version: Option<&str>) -> Objects {
        let route: Read<ModelRoute> = serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "n", "resourceVersion": version},
            "spec": {"modelName": "m", "rules": []},
        }))
        .expect("readable");
        let name = ObjectName::new("n", "r");
        Objects { model_routes: [(name, Arc::new(route))].into(), ..Objects::default() }
    }

    #[test]
    fn it_holds_for_the_same_version_and_the_same_words() {
        let key = (StatusKind::ModelRoute, ObjectName::new("n", "r"));
        let status = |message: &str| {
            let said = Said::Conditions(vec![Verdict::holds("Accepted", "Accepted", message)]);
            Arc::new(Status { kind: key.0, name: key.1.clone(), generation: Some(1), said })
        };
        let mut agreed = Agreed::default();
        let first = objects(Some("1"));
        assert!(!agreed.holds(&first, &key, &status("a")));
        agreed.note(&first, &key, &status("a"));
        assert!(agreed.holds(&first, &key, &status("a")), "equal words will do");
        assert!(!agreed.holds(&first, &key, &status("b")));
        assert!(!agreed.holds(&objects(Some("2")), &key, &status("a")), "somebody changed it");
        assert!(!agreed.holds(&Objects::default(), &key, &status("a")), "it is gone");
        agreed.note(&objects(None), &key, &status("a"));
        assert!(!agreed.holds(&first, &key, &status("a")));
        agreed.note(&first, &key, &status("a"));
        agreed.retain(|_| false);
        assert!(!agreed.holds(&first, &key, &status("a")));
    }
}
