//! ModelRoutes to routes, with their status.

mod attachment;
mod backends;
mod rules;

use kube::Resource;
use kvasir_api::{FieldError, FieldErrorKind, ModelRoute, ModelRouteSpec, Read, validate_model_route};
use kvasir_core::AdapterName;
use kvasir_state::plan::{ObjectName, PlanRoute};

use super::verdicts::{self, Problem, reasons};
use super::{Options, Translation};
use crate::objects::Objects;
use crate::status::{StatusKind, Verdict};
use crate::translate::precedence::oldest_first;
use attachment::Gateways;
use backends::Backends;

/// What a route with a limit asks for.
const RATE_LIMITING: &str = "rate limiting (spec.rateLimit)";

/// Plans every route that can be used, in order of precedence. Its targets must be planned already.
pub(super) fn translate(objects: &Objects, options: &Options, translation: &mut Translation) {
    let gateways = Gateways::of(objects, options);
    let backends = Backends::of(&translation.plan.targets, objects);
    let (mut routes, mut statuses, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for (name, read) in oldest_first(&objects.model_routes) {
        let said = match usable(read) {
            Ok((route, flawed)) => {
                let (planned, said) = plan(name, &route.spec, flawed, &gateways, &backends);
                routes.push(planned);
                said
            }
            Err(problem) => {
                skipped.push((name.clone(), problem.text.clone()));
                vec![verdicts::accepted(&[problem], "")]
            }
        };
        statuses.push(verdicts::status(StatusKind::ModelRoute, name, read.meta().generation, said));
    }
    translation.plan.routes.extend(routes);
    translation.statuses.extend(statuses);
    translation.skipped.extend(skipped);
}

/// The route, with what is wrong with single rules of it; or why it cannot be used at all.
fn usable(read: &Read<ModelRoute>) -> Result<(&ModelRoute, Option<Problem>), Problem> {
    let route = read.0.as_ref().map_err(Problem::unreadable)?;
    let errors = validate_model_route(route);
    if errors.iter().any(|error| !is_of_one_rule(error)) {
        return Err(Problem::breaks(&errors));
    }
    let flawed = || {
        let text = format!(
            "Rules of this route pass no request on until they are corrected: {}. The other rules are in use.",
            verdicts::list(&errors)
        );
        Problem::new(reasons::INVALID, text)
    };
    Ok((route, (!errors.is_empty()).then(flawed)))
}

/// Whether a flaw leaves the other rules as good as they were, as it does in kthena without its webhook: an expression
/// that cannot be read matches nothing, and a rule whose targets have no weight passes its requests on to the next route.
fn is_of_one_rule(error: &FieldError) -> bool {
    let no_weight =
        error.field.ends_with(".targetModels") && matches!(error.kind, FieldErrorKind::Invalid(_));
    error.field.ends_with(".regex") || no_weight
}

fn plan(
    name: &ObjectName,
    spec: &ModelRouteSpec,
    flawed: Option<Problem>,
    gateways: &Gateways<'_>,
    backends: &Backends<'_>,
) -> (PlanRoute, Vec<Verdict>) {
    let attached = gateways.attach(name, &spec.parent_refs);
    let mut problems = Vec::from_iter(flawed);
    problems.extend(spec.rate_limit.as_ref().map(|_| rate_limited()));
    problems.extend(backends.unsupported(spec));
    problems.extend(attached.problem);
    let fine = if spec.rules.is_empty() {
        "In use; it has no rules, so it takes no request.".to_owned()
    } else {
        format!("In use.{}", attached.note.map(|note| format!(" {note}")).unwrap_or_default())
    };
    let said = vec![
        verdicts::accepted(&problems, fine),
        verdicts::resolved_refs(&backends.missing(name, spec), "Every target exists."),
    ];
    let planned = PlanRoute {
        id: name.clone(),
        model: spec.named_model().map(Into::into),
        adapters: spec.lora_adapters.iter().map(|adapter| AdapterName::from(adapter.as_str())).collect(),
        parents: attached.parents,
        rules: spec.rules.iter().map(|rule| rules::plan(&name.namespace, rule)).collect(),
        refused: spec.rate_limit.as_ref().map(|_| RATE_LIMITING),
    };
    (planned, said)
}

fn rate_limited() -> Problem {
    Problem::new(
        reasons::NOT_SUPPORTED,
        "Rate limits are not available yet: requests that this route takes are answered with 503, \
         feature_not_available. Remove spec.rateLimit to have them served without a limit.",
    )
}

#[cfg(test)]
mod tests;
