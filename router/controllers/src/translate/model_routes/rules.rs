//! One rule of a ModelRoute: what a request must look like, and where it goes.

use std::sync::Arc;

use kvasir_api::model_route::{ModelMatch, Rule, StringCondition, StringMatch, TargetModel, TargetName};
use kvasir_api::re2;
use kvasir_state::StringTest;
use kvasir_state::plan::{PlanRule, PlanTo, TargetId};

/// What a target outside the cluster asks for.
const EXTERNAL_PROVIDER: &str = "an external model provider as target";

/// The rule of a route in `namespace`, where its targets are too.
pub(super) fn plan(namespace: &Arc<str>, rule: &Rule) -> PlanRule {
    let nothing = ModelMatch::default();
    let wanted = rule.model_match.as_ref().unwrap_or(&nothing);
    PlanRule {
        headers: wanted.headers.iter().map(|(name, text)| (name.as_str().into(), test(text))).collect(),
        uri: wanted.uri.as_ref().map(test),
        body_model: wanted.body.as_ref().and_then(|body| body.model.as_deref()).map(Into::into),
        to: rule.target_models.iter().filter_map(|target| share(namespace, target)).collect(),
    }
}

fn test(text: &StringMatch) -> StringTest {
    match text.condition() {
        StringCondition::Anything => StringTest::Any,
        StringCondition::Exact(text) => StringTest::Exact(text.into()),
        StringCondition::Prefix(text) => StringTest::Prefix(text.into()),
        StringCondition::Regex(pattern) => re2::compile(pattern).map_or(StringTest::Never, StringTest::Regex),
    }
}

/// A target with its weight; an absent one counts what the CRD fills in.
fn share(namespace: &Arc<str>, target: &TargetModel) -> Option<(PlanTo, u32)> {
    let to = match target.name()? {
        TargetName::ModelServer(name) => PlanTo::Target(TargetId::model_server(Arc::clone(namespace), name)),
        TargetName::ExternalModelProvider(_) => PlanTo::Refused(EXTERNAL_PROVIDER),
    };
    Some((to, target.weight_or_default()))
}
