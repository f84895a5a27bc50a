//! Whether requests that share a prefix were pinned to the engine that holds it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// The part of the shared prefix that must have come out of the cache. Engines cache whole blocks, and the length
/// of the prefix is known by words only, so it is not all of it.
const PINNED_SHARE: f64 = 0.95;

/// The answer of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every request went to the engine that served the first, and found the prefix there.
    Pinned,
    /// At least one did not.
    Scattered,
    /// It cannot be told.
    Unknown,
}

/// One request as the verdict sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Seen<'a> {
    /// Its number, from 1.
    pub(crate) number: u32,
    /// Who served it.
    pub(crate) engine: Option<&'a str>,
    /// Prompt tokens that came out of the cache, when the engine says so.
    pub(crate) cached_tokens: Option<u64>,
    /// Tokens of the shared prefix.
    pub(crate) shared_tokens: Option<u64>,
    /// It failed.
    pub(crate) failed: bool,
}

/// A verdict with its reason, one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judgement {
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// Why.
    pub(crate) reason: String,
}

impl Verdict {
    /// The verdict over two parts: one scattered part is enough, and pinned needs both.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Scattered, _) | (_, Self::Scattered) => Self::Scattered,
            (Self::Pinned, Self::Pinned) => Self::Pinned,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned",
            Self::Scattered => "scattered",
            Self::Unknown => "unknown",
        })
    }
}

/// Judges requests against the first of them, which made the prefix known to one engine.
pub(crate) fn judge(requests: &[Seen<'_>]) -> Judgement {
    let say = |verdict, reason: String| Judgement { verdict, reason };
    if let Some(seen) = requests.iter().find(|seen| seen.failed) {
        return say(Verdict::Unknown, format!("request {} failed", seen.number));
    }
    let engines: BTreeSet<Option<&str>> = requests.iter().map(|seen| seen.engine).collect();
    let known = engines.iter().flatten().count();
    if known > 1 {
        return say(Verdict::Scattered, format!("{known} engines served requests of one prefix"));
    }
    let (Some((_, followers)), Some(Some(engine))) = (requests.split_first(), engines.first()) else {
        let reason = "who served is not known: name the engines with --engine, or let the router send its \
                      endpoint header";
        return say(Verdict::Unknown, reason.to_owned());
    };
    if let Some((seen, cached, shared)) = followers.iter().find_map(|seen| missed(seen)) {
        let number = seen.number;
        let reason =
            format!("{engine} served request {number} with {cached} of {shared} shared tokens cached");
        return say(Verdict::Scattered, reason);
    }
    let proof = match followers.iter().filter(|seen| seen.cached_tokens.is_some()).count() {
        0 => "cached tokens were not reported",
        count if count == followers.len() => "each after the first found the prefix cached",
        _ => "each after the first that reports cached tokens found the prefix cached",
    };
    say(Verdict::Pinned, format!("{engine} served all of them; {proof}"))
}

/// A request that did not find the prefix: (request, cached tokens, shared tokens).
fn missed<'s, 'a>(seen: &'s Seen<'a>) -> Option<(&'s Seen<'a>, u64, u64)> {
    let (cached, shared) = (seen.cached_tokens?, seen.shared_tokens?);
    ((cached as f64) < PINNED_SHARE * shared as f64).then_some((seen, cached, shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (engine, cached tokens) of each request; the prefix has 1000 tokens.
    fn verdict(requests: &[(Option<&'static str>, Option<u64>)]) -> Verdict {
        let seen: Vec<Seen<'_>> = (1..)
            .zip(requests)
            .map(|(number, &(engine, cached_tokens))| Seen {
                number,
                engine,
                cached_tokens,
                shared_tokens: Some(1000),
                failed: false,
            })
            .collect();
        judge(&seen).verdict
    }

    #[test]
    fn the_table_of_verdicts() {
        let (a, b, none) = (Some("a"), Some("b"), None);
        for (requests, expected, why) in [
            (vec![(a, None), (a, None), (a, None)], Verdict::Pinned, "one engine, no cached tokens reported"),
            (vec![(a, Some(0)), (a, Some(1000)), (a, Some(950))], Verdict::Pinned, "95 % is enough"),
            (vec![(a, Some(0)), (a, Some(1000)), (a, Some(949))], Verdict::Scattered, "less is not"),
            (vec![(a, Some(1000)), (a, Some(0))], Verdict::Scattered, "evicted, or another rank"),
            (vec![(a, None), (a, None), (b, None)], Verdict::Scattered, "the last went elsewhere"),
            (vec![(a, None), (b, None), (b, None)], Verdict::Scattered, "the first stands alone"),
            (vec![(a, Some(0)), (b, Some(1000))], Verdict::Scattered, "a warm engine is no excuse"),
            (vec![(none, None), (none, None)], Verdict::Unknown, "nobody tells"),
            (vec![(none, Some(0)), (none, Some(1000))], Verdict::Unknown, "a hit does not say where"),
            (vec![(a, None), (none, None)], Verdict::Unknown, "one is not known"),
            (vec![(a, None), (b, None), (none, None)], Verdict::Scattered, "two are enough to tell"),
        ] {
            assert_eq!(verdict(&requests), expected, "{why}");
        }
    }

    #[test]
    fn a_failed_request_leaves_no_verdict() {
        let good =
            Seen { number: 1, engine: Some("a"), cached_tokens: None, shared_tokens: None, failed: false };
        let bad = Seen { number: 2, failed: true, ..good };
        let judgement = judge(&[good, bad]);
        assert_eq!((judgement.verdict, judgement.reason.as_str()), (Verdict::Unknown, "request 2 failed"));
    }

    #[test]
    fn both_parts_must_be_pinned() {
        use Verdict::{Pinned, Scattered, Unknown};
        for (one, two, both) in [
            (Pinned, Pinned, Pinned),
            (Pinned, Scattered, Scattered),
            (Unknown, Scattered, Scattered),
            (Pinned, Unknown, Unknown),
        ] {
            assert_eq!((one.and(two), two.and(one)), (both, both));
        }
    }
}
