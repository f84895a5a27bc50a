//! The matches of an HTTPRoute's rule.

use std::sync::Arc;

use http::Method;
use kvasir_api::gateway::{
    HttpHeaderMatch, HttpMethod, HttpPathMatch, HttpPathMatchKind, HttpRouteMatch, HttpValueMatchKind,
};
use kvasir_api::re2;
use kvasir_state::StringTest;
use kvasir_state::plan::{PlanHttpMatch, PlanPath};

use super::rules::Problem;

/// Conditions that are not understood let nothing pass, and the rule is refused for the rest.
pub(super) fn translate(
    at: &str,
    matches: &[HttpRouteMatch],
    problems: &mut Vec<Problem>,
) -> Vec<PlanHttpMatch> {
    let one = |(number, said): (usize, &HttpRouteMatch)| {
        let at = format!("{at}.matches[{number}]");
        PlanHttpMatch {
            path: path(&at, said.path.as_ref(), problems),
            method: said.method.as_ref().and_then(|said| method(&at, said, problems)),
            headers: values(&format!("{at}.headers"), &said.headers, problems),
            query: values(&format!("{at}.queryParams"), &said.query_params, problems),
        }
    };
    matches.iter().enumerate().map(one).collect()
}

fn path(at: &str, said: Option<&HttpPathMatch>, problems: &mut Vec<Problem>) -> PlanPath {
    let Some(said) = said else { return PlanPath::default() };
    let value = said.value.as_deref().unwrap_or("/");
    match said.kind.as_ref().unwrap_or(&HttpPathMatchKind::PathPrefix) {
        HttpPathMatchKind::Exact => PlanPath::Exact(value.into()),
        HttpPathMatchKind::PathPrefix => PlanPath::Prefix(value.into()),
        HttpPathMatchKind::RegularExpression => match re2::compile(value) {
            Ok(regex) => PlanPath::Regex(regex),
            Err(error) => {
                problems.push(bad_expression(format!("{at}.path.value: {error}")));
                PlanPath::Never
            }
        },
        HttpPathMatchKind::Other(word) => {
            problems.push(unknown_kind(
                &format!("{at}.path.type"),
                word,
                "Exact, PathPrefix, RegularExpression",
            ));
            PlanPath::Never
        }
    }
}

fn method(at: &str, said: &HttpMethod, problems: &mut Vec<Problem>) -> Option<Method> {
    Some(match said {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Connect => Method::CONNECT,
        HttpMethod::Options => Method::OPTIONS,
        HttpMethod::Trace => Method::TRACE,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Other(word) => {
            let message = format!("{at}.method: {word:?} is no method of HTTP that is known here");
            problems.push(Problem::unsupported("a method in a match of an HTTPRoute", message));
            return word.parse().ok();
        }
    })
}

/// Tests on headers or on parameters of the query: they have one form.
fn values(at: &str, said: &[HttpHeaderMatch], problems: &mut Vec<Problem>) -> Vec<(Arc<str>, StringTest)> {
    let one = |(number, said): (usize, &HttpHeaderMatch)| {
        let test = match said.kind.as_ref().unwrap_or(&HttpValueMatchKind::Exact) {
            HttpValueMatchKind::Exact => StringTest::Exact(said.value.as_str().into()),
            HttpValueMatchKind::RegularExpression => match re2::compile(&said.value) {
                Ok(regex) => StringTest::Regex(regex),
                Err(error) => {
                    problems.push(bad_expression(format!("{at}[{number}].value: {error}")));
                    StringTest::Never
                }
            },
            HttpValueMatchKind::Other(word) => {
                problems.push(unknown_kind(
                    &format!("{at}[{number}].type"),
                    word,
                    "Exact, RegularExpression",
                ));
                StringTest::Never
            }
        };
        (said.name.as_str().into(), test)
    };
    said.iter().enumerate().map(one).collect()
}

fn bad_expression(message: String) -> Problem {
    Problem::unsupported("a regular expression of an HTTPRoute", message)
}

fn unknown_kind(at: &str, word: &str, known: &str) -> Problem {
    let message = format!("{at}: {word:?} is not understood; known are {known}");
    Problem::unsupported("a type of match of an HTTPRoute", message)
}
