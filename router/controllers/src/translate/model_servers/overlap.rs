//! ModelServers that speak of the same endpoints, and do not say the same of them.

use std::collections::{BTreeSet, HashMap};

use kvasir_api::ModelServer;
use kvasir_api::model_server::{InferenceEngine, PdGroup};
use kvasir_state::plan::{ObjectName, UpstreamTls};

use super::{disaggregation, policy, served_name};
use crate::objects::PodFacts;
use crate::translate::verdicts::list;

/// Who was the first to speak of a pod's port.
#[derive(Debug, Default)]
pub(super) struct Overlaps<'a> {
    /// Places in `speakers`.
    first: HashMap<(&'a ObjectName, u16), usize>,
    speakers: Vec<Speaker<'a>>,
}

/// A ModelServer, and what it says of its endpoints.
#[derive(Clone, Debug)]
struct Speaker<'a> {
    name: &'a ObjectName,
    engine: InferenceEngine,
    model: Option<&'a str>,
    tls: Option<UpstreamTls>,
    groups: Option<&'a PdGroup>,
}

impl<'a> Overlaps<'a> {
    /// Enters the next younger ModelServer with its pods. Gives sentences where older ones contradict it; they name no
    /// pods, since those come and go.
    pub(super) fn enter(
        &mut self,
        name: &'a ObjectName,
        server: &'a ModelServer,
        selected: &[(&'a ObjectName, &PodFacts)],
    ) -> Option<String> {
        let port = server.spec.workload_port.port;
        let place = self.speakers.len();
        let groups = disaggregation::groups(&server.spec);
        let (mut older, mut other_part) = (BTreeSet::new(), BTreeSet::new());
        for (pod, facts) in selected {
            let first = *self.first.entry((*pod, port)).or_insert(place);
            // Its own place is still empty.
            let Some(speaker) = self.speakers.get(first) else { continue };
            older.insert(first);
            if disaggregation::disagree(speaker.groups, groups, &facts.labels) {
                other_part.insert(format!("{:?}", &*speaker.name.name));
            }
        }
        let own = Speaker {
            name,
            engine: server.spec.inference_engine,
            model: served_name(server),
            tls: policy::tls(server),
            groups,
        };
        let speakers = older.into_iter().filter_map(|place| self.speakers.get(place));
        let contradicting = speakers.filter(|older| older.contradicts(&own));
        let older: Vec<String> = contradicting.map(Speaker::describe).collect();
        self.speakers.push(own);
        let contradicted = (!older.is_empty()).then(|| {
            format!(
                "It shares pods on port {port} with older ModelServers that say something else of them: {}. An \
                 engine is of one kind, is known under one model and spoken to in one way: make them agree, or \
                 select other pods.",
                list(&older)
            )
        });
        let parted = (!other_part.is_empty()).then(|| {
            format!(
                "Pods on port {port} that prefill here decode for older ModelServers, or the other way round: {}. An \
                 engine has one part, the older one's; here they get no requests. Make them agree, or select other \
                 pods.",
                list(&Vec::from_iter(other_part))
            )
        });
        let sentences: Vec<String> = contradicted.into_iter().chain(parted).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

impl Speaker<'_> {
    fn contradicts(&self, other: &Self) -> bool {
        let other_model = matches!((self.model, other.model), (Some(one), Some(other)) if one != other);
        self.engine != other.engine || self.tls != other.tls || other_model
    }

    fn describe(&self) -> String {
        let engine = match self.engine {
            InferenceEngine::Vllm => "vLLM",
            InferenceEngine::SgLang => "SGLang",
        };
        let model = self.model.map(|model| format!(" and model {model:?}")).unwrap_or_default();
        let over = if self.tls.is_some() { "https" } else { "http" };
        format!("{:?} says engine {engine} over {over}{model}", &*self.name.name)
    }
}
