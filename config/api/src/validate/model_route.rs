//! The rules for a ModelRoute.

use crate::field_error::FieldError;
use crate::model_route::{ModelMatch, ModelRoute, ModelRouteSpec, Rule, StringMatch, TargetModel};
use crate::re2;

/// What is wrong with a route, in the order of its fields.
pub fn validate_model_route(route: &ModelRoute) -> Vec<FieldError> {
    let spec = &route.spec;
    let mut errors = Vec::new();
    if spec.named_model().is_none() && spec.lora_adapters.is_empty() {
        errors.push(FieldError::required("spec", "either modelName or loraAdapters must be specified"));
    }
    for (index, adapter) in spec.lora_adapters.iter().enumerate() {
        if adapter.is_empty() {
            let field = format!("spec.loraAdapters[{index}]");
            errors.push(FieldError::invalid(field, adapter, "lora adapter name cannot be an empty string"));
        }
    }
    for (index, rule) in spec.rules.iter().enumerate() {
        check_rule(spec, rule, &rule_path(index), &mut errors);
    }
    errors
}

/// A rule that is `null`, which a typed route cannot hold.
pub(crate) fn rule_is_null(rule: usize) -> FieldError {
    FieldError::invalid(rule_path(rule), (), "rule must not be nil")
}

/// A target that is `null`, which a typed route cannot hold.
pub(crate) fn target_is_null(rule: usize, target: usize) -> FieldError {
    FieldError::invalid(target_path(&rule_path(rule), target), (), "target model must not be nil")
}

fn rule_path(index: usize) -> String {
    format!("spec.rules[{index}]")
}

fn target_path(rule: &str, index: usize) -> String {
    format!("{rule}.targetModels[{index}]")
}

fn check_rule(spec: &ModelRouteSpec, rule: &Rule, path: &str, errors: &mut Vec<FieldError>) {
    if rule.target_models.is_empty() {
        let field = format!("{path}.targetModels");
        errors.push(FieldError::required(field, "each rule must have at least one target model"));
        return;
    }
    for (index, target) in rule.target_models.iter().enumerate() {
        check_target(spec, target, &target_path(path, index), errors);
    }
    let total: u64 = rule.target_models.iter().map(|target| u64::from(target.weight_or_default())).sum();
    if total == 0 {
        let field = format!("{path}.targetModels");
        errors.push(FieldError::invalid(field, total, "total weight must be greater than zero"));
    }
    if let Some(matching) = &rule.model_match {
        check_match(matching, &format!("{path}.modelMatch"), errors);
    }
}

fn check_target(spec: &ModelRouteSpec, target: &TargetModel, path: &str, errors: &mut Vec<FieldError>) {
    let server = target.model_server_name.as_deref().unwrap_or_default();
    let provider = target.external_model_provider_name.as_deref().unwrap_or_default();
    if target.name().is_none() {
        errors.push(FieldError::invalid(
            path,
            format!("{server}/{provider}"),
            "exactly one of modelServerName or externalModelProviderName must be set",
        ));
    }
    if !provider.is_empty() && !spec.lora_adapters.is_empty() {
        let field = format!("{path}.externalModelProviderName");
        errors.push(FieldError::invalid(field, provider, "lora routes must target modelServerName"));
    }
}

fn check_match(matching: &ModelMatch, path: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in &matching.headers {
        check_regex(value, &format!("{path}.headers[{name}].regex"), errors);
    }
    if let Some(uri) = &matching.uri {
        check_regex(uri, &format!("{path}.uri.regex"), errors);
    }
}

/// An expression is checked even where `exact` or `prefix` stands before it: it was meant to work.
fn check_regex(matching: &StringMatch, field: &str, errors: &mut Vec<FieldError>) {
    if let Some(pattern) = &matching.regex
        && let Err(problem) = re2::compile(pattern)
    {
        errors.push(FieldError::invalid(field, pattern, problem.to_string()));
    }
}
