//! Who may begin now: the queue between a request's route and its placement.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use kvasir_admission::{Admission, Ask, Denied, Permit};
use kvasir_core::{ErrorKind, InferenceRequest, Prompt, RouterError, Usage};
use kvasir_settings::resolved::AdmissionSettings;

use crate::Gateway;
use crate::head::Errand;
use crate::place::RETRY_AFTER;
use crate::resolve::Bound;
use crate::settle::Trail;

/// Longest name of a user or a conversation, bytes; a longer one is none. Each is kept while it is in use.
const LONGEST_NAME: usize = 256;

/// When a client may come back that found the queue full: some of those before it have begun by then.
const QUEUE_MOVES: Duration = Duration::from_secs(1);

/// The outcome of a request whose client left.
const CLIENT_LEFT: &str = "client_cancelled";

/// The queue, and how a request says who it is.
#[derive(Debug)]
pub struct Turnstile {
    admission: Arc<Admission>,
    settings: AdmissionSettings,
}

impl Turnstile {
    /// `admission` was made as `settings` say.
    pub fn new(admission: Arc<Admission>, settings: AdmissionSettings) -> Self {
        Self { admission, settings }
    }

    /// The queue itself.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// What the settings say of it.
    pub fn settings(&self) -> &AdmissionSettings {
        &self.settings
    }

    fn is_off(&self) -> bool {
        self.settings == AdmissionSettings::Off
    }

    /// Who asks, by the header that the settings name.
    fn ask<'a>(&self, request: &'a InferenceRequest, headers: &'a HeaderMap) -> Ask<'a> {
        let (user, session) = match &self.settings {
            AdmissionSettings::Off => (None, None),
            AdmissionSettings::Fairness(fairness) => {
                (fairness.user_header.as_deref().and_then(|name| only_value(headers, name)), None)
            }
            AdmissionSettings::SessionBoost(boost) => (None, first_value(headers, &boost.header)),
        };
        Ask {
            model: &request.requested_model,
            user,
            session,
            prompt_tokens: prompt_tokens(request),
            max_tokens: request.max_tokens,
        }
    }

    /// What a client is told who may not begin.
    fn refusal(&self, gateway: &Gateway, denied: &Denied) -> ErrorKind {
        match denied {
            Denied::TimedOut(waited) => {
                ErrorKind::QueueTimeout { waited: *waited, flag: self.flags().timeout }
            }
            Denied::Full => ErrorKind::QueueFull { flag: self.flags().max_waiting, retry_after: QUEUE_MOVES },
            Denied::Closed if gateway.readiness.is_draining() => ErrorKind::ShuttingDown,
            Denied::Closed => ErrorKind::NoEndpoint {
                reason: "the model's route was removed while the request waited for its turn",
                retry_after: RETRY_AFTER,
            },
        }
    }

    fn flags(&self) -> Flags {
        match self.settings {
            AdmissionSettings::SessionBoost(_) => {
                Flags { timeout: "--session-boost-timeout", max_waiting: "--session-boost-max-waiting" }
            }
            _ => Flags { timeout: "--fairness-queue-timeout", max_waiting: "--fairness-max-waiting" },
        }
    }
}

/// The flags that set the limits of a queue.
struct Flags {
    timeout: &'static str,
    max_waiting: &'static str,
}

/// What a request that runs holds, if it needed anything.
#[derive(Debug, Default)]
pub(crate) struct Admitted(Option<Permit>);

impl Admitted {
    /// The request has ended, with one of the outcome metric's words.
    pub(crate) fn give_back(&mut self, outcome: &str, usage: Option<&Usage>) {
        let Some(mut permit) = self.0.take() else { return };
        // Who leaves in the middle of an answer has used something, though nobody says how much. Who failed by no fault
        // of the client's pays nothing.
        if outcome != CLIENT_LEFT {
            permit.settle(usage, outcome == "success");
        }
    }
}

/// Waits for the request's turn. Only models that a ModelRoute or the settings name have queues: any other name is the
/// client's own, and there may be any number of them. Looking after a stored response is no work for an engine.
pub(crate) async fn admit(
    gateway: &Gateway,
    errand: &Errand,
    bound: &Bound,
    trail: &mut Trail<'_>,
) -> Result<(), RouterError> {
    let turnstile = &gateway.turnstile;
    let queues = matches!(errand, Errand::Call(_)) && bound.route.by_model();
    if turnstile.is_off() || !queues {
        return Ok(());
    }
    let asked = gateway.clock.now();
    let admitted = turnstile.admission.admit(turnstile.ask(&bound.request, &bound.outbound.headers)).await;
    trail.queued(gateway.clock.now().saturating_duration_since(asked));
    let permit = admitted.map_err(|denied| turnstile.refusal(gateway, &denied))?;
    trail.hold(Admitted(Some(permit)));
    Ok(())
}

/// Exact where the prompt came as tokens, else four bytes for one, as the scheduler estimates.
fn prompt_tokens(request: &InferenceRequest) -> u32 {
    let tokens = match &request.prompt {
        Prompt::TokenIds(ids) => ids.len(),
        _ => request.body.len() / 4,
    };
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The value of a header that one side alone may set. With two of them, one is the client's, and nobody knows which.
fn only_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { name_of(first) }
}

fn first_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(name_of)
}

fn name_of(value: &http::HeaderValue) -> Option<&str> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?.trim();
    Some(text).filter(|text| !text.is_empty() && text.len() <= LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_user_that_two_sides_name_is_nobody() {
        let long = "u".repeat(LONGEST_NAME + 1);
        for (pairs, user) in [
            (&[("x-user", "alice")][..], Some("alice")),
            (&[("x-user", " j\u{fc}rgen ")], Some("j\u{fc}rgen")),
            (&[("x-user", "alice"), ("x-user", "bob")], None),
            (&[("x-user", "")], None),
            (&[("x-user", long.as_str())], None),
            (&[("x-other", "alice")], None),
        ] {
            assert_eq!(only_value(&headers(pairs), "x-user"), user, "{pairs:?}");
        }
        let twice = headers(&[("x-session-id", "one"), ("x-session-id", "two")]);
        assert_eq!(first_value(&twice, "x-session-id"), Some("one"));
    }
}
