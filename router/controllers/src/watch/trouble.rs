//! What keeps a kind from being watched, and what to do about it, in words.

use std::error::Error as _;

use kube::core::Status;
use kube::runtime::watcher;

use super::kinds::WatchedKind;

/// What went wrong with a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// The API server does not know the kind.
    Unknown,
    /// The service account may not do that.
    Forbidden { verb: &'static str, message: String },
    /// The API server forgot where the watch was; it is listed anew. That happens.
    Expired,
    /// Nothing came of a list for a while.
    Stalled,
    /// Everything else: no connection, an answer that nobody understands.
    Failed(String),
}

impl Trouble {
    /// The trouble behind an error.
    pub(crate) fn of(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error) => Self::of_call(error, "list"),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
                Self::of_call(error, "watch")
            }
            watcher::Error::WatchError(status) => Self::of_answer(status, "watch"),
            watcher::Error::NoResourceVersion => Self::Failed("an answer has no resourceVersion".to_owned()),
        }
    }

    /// Whether only a new list helps. A watcher goes on from where the last watch ended until it may; an API server that
    /// says no to that, because it forgot or for any reason of its own, says it for good. One that is too busy does not,
    /// and is spared the list.
    pub(crate) fn needs_a_list(error: &watcher::Error) -> bool {
        matches!(
            error,
            watcher::Error::WatchStartFailed(kube::Error::Api(status)) if !matches!(status.code, 429 | 503)
        )
    }

    fn of_call(error: &kube::Error, verb: &'static str) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_answer(status, verb),
            other => Self::Failed(causes(other)),
        }
    }

    fn of_answer(status: &Status, verb: &'static str) -> Self {
        match status.code {
            403 => Self::Forbidden { verb, message: status.message.clone() },
            404 => Self::Unknown,
            410 => Self::Expired,
            _ => Self::Failed(answered(status)),
        }
    }

    /// What went wrong, where the kind is named already.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Unknown => "the API server does not know it".to_owned(),
            Self::Forbidden { verb, message } => format!("the service account may not {verb} it ({message})"),
            Self::Expired => "the API server no longer has what changed since".to_owned(),
            Self::Stalled => "the list does not go on".to_owned(),
            Self::Failed(problem) => problem.clone(),
        }
    }

    /// One word for it, so that a change of it is noticed.
    pub(crate) fn sort(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Forbidden { .. } => "forbidden",
            Self::Expired => "expired",
            Self::Stalled => "stalled",
            Self::Failed(_) => "failed",
        }
    }

    /// One sentence about it.
    pub(crate) fn about(&self, kind: WatchedKind) -> String {
        let name = kind.name();
        match self {
            Self::Unknown => {
                format!("the API server does not know {name}: install its CustomResourceDefinition")
            }
            Self::Forbidden { verb, message } => {
                format!("the service account may not {verb} {name}: give it a role for it ({message})")
            }
            Self::Expired => {
                format!("{name} is listed anew: the API server no longer has what changed since")
            }
            Self::Stalled => format!("the list of {name} does not go on; it is asked for again"),
            Self::Failed(problem) => format!("{name} cannot be watched: {problem}"),
        }
    }
}

/// An error in words. What an API server answered is said by itself; else the causes count: what a client says first is
/// often only that it failed.
pub(crate) fn causes(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return answered(status);
    }
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn answered(status: &Status) -> String {
    format!("the API server answered {}: {}", status.code, status.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed_list(code: u16) -> watcher::Error {
        let status = Status::failure("nobody said why", "Reason").with_code(code);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn what_people_can_do_something_about_is_told_apart() {
        for (code, sort, part) in [
            (403, "forbidden", "may not list modelroutes.networking.serving.volcano.sh"),
            (404, "unknown", "install its CustomResourceDefinition"),
            (410, "expired", "listed anew"),
            (500, "failed", "answered 500: nobody said why"),
        ] {
            let trouble = Trouble::of(&failed_list(code));
            assert_eq!(trouble.sort(), sort);
            let about = trouble.about(WatchedKind::ModelRoutes);
            assert!(about.contains(part), "{about}");
        }
    }

    #[test]
    fn a_watch_that_may_not_begin_needs_a_list() {
        let start = |code| {
            let status = Status::failure("no", "No").with_code(code);
            watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
        };
        for (error, needs) in [
            (start(410), true),
            (start(403), true),
            (start(404), true),
            (start(500), true),
            (start(429), false),
            (start(503), false),
            (failed_list(410), false),
            (watcher::Error::WatchStartFailed(kube::Error::TlsRequired), false),
        ] {
            assert_eq!(Trouble::needs_a_list(&error), needs, "{error}");
        }
    }

    #[test]
    fn a_watch_that_is_told_off_names_the_verb() {
        let status = Status::failure("no", "Forbidden").with_code(403);
        let trouble = Trouble::of(&watcher::Error::WatchError(status.boxed()));
        assert_eq!(trouble, Trouble::Forbidden { verb: "watch", message: "no".to_owned() });
    }
}
