//! The arguments of our own scorers: what does not fit is refused, since nobody's documents depend on it.

use std::fmt::Display;
use std::time::Duration;

use super::plugin_args::{ReadMap, with_fields};
use crate::compat::ArgFields;
use crate::defaults;
use crate::duration::{format_duration, parse_duration};
use crate::problems::{Findings, Place};
use crate::resolved::{KvasirCostArgs, SessionAffinityArgs};

/// What is refused: where, why, and the fix.
type Refusals = Vec<(Place, String, String)>;

/// Reads the arguments of `kvasir-cost`.
pub(super) fn kvasir_cost(map: ReadMap, place: &Place, findings: &mut Findings) -> KvasirCostArgs {
    read(map, place, findings, |fields, refusals| {
        let known = KvasirCostArgs::default();
        let affinity = fields.float("affinity");
        KvasirCostArgs {
            affinity: within(affinity, defaults::COST_AFFINITIES, fields, "affinity", refusals)
                .unwrap_or(known.affinity),
        }
    })
}

/// Reads the arguments of `session-affinity`.
pub(super) fn session_affinity(map: ReadMap, place: &Place, findings: &mut Findings) -> SessionAffinityArgs {
    read(map, place, findings, |fields, refusals| {
        let known = SessionAffinityArgs::default();
        let ratio = fields.float("maxInFlightRatio");
        let sessions = fields.integer("maxSessions");
        let range = defaults::SESSIONS_RANGE;
        let (least, most) = (range.0 as i64, range.1 as i64);
        let waiting = fields.integer("maxWaitingRequests");
        SessionAffinityArgs {
            header_name: header_name(fields, refusals).unwrap_or(known.header_name),
            body_fields: body_fields(fields, refusals),
            ttl: ttl(fields, refusals).unwrap_or(known.ttl),
            max_sessions: within(sessions, (least, most), fields, "maxSessions", refusals)
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(known.max_sessions),
            max_in_flight_ratio: within(
                ratio,
                defaults::SESSION_IN_FLIGHT_RATIOS,
                fields,
                "maxInFlightRatio",
                refusals,
            )
            .unwrap_or(known.max_in_flight_ratio),
            max_waiting_requests: within(
                waiting,
                (1, i64::from(u32::MAX)),
                fields,
                "maxWaitingRequests",
                refusals,
            )
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(known.max_waiting_requests),
        }
    })
}

/// Runs `fill` over the fields; whatever did not fit is an error.
fn read<T: Default>(
    map: ReadMap,
    place: &Place,
    findings: &mut Findings,
    fill: impl FnOnce(&mut ArgFields<'_>, &mut Refusals) -> T,
) -> T {
    let mut refusals = Vec::new();
    let (args, errors) = with_fields(map, place, findings, |fields| fill(fields, &mut refusals));
    for (place, error) in errors {
        findings.error(&place, error, "");
    }
    for (place, message, fix) in refusals {
        findings.error(&place, message, fix);
    }
    args
}

/// The value where it is in its range; a number that is none never is.
fn within<T: PartialOrd + Display>(
    value: Option<T>,
    (least, most): (T, T),
    fields: &ArgFields<'_>,
    name: &str,
    refusals: &mut Refusals,
) -> Option<T> {
    let value = value?;
    if value >= least && value <= most {
        return Some(value);
    }
    let message = format!("{value} is out of range");
    refusals.push((fields.place().key(name), message, format!("write a number from {least} to {most}")));
    None
}

/// A header's name as HTTP allows it.
fn header_name(fields: &mut ArgFields<'_>, refusals: &mut Refusals) -> Option<String> {
    let name = fields.text("headerName")?;
    let name = name.trim();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.len() <= 256 && name.bytes().all(allowed) {
        return Some(name.to_owned());
    }
    let message = format!("{name:?} is no name of a header");
    refusals.push((fields.place().key("headerName"), message, "write a name such as X-Session-ID".into()));
    None
}

fn body_fields(fields: &mut ArgFields<'_>, refusals: &mut Refusals) -> Vec<Vec<String>> {
    const EXAMPLE: &str = "write object keys with dots between them, such as user or metadata.session_id";
    let mut paths: Vec<Vec<String>> = Vec::new();
    for (place, text) in fields.texts("bodyFields").unwrap_or_default() {
        let path: Vec<String> = text.split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            refusals.push((place, format!("{text:?} is no path into a body"), EXAMPLE.into()));
        } else if path.len() > defaults::SESSION_FIELD_KEYS {
            let message = format!("{text:?} has more than {} keys", defaults::SESSION_FIELD_KEYS);
            refusals.push((place, message, EXAMPLE.into()));
        } else if paths.contains(&path) {
            refusals.push((place, format!("{text:?} is named twice"), "name it once".into()));
        } else {
            paths.push(path);
        }
    }
    if paths.len() > defaults::SESSION_FIELDS {
        let message = format!("there are more than {} fields", defaults::SESSION_FIELDS);
        refusals.push((fields.place().key("bodyFields"), message, "name fewer".into()));
        paths.truncate(defaults::SESSION_FIELDS);
    }
    paths
}

fn ttl(fields: &mut ArgFields<'_>, refusals: &mut Refusals) -> Option<Duration> {
    let text = fields.text("ttl")?;
    let (least, most) = defaults::SESSION_TTLS;
    let error = match parse_duration(&text) {
        Ok(ttl) if (least..=most).contains(&ttl) => return Some(ttl),
        Ok(_) => format!("{text} is out of range"),
        Err(error) => error,
    };
    let fix =
        format!("write a duration from {} to {}, such as 30m", format_duration(least), format_duration(most));
    refusals.push((fields.place().key("ttl"), error, fix));
    None
}

#[cfg(test)]
mod tests {
    use super::super::read as read_document;
    use super::*;
    use crate::resolved::PluginArgs;

    fn read(plugin: &str, args: &str) -> (PluginArgs, Vec<String>) {
        let mut findings = Findings::default();
        let text = format!(
            "scheduler: {{pluginConfig: [{{name: {plugin}, args: {args}}}], \
             plugins: {{Score: {{enabled: [{{name: {plugin}, weight: 1}}]}}}}}}"
        );
        let settings = read_document(&text, "r.yaml", &mut findings);
        assert_eq!(findings.warnings(), Vec::<String>::new(), "{args}");
        (settings.args, findings.problems())
    }

    #[test]
    fn affinity_has_a_range_and_nothing_else_fits() {
        for (args, affinity) in [
            ("{}", 1.0),
            ("null", 1.0),
            ("{affinity: 0}", 0.0),
            ("{affinity: 2.5}", 2.5),
            ("{AFFINITY: 4}", 4.0),
        ] {
            let (read, problems) = read("kvasir-cost", args);
            assert_eq!((read.kvasir_cost, problems), (KvasirCostArgs { affinity }, vec![]), "{args}");
        }
        for (args, problem) in [
            ("{affinity: 4.1}", "out of range"),
            ("{affinity: -1}", "out of range"),
            ("{affinity: much}", "is no number"),
            ("{affinity: .nan}", "no finite number"),
            ("[1]", "not a mapping"),
        ] {
            let (read, problems) = read("kvasir-cost", args);
            assert_eq!(read.kvasir_cost, KvasirCostArgs::default(), "{args}");
            assert!(problems.len() == 1 && problems[0].contains(problem), "{args}: {problems:?}");
        }
    }

    #[test]
    fn a_conversation_is_named_by_a_header_and_fields() {
        let (args, problems) = read(
            "session-affinity",
            "{headerName: x-chat, bodyFields: [user, metadata.session_id], ttl: 90s, maxSessions: 5, \
             maxInFlightRatio: 3, maxWaitingRequests: 4}",
        );
        let expected = SessionAffinityArgs {
            header_name: "x-chat".to_owned(),
            body_fields: vec![vec!["user".to_owned()], vec!["metadata".to_owned(), "session_id".to_owned()]],
            ttl: Duration::from_secs(90),
            max_sessions: 5,
            max_in_flight_ratio: 3.0,
            max_waiting_requests: 4,
        };
        assert_eq!((args.session_affinity, problems), (expected, vec![]));
        let (args, problems) = read("session-affinity", "{}");
        assert_eq!((args.session_affinity, problems), (SessionAffinityArgs::default(), vec![]));
    }

    #[test]
    fn what_names_no_conversation_is_refused_and_said() {
        let many =
            format!("{{bodyFields: [{}]}}", (0..9).map(|at| format!("f{at}")).collect::<Vec<_>>().join(", "));
        for (args, problem) in [
            ("{headerName: 'x y'}", "no name of a header"),
            ("{headerName: ''}", "no name of a header"),
            ("{bodyFields: [a..b]}", "no path into a body"),
            ("{bodyFields: ['']}", "no path into a body"),
            ("{bodyFields: [a.b.c.d.e.f.g.h.i]}", "more than 8 keys"),
            ("{bodyFields: [user, user]}", "named twice"),
            ("{bodyFields: user}", "is no list"),
            (&many, "more than 8 fields"),
            ("{ttl: 0s}", "out of range"),
            ("{ttl: soon}", "soon"),
            ("{maxSessions: 0}", "out of range"),
            ("{maxInFlightRatio: 0.5}", "out of range"),
            ("{maxWaitingRequests: 0}", "out of range"),
        ] {
            let (_, problems) = read("session-affinity", args);
            assert!(problems.len() == 1 && problems[0].contains(problem), "{args}: {problems:?}");
        }
    }
}
