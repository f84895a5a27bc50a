//! What is refused, for the log: statuses cannot always be written, and then say it to nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvasir_api::conditions::{types, values};

use crate::status::{Said, Status, Verdict};
use crate::writer::StatusKey;

/// How many are named one by one after a plan; of the others only the number is.
const NAMED: usize = 20;

/// A condition that does not hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Refusal {
    key: StatusKey,
    /// Of what of the object: a listener, a parent. Empty: of the whole.
    part: String,
    condition: &'static str,
    reason: &'static str,
    message: String,
}

/// Everything that is refused.
pub(super) type Refusals = BTreeSet<Refusal>;

/// What these statuses refuse.
pub(super) fn refusals(statuses: &BTreeMap<StatusKey, Arc<Status>>) -> Refusals {
    let mut refusals = Refusals::new();
    for (key, status) in statuses {
        let mut enter = |part: &str, verdicts: &[Verdict]| {
            for verdict in verdicts.iter().filter(|verdict| refuses(verdict)) {
                refusals.insert(Refusal {
                    key: key.clone(),
                    part: part.to_owned(),
                    condition: verdict.kind,
                    reason: verdict.reason,
                    message: verdict.message.clone(),
                });
            }
        };
        match &status.said {
            Said::Conditions(conditions) | Said::GatewayClass { conditions, .. } => enter("", conditions),
            Said::Gateway { conditions, listeners, .. } => {
                enter("", conditions);
                listeners.iter().for_each(|said| enter(&said.name, &said.conditions));
            }
            Said::Parents(parents) => {
                parents.iter().for_each(|said| enter(&said.parent.name, &said.conditions));
            }
        }
    }
    refusals
}

/// Whether something is not used, or is not there. A route of which only some rules are used says so by a condition that
/// holds.
fn refuses(verdict: &Verdict) -> bool {
    match verdict.kind {
        types::ACCEPTED | types::RESOLVED_REFS | types::PROGRAMMED => verdict.value == values::FALSE,
        types::PARTIALLY_INVALID => verdict.value == values::TRUE,
        _ => false,
    }
}

/// Names what is refused now and was not before. Says how many lines that took.
pub(super) fn tell(before: &Refusals, now: &Refusals) -> usize {
    let mut news = now.difference(before);
    let mut lines = 0;
    for Refusal { key: (kind, name), part, condition, reason, message } in news.by_ref().take(NAMED) {
        let part = (!part.is_empty()).then_some(part);
        tracing::warn!(?kind, object = %name, part, condition, reason, "{message}");
        lines += 1;
    }
    let more = news.count();
    if more > 0 {
        tracing::warn!(
            more,
            "further objects are refused as well; their status or /debug/config_dump shows them"
        );
        lines += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use kvasir_api::ParentReference;
    use kvasir_state::plan::ObjectName;

    use super::*;
    use crate::status::{ListenerSaid, ParentSaid, StatusKind};

    fn statuses(
        all: impl IntoIterator<Item = (StatusKind, String, Said)>,
    ) -> BTreeMap<StatusKey, Arc<Status>> {
        let keyed = |(kind, name, said): (StatusKind, String, Said)| {
            let name = ObjectName::new("n", name);
            ((kind, name.clone()), Arc::new(Status { kind, name, generation: Some(1), said }))
        };
        all.into_iter().map(keyed).collect()
    }

    fn routes(count: usize, message: &str) -> Refusals {
        let said = || Said::Conditions(vec![Verdict::fails(types::ACCEPTED, "NotSupported", message)]);
        let all = (0..count).map(|number| (StatusKind::ModelRoute, format!("r{number}"), said()));
        refusals(&statuses(all))
    }

    #[test]
    fn everything_that_fails_is_among_them() {
        let verdicts = || {
            vec![
                Verdict::fails(types::ACCEPTED, "Refused", "a"),
                Verdict::holds(types::RESOLVED_REFS, "ResolvedRefs", "b"),
                Verdict::holds(types::PARTIALLY_INVALID, "UnsupportedValue", "c"),
                Verdict::fails(types::CONFLICTED, "NoConflicts", "d"),
            ]
        };
        let listener = ListenerSaid {
            name: "http".to_owned(),
            supported_kinds: Vec::new(),
            attached_routes: 0,
            conditions: verdicts(),
        };
        let gateway = Said::Gateway {
            conditions: vec![Verdict::fails(types::PROGRAMMED, "Invalid", "e")],
            addresses: Vec::new(),
            listeners: vec![listener],
        };
        let parent = ParentReference { name: "gw".to_owned(), ..ParentReference::default() };
        let parents = Said::Parents(vec![ParentSaid { parent, conditions: verdicts() }]);
        let all = refusals(&statuses([
            (StatusKind::Gateway, "g".to_owned(), gateway),
            (StatusKind::HttpRoute, "h".to_owned(), parents),
        ]));
        let said: Vec<(&str, &str, &str)> =
            all.iter().map(|one| (one.part.as_str(), one.condition, one.message.as_str())).collect();
        assert_eq!(
            said,
            [
                ("", "Programmed", "e"),
                ("http", "Accepted", "a"),
                ("http", "PartiallyInvalid", "c"),
                ("gw", "Accepted", "a"),
                ("gw", "PartiallyInvalid", "c"),
            ]
        );
    }

    #[test]
    fn only_news_are_told_and_a_bounded_number_of_them() {
        let none = Refusals::new();
        let few = routes(3, "x");
        assert_eq!(tell(&none, &few), 3);
        assert_eq!(tell(&few, &few), 0);
        assert_eq!(tell(&few, &none), 0);
        assert_eq!(tell(&few, &routes(3, "y")), 3, "another message is news");
        assert_eq!(tell(&few, &routes(4, "x")), 1);
        assert_eq!(tell(&none, &routes(20, "x")), 20);
        assert_eq!(tell(&none, &routes(5_000, "x")), 21);
    }
}
