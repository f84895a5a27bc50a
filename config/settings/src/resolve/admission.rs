//! Which queue requests pass before they are placed, and by which rules.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use crate::compat::parse_bool;
use crate::defaults;
use crate::duration::{format_duration, parse_duration};
use crate::flags::admission::{AdmissionArgs, FLAGS, SWITCHES, variable_of};
use crate::problems::{Findings, Place};
use crate::resolved::{AdmissionSettings, FairnessSettings, SessionBoostSettings};

/// Users that may have a weight of their own: the list is one line that a person writes.
const MOST_WEIGHTS: usize = 4096;

/// Works it out. What a flag says wrongly is a problem; what a variable of kthena says wrongly is said in the log, and the
/// default counts, as there.
pub(super) fn resolve(
    args: &AdmissionArgs,
    variables: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> AdmissionSettings {
    let mut words = Words { flags: args.all(), variables, findings };
    let [fair, boost] = SWITCHES.map(|flag| words.read(flag, false, &false, boolean));
    if fair && boost {
        let message = "cannot be on together with --enable-session-boost: a request waits in one queue only";
        words.findings.error(&Place::flag(SWITCHES[0]), message, "switch one of the two off");
    }
    let settings = match (fair, boost) {
        (true, _) => AdmissionSettings::Fairness(fairness(&mut words)),
        (false, true) => AdmissionSettings::SessionBoost(session_boost(&mut words)),
        (false, false) => AdmissionSettings::Off,
    };
    words.warn_of_unused(fair, boost);
    settings
}

fn fairness(words: &mut Words<'_>) -> FairnessSettings {
    let known = FairnessSettings::default();
    let mut weight = |flag, otherwise: f64| words.read(flag, otherwise, &otherwise, number);
    let input_token_weight = weight("--fairness-input-token-weight", known.input_token_weight);
    let output_token_weight = weight("--fairness-output-token-weight", known.output_token_weight);
    let mut priority_token_weight = weight("--fairness-priority-token-weight", known.priority_token_weight);
    let priority_request_weight =
        weight("--fairness-priority-request-num-weight", known.priority_request_weight);
    let ageing = weight("--fairness-ageing", known.ageing);
    if priority_token_weight == 0.0 && priority_request_weight == 0.0 {
        priority_token_weight = 1.0;
        let message =
            "this weight and that of the number of requests are 0, so that nothing would count; 1 is used";
        words.findings.warn(&Place::flag("--fairness-priority-token-weight"), message);
    }
    let user_header = words.optional("--fairness-user-header", header_name);
    if user_header.is_none() {
        let message = "fairness is on, and nobody says who a client is: all requests count as one user's and are served in \
                       the order in which they come; name the header that a trusted proxy sets, as in \
                       --fairness-user-header X-User";
        words.findings.warn(&Place::flag("--fairness-user-header"), message);
    }
    // Read for what is wrong with them alone: the order is worked out when a request begins.
    words.read("--fairness-priority-refresh-retries", 0, &0, |text| count(text, 0, usize::MAX));
    words.read("--fairness-rebuild-threshold", 64, &64, |text| count(text, 1, usize::MAX));
    FairnessSettings {
        user_weights: words.optional("--fairness-user-weights", user_weights).unwrap_or_default(),
        user_header,
        window: words.duration("--fairness-window-size", known.window, window),
        input_token_weight,
        output_token_weight,
        priority_token_weight,
        priority_request_weight,
        max_concurrent: words.count("--fairness-max-concurrent", known.max_concurrent, 0, MOST_RUNNING),
        max_qps: words.count("--fairness-max-qps", known.max_qps as usize, 1, MOST_RUNNING) as u32,
        queue_timeout: words.duration("--fairness-queue-timeout", known.queue_timeout, above_zero),
        ageing,
        max_waiting: words.count("--fairness-max-waiting", known.max_waiting, 1, MOST_KEPT),
    }
}

fn session_boost(words: &mut Words<'_>) -> SessionBoostSettings {
    let known = SessionBoostSettings::default();
    let per_pod = known.inflight_per_pod as usize;
    let timeout = known.timeout.unwrap_or_default();
    SessionBoostSettings {
        header: words.optional("--session-boost-header", header_name).unwrap_or(known.header),
        max_sessions: words.count("--session-boost-max-sessions", known.max_sessions, 1, MOST_KEPT),
        inflight_per_pod: words.count("--session-boost-inflight-per-pod", per_pod, 1, MOST_RUNNING) as u32,
        grace_period: words.duration("--session-boost-grace-period", known.grace_period, parse_duration),
        timeout: Some(words.duration("--session-boost-timeout", timeout, zero_or_below))
            .filter(|timeout| !timeout.is_zero()),
        ageing: Some(words.duration(
            "--session-boost-ageing",
            known.ageing.unwrap_or_default(),
            parse_duration,
        ))
        .filter(|ageing| !ageing.is_zero()),
        max_waiting: words.count("--session-boost-max-waiting", known.max_waiting, 1, MOST_KEPT),
    }
}

/// Most that may run at once or begin in a second; far beyond what a router can.
const MOST_RUNNING: usize = 1_000_000;
/// Most that may wait, or be remembered.
const MOST_KEPT: usize = 1_000_000;

/// What was said: by flag (or `KVASIR_*`), else by kthena's variable.
struct Words<'a> {
    flags: [(&'static str, Option<&'a str>); FLAGS],
    variables: &'a BTreeMap<String, String>,
    findings: &'a mut Findings,
}

impl Words<'_> {
    /// One value; `shown` is how the default is written.
    fn read<T>(
        &mut self,
        flag: &'static str,
        otherwise: T,
        shown: &dyn Display,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let said = self.flags.iter().find(|(name, _)| *name == flag).and_then(|(_, text)| *text);
        if let Some(text) = said {
            return parse(text.trim()).unwrap_or_else(|message| {
                self.findings.error(&Place::flag(flag), message, "");
                otherwise
            });
        }
        let variable = variable_of(flag);
        let Some(text) = self.variables.get(&variable) else { return otherwise };
        parse(text.trim()).unwrap_or_else(|message| {
            self.findings.warn(&Place::flag(&variable), format!("{message}; {shown} is used"));
            otherwise
        })
    }

    fn optional<T>(&mut self, flag: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.read(flag, None, &"the default", |text| parse(text).map(Some))
    }

    fn duration(
        &mut self,
        flag: &'static str,
        otherwise: Duration,
        parse: impl Fn(&str) -> Result<Duration, String>,
    ) -> Duration {
        self.read(flag, otherwise, &format_duration(otherwise), parse)
    }

    fn count(&mut self, flag: &'static str, otherwise: usize, least: usize, most: usize) -> usize {
        self.read(flag, otherwise, &otherwise, |text| count(text, least, most))
    }

    /// Rules of a queue that is not on.
    fn warn_of_unused(&mut self, fair: bool, boost: bool) {
        let by_flag =
            self.flags.iter().filter(|(_, text)| text.is_some()).map(|(flag, _)| (*flag).to_owned());
        let by_variable = self.variables.keys().filter(|name| {
            self.flags.iter().any(|(flag, said)| said.is_none() && variable_of(flag) == **name)
        });
        let said: Vec<String> = by_flag.chain(by_variable.cloned()).collect();
        for name in said {
            let variable = variable_of(&name);
            let (on, switch) = match () {
                () if variable.starts_with("FAIRNESS_") => (fair, SWITCHES[0]),
                () if variable.starts_with("SESSION_BOOST_") => (boost, SWITCHES[1]),
                () => continue,
            };
            if !on {
                self.findings.warn(&Place::flag(&name), format!("has no effect without {switch}"));
            }
        }
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    parse_bool(text).ok_or_else(|| format!("{text:?} is no boolean; write true or false"))
}

/// Largest weight: with it the cost of a window is still counted exactly.
const MOST_WEIGHT: f64 = 1e6;

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number
        .map(|number| number.min(MOST_WEIGHT))
        .ok_or_else(|| format!("{text:?} is no weight; write a number of at least 0"))
}

fn count(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number >= least);
    number
        .map(|number| number.min(most))
        .ok_or_else(|| format!("{text:?} does not fit; write a whole number of at least {least}"))
}

fn window(text: &str) -> Result<Duration, String> {
    let (least, most) = defaults::FAIRNESS_WINDOWS;
    let window = parse_duration(text)?;
    if (least..=most).contains(&window) {
        return Ok(window);
    }
    Err(format!("{text:?} does not fit; write {} to {}", format_duration(least), format_duration(most)))
}

fn above_zero(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is not above 0")),
        duration => Ok(duration),
    }
}

/// kthena takes a time-out of 0 or less as none.
fn zero_or_below(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(positive) => parse_duration(positive).map(|_| Duration::ZERO),
        None => parse_duration(text),
    }
}

/// A header's name, in small letters, as requests are asked for it.
fn header_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !text.is_empty() && text.len() <= 256 && text.bytes().all(fits) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("{text:?} is no header's name; write letters, digits and -, as in X-User"))
}

/// `USER=WEIGHT[,USER=WEIGHT...]`; a name may hold `=`, as those of LDAP do.
fn user_weights(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let mut weights = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.rsplit_once('=').and_then(|(user, weight)| {
            let weight =
                weight.trim().parse::<f64>().ok().filter(|weight| weight.is_finite() && *weight > 0.0);
            Some((user.trim(), weight?)).filter(|(user, _)| !user.is_empty())
        });
        let Some((user, weight)) = pair else {
            return Err(format!("{part:?} is no weight of a user; write USER=NUMBER with a number above 0"));
        };
        if weights.insert(user.to_owned(), weight).is_some() {
            return Err(format!("the user {user:?} has two weights"));
        }
        if weights.len() > MOST_WEIGHTS {
            return Err(format!("more than {MOST_WEIGHTS} users have weights"));
        }
    }
    Ok(weights)
}

#[cfg(test)]
mod tests;
