//! The rules for a ModelServer.

use std::collections::BTreeMap;

use super::labels::first_bad_label;
use crate::field_error::FieldError;
use crate::model_server::{ModelServer, WorkloadSelector};

const SELECTOR: &str = "spec.workloadSelector";

/// What is wrong with a model server, in the order of its fields.
pub fn validate_model_server(server: &ModelServer) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match &server.spec.workload_selector {
        Some(selector) => check_selector(selector, &mut errors),
        None => errors.push(no_selector()),
    }
    errors
}

/// A model server that does not say which pods it means.
fn no_selector() -> FieldError {
    FieldError::required(SELECTOR, "workloadSelector must be specified")
}

fn check_selector(selector: &WorkloadSelector, errors: &mut Vec<FieldError>) {
    check_labels(&selector.match_labels, &format!("{SELECTOR}.matchLabels"), errors);
    if let Some(group) = &selector.pd_group {
        let path = format!("{SELECTOR}.pdGroup");
        if group.group_key.is_empty() {
            errors.push(FieldError::required(format!("{path}.groupKey"), "groupKey must be specified"));
        }
        check_labels(&group.prefill_labels, &format!("{path}.prefillLabels"), errors);
        check_labels(&group.decode_labels, &format!("{path}.decodeLabels"), errors);
    }
}

fn check_labels(labels: &BTreeMap<String, String>, field: &str, errors: &mut Vec<FieldError>) {
    if labels.is_empty() {
        errors.push(FieldError::required(field, "labels must contain at least one label"));
    } else if let Some(problem) = first_bad_label(labels) {
        errors.push(FieldError::invalid(field, labels, format!("invalid selector: {problem}")));
    }
}
