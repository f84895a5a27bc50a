//! What is said about kthena's objects, put into conditions.

use kvasir_api::conditions::types;
use kvasir_api::{FieldError, Unreadable};
use kvasir_state::plan::ObjectName;

use crate::status::{Said, Status, StatusKind, Verdict};

/// Reasons, one CamelCase word each.
pub(super) mod reasons {
    /// In use.
    pub(crate) const ACCEPTED: &str = "Accepted";
    /// It breaks a rule of its kind.
    pub(crate) const INVALID: &str = "Invalid";
    /// It asks for what the router cannot do.
    pub(crate) const NOT_SUPPORTED: &str = "NotSupported";
    /// No Gateway takes it.
    pub(crate) const NO_MATCHING_PARENT: &str = "NoMatchingParent";
    /// All that it names is there.
    pub(crate) const RESOLVED_REFS: &str = "ResolvedRefs";
    /// Something that it names is not there.
    pub(crate) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    /// Its selector matches no pod.
    pub(crate) const NO_PODS: &str = "NoPods";
}

/// Longest message, bytes. The API takes 32 KiB; nobody reads as much.
const LONGEST_MESSAGE: usize = 4096;

/// How many of a list are named.
const NAMED: usize = 8;

/// Why a condition does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// One of [`reasons`].
    pub(super) reason: &'static str,
    /// Whole sentences: what is wrong, and what to do.
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }

    /// An object that cannot be read.
    pub(super) fn unreadable(unreadable: &Unreadable) -> Self {
        let error = &unreadable.error;
        let field = if error.field == "." { "the object" } else { &error.field };
        Self::invalid(&format!("{field}: {}", error.problem))
    }

    /// An object that breaks rules; there is at least one error.
    pub(super) fn breaks(errors: &[FieldError]) -> Self {
        Self::invalid(&list(errors))
    }

    fn invalid(what: &str) -> Self {
        Self::new(reasons::INVALID, format!("Not in use until this is corrected: {what}."))
    }
}

/// The first few, and how many more there are.
pub(super) fn list<T: ToString>(items: &[T]) -> String {
    let mut text = items.iter().take(NAMED).map(T::to_string).collect::<Vec<_>>().join("; ");
    if items.len() > NAMED {
        text.push_str(&format!("; and {} more", items.len() - NAMED));
    }
    text
}

/// Whether the object is in use; `fine` is said where nothing is wrong.
pub(super) fn accepted(problems: &[Problem], fine: impl Into<String>) -> Verdict {
    verdict(types::ACCEPTED, reasons::ACCEPTED, problems, fine)
}

/// Whether all that the object names is there; `fine` is said where it is.
pub(super) fn resolved_refs(problems: &[Problem], fine: impl Into<String>) -> Verdict {
    verdict(types::RESOLVED_REFS, reasons::RESOLVED_REFS, problems, fine)
}

/// The first problem gives the reason, all of them the message.
fn verdict(
    kind: &'static str,
    holds: &'static str,
    problems: &[Problem],
    fine: impl Into<String>,
) -> Verdict {
    match problems.first() {
        None => Verdict::holds(kind, holds, fine),
        Some(first) => {
            let texts: Vec<&str> = problems.iter().map(|problem| problem.text.as_str()).collect();
            Verdict::fails(kind, first.reason, shortened(texts.join(" ")))
        }
    }
}

/// The status of an object of kthena's.
pub(super) fn status(
    kind: StatusKind,
    name: &ObjectName,
    generation: Option<i64>,
    verdicts: Vec<Verdict>,
) -> Status {
    Status { kind, name: name.clone(), generation, said: Said::Conditions(verdicts) }
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        text.truncate(text.floor_char_boundary(LONGEST_MESSAGE));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_and_end_between_letters() {
        let verdict = accepted(&[Problem::new(reasons::INVALID, "ä".repeat(5_000))], "");
        assert!(verdict.message.len() <= LONGEST_MESSAGE + '…'.len_utf8());
        assert!(verdict.message.ends_with("ä…"));
        let many: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        assert!(list(&many).ends_with("n7; and 12 more"), "{}", list(&many));
    }

    #[test]
    fn the_first_problem_gives_the_reason_and_all_give_the_message() {
        let problems =
            [Problem::new(reasons::NOT_SUPPORTED, "One."), Problem::new(reasons::NO_MATCHING_PARENT, "Two.")];
        let verdict = accepted(&problems, "fine");
        assert_eq!((verdict.reason, verdict.message.as_str()), ("NotSupported", "One. Two."));
        assert_eq!(accepted(&[], "fine").message, "fine");
    }
}
