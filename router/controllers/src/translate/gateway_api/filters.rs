//! The filters of an HTTPRoute's rule, and of its backends.

use http::{HeaderName, HeaderValue};
use kvasir_api::gateway::{
    HttpBackendRef, HttpFilter, HttpFilterKind, HttpHeader, HttpHeaderModifier, HttpPathModifier,
    HttpPathModifierKind, HttpRequestRedirect, HttpRouteRule, HttpUrlRewrite,
};
use kvasir_state::plan::{
    HeaderChanges, PathChange, PlanFilters, PlanHttpMatch, PlanPath, PlanRedirect, PlanUrlRewrite,
};

use super::rules::Problem;

/// What a client is sent elsewhere with, where the route does not say.
const FOUND: u16 = 302;
/// What it may say.
const REDIRECTIONS: &[u16] = &[301, 302, 303, 307, 308];

/// The filters of a rule.
pub(super) fn of_rule(
    at: &str,
    rule: &HttpRouteRule,
    matches: &[PlanHttpMatch],
    problems: &mut Vec<Problem>,
) -> PlanFilters {
    let mut planned = PlanFilters::default();
    let mut seen: Vec<&HttpFilterKind> = Vec::new();
    for (number, filter) in rule.filters.iter().enumerate() {
        let at = format!("{at}.filters[{number}]");
        if seen.contains(&&filter.kind) {
            problems.push(Problem::incompatible(format!("{at}: a rule has one filter of a type at most")));
        }
        seen.push(&filter.kind);
        match &filter.kind {
            HttpFilterKind::RequestRedirect => {
                planned.redirect = given(&at, "requestRedirect", filter.request_redirect.as_ref(), problems)
                    .map(|said| redirect(&format!("{at}.requestRedirect"), said, problems));
            }
            HttpFilterKind::UrlRewrite => {
                planned.rewrite = given(&at, "urlRewrite", filter.url_rewrite.as_ref(), problems)
                    .map(|said| rewrite(&format!("{at}.urlRewrite"), said, problems));
            }
            _ => {
                modifiers(&at, filter, &mut planned.request_headers, &mut planned.response_headers, problems)
            }
        }
    }
    if planned.redirect.is_some() && planned.rewrite.is_some() {
        let message = format!("{at}.filters: RequestRedirect and URLRewrite exclude each other");
        problems.push(Problem::incompatible(message));
    }
    if planned.redirect.is_some() && !rule.backend_refs.is_empty() {
        let message = format!("{at}: a rule with RequestRedirect asks no backend; remove its backendRefs");
        problems.push(Problem::incompatible(message));
    }
    check_prefix(at, &planned, matches, problems);
    planned
}

/// The changes to requests and to answers that a backend asks for. Of filters, header modifiers only can be there.
pub(super) fn of_backend(
    at: &str,
    backend: &HttpBackendRef,
    problems: &mut Vec<Problem>,
) -> (HeaderChanges, HeaderChanges) {
    let (mut request, mut response) = (HeaderChanges::default(), HeaderChanges::default());
    let mut seen: Vec<&HttpFilterKind> = Vec::new();
    for (number, filter) in backend.filters.iter().enumerate() {
        let at = format!("{at}.filters[{number}]");
        if seen.contains(&&filter.kind) {
            problems.push(Problem::incompatible(format!("{at}: a backend has one filter of a type at most")));
        }
        seen.push(&filter.kind);
        modifiers(&at, filter, &mut request, &mut response, problems);
    }
    (request, response)
}

/// A filter that may stand anywhere.
fn modifiers(
    at: &str,
    filter: &HttpFilter,
    request: &mut HeaderChanges,
    response: &mut HeaderChanges,
    problems: &mut Vec<Problem>,
) {
    match &filter.kind {
        HttpFilterKind::RequestHeaderModifier => {
            let name = "requestHeaderModifier";
            if let Some(said) = given(at, name, filter.request_header_modifier.as_ref(), problems) {
                *request = changes(&format!("{at}.{name}"), said, problems);
            }
        }
        HttpFilterKind::ResponseHeaderModifier => {
            let name = "responseHeaderModifier";
            if let Some(said) = given(at, name, filter.response_header_modifier.as_ref(), problems) {
                *response = changes(&format!("{at}.{name}"), said, problems);
            }
        }
        HttpFilterKind::RequestMirror => {
            problems.push(not_done(at, "RequestMirror", "the HTTPRoute filter RequestMirror"));
        }
        HttpFilterKind::ExtensionRef => {
            problems.push(not_done(at, "ExtensionRef", "the HTTPRoute filter ExtensionRef"));
        }
        HttpFilterKind::RequestRedirect => {
            problems.push(not_done(at, "RequestRedirect", "the filter RequestRedirect at a backend"));
        }
        HttpFilterKind::UrlRewrite => {
            problems.push(not_done(at, "URLRewrite", "the filter URLRewrite at a backend"));
        }
        HttpFilterKind::Other(word) => problems.push(not_done(at, word, "a filter of this HTTPRoute")),
    }
}

fn not_done(at: &str, kind: &str, what: &'static str) -> Problem {
    Problem::unsupported(what, format!("{at}.type: {kind:?} is not done here; remove the filter"))
}

/// The field named after a filter's type.
fn given<'f, T>(at: &str, name: &str, field: Option<&'f T>, problems: &mut Vec<Problem>) -> Option<&'f T> {
    if field.is_none() {
        let message = format!("{at}.{name}: must be there, as the filter's type says");
        problems.push(Problem::unsupported("a filter of this HTTPRoute", message));
    }
    field
}

fn changes(at: &str, said: &HttpHeaderModifier, problems: &mut Vec<Problem>) -> HeaderChanges {
    let mut removed: Vec<HeaderName> = Vec::with_capacity(said.remove.len());
    for name in &said.remove {
        match name.parse() {
            Ok(name) => removed.push(name),
            Err(_) => problems.push(bad_header(format!("{at}.remove: {name:?} is no name of a header"))),
        }
    }
    HeaderChanges {
        set: pairs(&format!("{at}.set"), &said.set, problems),
        add: pairs(&format!("{at}.add"), &said.add, problems),
        remove: removed,
    }
}

/// Headers with their values. Of two of one name the first counts, as Gateway API wants it.
fn pairs(at: &str, said: &[HttpHeader], problems: &mut Vec<Problem>) -> Vec<(HeaderName, HeaderValue)> {
    let mut pairs: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(said.len());
    for (number, header) in said.iter().enumerate() {
        let name = header.name.parse::<HeaderName>();
        let value = header.value.parse::<HeaderValue>();
        match (name, value) {
            (Ok(name), Ok(value)) => {
                if !pairs.iter().any(|(known, _)| *known == name) {
                    pairs.push((name, value));
                }
            }
            // The value may be a credential; it is not repeated.
            (Ok(_), Err(_)) => {
                problems.push(bad_header(format!("{at}[{number}].value: no header can have it")))
            }
            (Err(_), _) => {
                let message = format!("{at}[{number}].name: {:?} is no name of a header", header.name);
                problems.push(bad_header(message));
            }
        }
    }
    pairs
}

fn bad_header(message: String) -> Problem {
    Problem::unsupported("a change of headers of this HTTPRoute", message)
}

fn redirect(at: &str, said: &HttpRequestRedirect, problems: &mut Vec<Problem>) -> PlanRedirect {
    const WHAT: &str = "a redirect of this HTTPRoute";
    let scheme = said.scheme.as_deref().map(str::to_ascii_lowercase);
    if let Some(scheme) = scheme.as_deref().filter(|scheme| !["http", "https"].contains(scheme)) {
        let message = format!("{at}.scheme: {scheme:?} is not understood; use http or https");
        problems.push(Problem::unsupported(WHAT, message));
    }
    let status = said.status_code.unwrap_or(FOUND);
    if !REDIRECTIONS.contains(&status) {
        let message =
            format!("{at}.statusCode: {status} sends nobody elsewhere; use 301, 302, 303, 307 or 308");
        problems.push(Problem::unsupported(WHAT, message));
    }
    if said.hostname.as_deref().is_some_and(|hostname| hostname.parse::<http::uri::Authority>().is_err()) {
        problems.push(Problem::unsupported(WHAT, format!("{at}.hostname: it is no name of a host")));
    }
    PlanRedirect {
        scheme: scheme.map(Into::into),
        hostname: said.hostname.as_deref().map(Into::into),
        port: said.port,
        path: said.path.as_ref().and_then(|path| path_change(at, path, problems)),
        status,
    }
}

fn rewrite(at: &str, said: &HttpUrlRewrite, problems: &mut Vec<Problem>) -> PlanUrlRewrite {
    let hostname = said.hostname.as_deref().and_then(|hostname| {
        let value = HeaderValue::from_str(hostname).ok();
        if value.is_none() {
            let message = format!("{at}.hostname: it is no name of a host");
            problems.push(Problem::unsupported("a rewrite of this HTTPRoute", message));
        }
        value
    });
    PlanUrlRewrite { hostname, path: said.path.as_ref().and_then(|path| path_change(at, path, problems)) }
}

fn path_change(at: &str, said: &HttpPathModifier, problems: &mut Vec<Problem>) -> Option<PathChange> {
    let at = format!("{at}.path");
    match &said.kind {
        HttpPathModifierKind::ReplaceFullPath => {
            given(&at, "replaceFullPath", said.replace_full_path.as_ref(), problems)
                .map(|path| PathChange::Full(path.as_str().into()))
        }
        HttpPathModifierKind::ReplacePrefixMatch => {
            given(&at, "replacePrefixMatch", said.replace_prefix_match.as_ref(), problems)
                .map(|path| PathChange::Prefix(path.as_str().into()))
        }
        HttpPathModifierKind::Other(word) => {
            let message =
                format!("{at}.type: {word:?} is not understood; use ReplaceFullPath or ReplacePrefixMatch");
            problems.push(Problem::unsupported("a change of the path of this HTTPRoute", message));
            None
        }
    }
}

/// A prefix can only be replaced where one is matched.
fn check_prefix(at: &str, planned: &PlanFilters, matches: &[PlanHttpMatch], problems: &mut Vec<Problem>) {
    let redirected = planned.redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
    let rewritten = planned.rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
    let replaces = redirected.into_iter().chain(rewritten).any(|path| matches!(path, PathChange::Prefix(_)));
    let matched = matches.iter().all(|matching| matches!(matching.path, PlanPath::Prefix(_)));
    if replaces && !matched {
        let message = format!("{at}: ReplacePrefixMatch needs every match of the rule to be a PathPrefix");
        problems.push(Problem::unsupported("a change of the path of this HTTPRoute", message));
    }
}
