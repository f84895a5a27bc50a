//! ExternalModelProviders: what their status says until they can be served.

use kube::Resource;
use kvasir_api::conditions::types;
use kvasir_api::{ExternalModelProvider, Read, validate_external_model_provider};

use super::Translation;
use super::verdicts::{self, Problem, reasons};
use crate::objects::Objects;
use crate::status::{StatusKind, Verdict};

/// kthena's reason for a provider that cannot be used as it is written.
const CONFIGURATION_INVALID: &str = "ConfigurationInvalid";

/// The reasons that are given for a provider that is not ready.
pub(crate) const READY_REASONS: [&str; 2] = [reasons::NOT_SUPPORTED, CONFIGURATION_INVALID];

/// No provider is in use yet; each is told so, and what is wrong with it besides.
pub(super) fn translate(objects: &Objects, translation: &mut Translation) {
    for (name, read) in &objects.providers {
        let broken = broken(read);
        let ready = broken.as_ref().map_or(reasons::NOT_SUPPORTED, |_| CONFIGURATION_INVALID);
        if let Some(problem) = &broken {
            translation.skipped.push((name.clone(), problem.text.clone()));
        }
        let problem = broken.unwrap_or_else(not_supported);
        let said = vec![
            Verdict::fails(types::READY, ready, problem.text.clone()),
            verdicts::accepted(&[problem], ""),
        ];
        let generation = read.meta().generation;
        translation.statuses.push(verdicts::status(
            StatusKind::ExternalModelProvider,
            name,
            generation,
            said,
        ));
    }
}

fn broken(read: &Read<ExternalModelProvider>) -> Option<Problem> {
    let errors = match &read.0 {
        Ok(provider) => validate_external_model_provider(provider),
        Err(unreadable) => return Some(Problem::unreadable(unreadable)),
    };
    (!errors.is_empty()).then(|| Problem::breaks(&errors))
}

fn not_supported() -> Problem {
    Problem::new(
        reasons::NOT_SUPPORTED,
        "External providers are not available yet: requests that a route sends here are answered with 503, \
         feature_not_available. Send them to a ModelServer.",
    )
}

#[cfg(test)]
mod tests;
