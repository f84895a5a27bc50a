//! Conditions on a request's headers and query, ready to be tested.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};

use super::path;
use crate::string_test::StringTest;

/// Tests on headers. A name that no header can have has none.
#[derive(Debug)]
pub(super) struct HeaderTests(Vec<(Option<HeaderName>, StringTest)>);

impl HeaderTests {
    /// All of `tests`.
    pub(super) fn all(tests: &[(Arc<str>, StringTest)]) -> Self {
        let typed = tests.iter().map(|(name, test)| (name.parse().ok(), test.clone()));
        Self(typed.collect())
    }

    /// The first test of each name, as Gateway API wants it.
    pub(super) fn first_of_each(tests: &[(Arc<str>, StringTest)]) -> Self {
        let mut kept = Self::all(tests).0;
        let mut seen: Vec<Option<HeaderName>> = Vec::new();
        kept.retain(|(name, _)| {
            let new = !seen.contains(name);
            seen.push(name.clone());
            new
        });
        Self(kept)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// kthena's way: an absent header is the empty text, of a repeated one the first value counts, `Host` is absent.
    pub(super) fn pass_leniently(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, test)| {
            let value = name.as_ref().filter(|name| *name != header::HOST).and_then(|name| headers.get(name));
            test.passes(&value.map_or(Cow::Borrowed(""), |value| String::from_utf8_lossy(value.as_bytes())))
        })
    }

    /// Gateway API's way: an absent header passes no test, a repeated one is one list (RFC 9110 5.3).
    pub(super) fn pass_strictly(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, test)| {
            let mut values = name.iter().flat_map(|name| headers.get_all(name));
            let Some(first) = values.next() else { return false };
            let mut text = String::from_utf8_lossy(first.as_bytes());
            for value in values {
                let text = text.to_mut();
                text.push(',');
                text.push_str(&String::from_utf8_lossy(value.as_bytes()));
            }
            test.passes(&text)
        })
    }
}

/// Tests on parameters of the query.
#[derive(Debug)]
pub(super) struct QueryTests(Vec<(Arc<str>, StringTest)>);

impl QueryTests {
    /// The first test of each name.
    pub(super) fn first_of_each(tests: &[(Arc<str>, StringTest)]) -> Self {
        let mut kept: Vec<(Arc<str>, StringTest)> = Vec::with_capacity(tests.len());
        for (name, test) in tests {
            if !kept.iter().any(|(known, _)| known == name) {
                kept.push((Arc::clone(name), test.clone()));
            }
        }
        Self(kept)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether each parameter is there and its first value passes.
    pub(super) fn pass(&self, query: Option<&str>) -> bool {
        self.0.iter().all(|(name, test)| {
            parameter(query.unwrap_or_default(), name).is_some_and(|value| test.passes(&value))
        })
    }
}

/// The first value of a parameter.
fn parameter<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_form(key) == name).then(|| decode_form(value))
    })
}

/// A key or value of a query: `+` is a blank.
fn decode_form(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        Cow::Owned(path::decode(&text.replace('+', " ")).into_owned())
    } else {
        path::decode(text)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use regex::Regex;

    use super::*;

    fn exact(name: &str, value: &str) -> (Arc<str>, StringTest) {
        (name.into(), StringTest::Exact(value.into()))
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn the_two_ways_to_test_headers_differ_where_one_is_absent_or_repeated() {
        let sent = headers(&[("user-type", "basic"), ("user-type", "premium"), ("host", "h"), ("empty", "")]);
        let any = StringTest::Regex(Regex::new(".*").expect("a good pattern"));
        for (test, lenient, strict) in [
            (exact("User-Type", "basic"), true, false),
            (exact("user-type", "premium"), false, false),
            (exact("user-type", "basic,premium"), false, true),
            (exact("absent", ""), true, false),
            (("absent".into(), any.clone()), true, false),
            (exact("empty", ""), true, true),
            (exact("host", "h"), false, true),
            (exact("host", ""), true, false),
            (exact("no header", ""), true, false),
            (("user-type".into(), any), true, true),
        ] {
            let tests = HeaderTests::all(std::slice::from_ref(&test));
            assert_eq!(
                (tests.pass_leniently(&sent), tests.pass_strictly(&sent)),
                (lenient, strict),
                "{test:?}"
            );
        }
    }

    #[test]
    fn of_two_tests_of_one_name_the_first_counts() {
        let tests = [exact("a", "1"), exact("A", "2"), exact("b", "3")];
        let kept = HeaderTests::first_of_each(&tests);
        assert_eq!(kept.len(), 2);
        assert!(kept.pass_strictly(&headers(&[("a", "1"), ("b", "3")])));
        assert!(!kept.pass_strictly(&headers(&[("a", "1")])));
        let tests = QueryTests::first_of_each(&[exact("a", "1"), exact("a", "2")]);
        assert!(tests.len() == 1 && tests.pass(Some("a=1")));
    }

    #[test]
    fn parameters_are_decoded_and_the_first_counts() {
        for (query, passes) in [
            (Some("x=1&a=b+c"), true),
            (Some("%61=b%20c"), true),
            (Some("a=b+c&a=other"), true),
            (Some("a=other&a=b+c"), false),
            (Some("A=b+c"), false),
            (Some("a"), false),
            (Some(""), false),
            (None, false),
        ] {
            let tests = QueryTests::first_of_each(&[exact("a", "b c")]);
            assert_eq!(tests.pass(query), passes, "{query:?}");
        }
        assert!(QueryTests::first_of_each(&[exact("a", "")]).pass(Some("a")));
    }
}
