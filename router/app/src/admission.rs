//! From the settings of the queues to the queues.

use std::sync::Arc;

use kvasir_admission::{Admission, AdmissionMode, FairnessOptions, SessionBoostOptions};
use kvasir_core::{AdmissionMeter, Clock, ModelPods};
use kvasir_gateway::Turnstile;
use kvasir_settings::duration::format_duration;
use kvasir_settings::resolved::{AdmissionSettings, FairnessSettings, SessionBoostSettings};

/// The queue that the settings ask for.
pub(crate) fn build(
    settings: &AdmissionSettings,
    clock: Arc<dyn Clock>,
    meter: Arc<dyn AdmissionMeter>,
    pods: Arc<dyn ModelPods>,
) -> Turnstile {
    Turnstile::new(Admission::new(mode(settings), clock, meter, pods), settings.clone())
}

fn mode(settings: &AdmissionSettings) -> AdmissionMode {
    match settings {
        AdmissionSettings::Off => AdmissionMode::Off,
        AdmissionSettings::Fairness(fairness) => AdmissionMode::Fairness(FairnessOptions {
            window_size: fairness.window,
            input_token_weight: fairness.input_token_weight,
            output_token_weight: fairness.output_token_weight,
            queue_timeout: fairness.queue_timeout,
            max_concurrent: fairness.max_concurrent,
            max_qps: f64::from(fairness.max_qps),
            priority_token_weight: fairness.priority_token_weight,
            priority_request_num_weight: fairness.priority_request_weight,
            ageing: fairness.ageing,
            user_weights: fairness.user_weights.clone().into_iter().collect(),
            max_waiting: fairness.max_waiting,
            ..FairnessOptions::default()
        }),
        AdmissionSettings::SessionBoost(boost) => AdmissionMode::SessionBoost(SessionBoostOptions {
            max_sessions: boost.max_sessions,
            inflight_per_pod: boost.inflight_per_pod,
            grace_period: boost.grace_period,
            timeout: boost.timeout,
            ageing: boost.ageing,
            max_waiting: boost.max_waiting,
            ..SessionBoostOptions::default()
        }),
    }
}

/// What is on, in one sentence for the log; `None` where nothing is.
pub(crate) fn sentence(settings: &AdmissionSettings, shared: bool) -> Option<String> {
    match settings {
        AdmissionSettings::Off => None,
        AdmissionSettings::Fairness(fairness) => Some(fairness_sentence(fairness, shared)),
        AdmissionSettings::SessionBoost(boost) => Some(session_boost_sentence(boost)),
    }
}

fn fairness_sentence(fairness: &FairnessSettings, shared: bool) -> String {
    let user = match &fairness.user_header {
        Some(header) => format!("users by {header}"),
        None => "nobody is told from another".to_owned(),
    };
    let pace = match fairness.max_concurrent {
        0 => format!("{} begin in a second", fairness.max_qps),
        most => format!("{most} run at once"),
    };
    let known = if shared { "shared with other replicas" } else { "known here alone" };
    format!(
        "admission: fairness queue, {user}; of each model {pace}; use of the last {} counts, {known}; longest wait {}",
        format_duration(fairness.window),
        format_duration(fairness.queue_timeout)
    )
}

fn session_boost_sentence(boost: &SessionBoostSettings) -> String {
    let timeout = boost.timeout.map_or_else(|| "as the client's".to_owned(), format_duration);
    format!(
        "admission: session-boost queue, conversations by {}; of each model {} run at once for each pod; longest wait {timeout}",
        boost.header, boost.inflight_per_pod
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_settings_are_those_of_the_queues() {
        let fairness = mode(&AdmissionSettings::Fairness(FairnessSettings::default()));
        assert_eq!(fairness, AdmissionMode::Fairness(FairnessOptions::default()));
        let boost = mode(&AdmissionSettings::SessionBoost(SessionBoostSettings::default()));
        assert_eq!(boost, AdmissionMode::SessionBoost(SessionBoostOptions::default()));
        assert_eq!(mode(&AdmissionSettings::Off), AdmissionMode::Off);
    }

    #[test]
    fn what_is_on_is_said_in_one_sentence() {
        assert_eq!(sentence(&AdmissionSettings::Off, false), None);
        let fairness = FairnessSettings { max_concurrent: 8, ..FairnessSettings::default() };
        assert_eq!(
            sentence(&AdmissionSettings::Fairness(fairness), true).as_deref(),
            Some(
                "admission: fairness queue, nobody is told from another; of each model 8 run at once; use of the last \
                 5m counts, shared with other replicas; longest wait 1m"
            )
        );
        assert_eq!(
            sentence(&AdmissionSettings::SessionBoost(SessionBoostSettings::default()), false).as_deref(),
            Some(
                "admission: session-boost queue, conversations by x-session-id; of each model 16 run at once for each \
                 pod; longest wait 30s"
            )
        );
    }
}
