//! What a route asks for and is refused.

use super::*;

/// A rule, the reason of its refusal, the field in the message, what clients are told.
type Case = (&'static str, &'static str, &'static str, &'static str);

const PREFIX: &str = "path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}";

const VALUE: &str = "UnsupportedValue";
const FILTERS: &str = "IncompatibleFilters";
const MIRROR: &str = "the HTTPRoute filter RequestMirror";
const EXTENSION: &str = "the HTTPRoute filter ExtensionRef";
const OTHER: &str = "a filter of this HTTPRoute";
const REDIRECT: &str = "a redirect of this HTTPRoute";
const HEADERS: &str = "a change of headers of this HTTPRoute";
const PATH: &str = "a change of the path of this HTTPRoute";
const COMBINATION: &str = "this combination of HTTPRoute filters";

const CASES: &[Case] = &[
    (
        "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: s, port: 80}}}]",
        VALUE,
        "filters[0].type",
        MIRROR,
    ),
    (
        "filters: [{type: ExtensionRef, extensionRef: {group: g, kind: k, name: object}}]",
        VALUE,
        "filters[0].type",
        EXTENSION,
    ),
    ("filters: [{type: CORS}]", VALUE, "\"CORS\"", OTHER),
    ("filters: [{type: RequestRedirect}]", VALUE, "filters[0].requestRedirect", OTHER),
    ("filters: [{type: URLRewrite}]", VALUE, "filters[0].urlRewrite", OTHER),
    ("filters: [{type: RequestHeaderModifier}]", VALUE, "requestHeaderModifier", OTHER),
    (
        "filters: [{type: RequestRedirect, requestRedirect: {scheme: ftp}}]",
        VALUE,
        "requestRedirect.scheme",
        REDIRECT,
    ),
    (
        "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 300}}]",
        VALUE,
        "requestRedirect.statusCode",
        REDIRECT,
    ),
    (
        "filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceSome}}}]",
        VALUE,
        "requestRedirect.path.type",
        PATH,
    ),
    (
        "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath}}}]",
        VALUE,
        "urlRewrite.path.replaceFullPath",
        OTHER,
    ),
    (
        "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a b, value: c}]}}]",
        VALUE,
        "requestHeaderModifier.set[0].name",
        HEADERS,
    ),
    (
        "filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: a, value: \"b\\n\"}]}}]",
        VALUE,
        "responseHeaderModifier.add[0].value",
        HEADERS,
    ),
    (
        "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [\"\"]}}]",
        VALUE,
        "requestHeaderModifier.remove",
        HEADERS,
    ),
    (
        "filters: [{type: URLRewrite, urlRewrite: {}}, {type: URLRewrite, urlRewrite: {}}]",
        FILTERS,
        "filters[1]",
        COMBINATION,
    ),
    (
        "filters: [{type: URLRewrite, urlRewrite: {}}, {type: RequestRedirect, requestRedirect: {}}]",
        FILTERS,
        "exclude each other",
        COMBINATION,
    ),
    (
        "filters: [{type: RequestRedirect, requestRedirect: {}}], \
             backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: v1}]",
        FILTERS,
        "backendRefs",
        COMBINATION,
    ),
    (
        "backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: v1, \
             filters: [{type: URLRewrite, urlRewrite: {}}]}]",
        VALUE,
        "backendRefs[0].filters[0].type",
        "the filter URLRewrite at a backend",
    ),
    (
        "timeouts: {request: 1s, backendRequest: 2s}",
        VALUE,
        "spec.rules[0].timeouts",
        "a timeout of one attempt beyond that of the request",
    ),
    ("retry: {attempts: 2}", VALUE, "spec.rules[0].retry", "a retry of this HTTPRoute"),
    (
        "sessionPersistence: {sessionName: s}",
        VALUE,
        "spec.rules[0].sessionPersistence",
        "session persistence of this HTTPRoute",
    ),
    (
        "matches: [{method: BREW}, {path: {value: /}}]",
        VALUE,
        "matches[0].method",
        "a method in a match of an HTTPRoute",
    ),
    (
        "matches: [{path: {type: Fuzzy, value: /x}}, {path: {value: /}}]",
        VALUE,
        "matches[0].path.type",
        "a type of match of an HTTPRoute",
    ),
    (
        "matches: [{path: {type: RegularExpression, value: '['}}, {path: {value: /}}]",
        VALUE,
        "matches[0].path.value: error parsing regexp",
        "a regular expression of an HTTPRoute",
    ),
    (
        "matches: [{headers: [{name: a, type: RegularExpression, value: '('}]}, {path: {value: /}}]",
        VALUE,
        "matches[0].headers[0].value",
        "a regular expression of an HTTPRoute",
    ),
    (
        "matches: [{queryParams: [{name: a, type: Fuzzy, value: b}]}, {path: {value: /}}]",
        VALUE,
        "matches[0].queryParams[0].type",
        "a type of match of an HTTPRoute",
    ),
];

#[test]
fn a_route_of_which_nothing_can_be_done_is_not_accepted_and_its_requests_are_told() {
    for (fields, reason, field, what) in CASES {
        let world = routed(&route("bad", &format!("{{{fields}}}")));
        let wanted = format!("Accepted=False/{reason} ResolvedRefs=True/ResolvedRefs");
        assert_eq!(world.route("bad"), wanted, "{fields}");
        let message = world.message("bad", "Accepted");
        assert!(message.contains(field) && message.starts_with("spec.rules[0]"), "{fields}: {message}");
        assert_eq!(post("/").goes(&world), format!("refused: {what}"), "{fields}");
        let (.., listeners) = world.gateway("gw");
        assert_eq!(listeners[0].attached_routes, 0, "{fields}");
    }
}

#[test]
fn beside_good_rules_a_bad_one_is_dropped_alone() {
    for (fields, reason, field, what) in CASES.iter().filter(|(fields, ..)| !fields.contains("matches")) {
        let rules = format!(
            "{}, {{matches: [{{path: {{value: /bad}}}}], {fields}}}",
            rule("matches: [{path: {value: /}}]", "v2")
        );
        let world = routed(&route("some", &rules));
        assert_eq!(world.route("some"), format!("{GOOD} PartiallyInvalid=True/{reason}"), "{fields}");
        let message = world.message("some", "PartiallyInvalid");
        assert!(message.starts_with("Dropped Rule 1 "), "{message}");
        assert!(message.contains(&field.replace("rules[0]", "rules[1]")), "{fields}: {message}");
        assert_eq!(post("/bad").goes(&world), format!("refused: {what}"), "{fields}");
        assert_eq!(post("/good").goes(&world), "v2", "{fields}");
        let (.., listeners) = world.gateway("gw");
        assert_eq!(listeners[0].attached_routes, 1);
    }
}

#[test]
fn a_prefix_is_replaced_only_where_one_is_matched() {
    for (matches, accepted) in [
        ("", true),
        ("matches: [{path: {value: /a}}], ", true),
        ("matches: [{path: {value: /a}}, {path: {value: /b}}], ", true),
        ("matches: [{path: {type: Exact, value: /a}}], ", false),
        ("matches: [{path: {value: /a}}, {path: {type: RegularExpression, value: /b}}], ", false),
    ] {
        let filter = format!("filters: [{{type: URLRewrite, urlRewrite: {{{PREFIX}}}}}]");
        let world = routed(&route("r", &rule(&format!("{matches}{filter}"), "v1")));
        let wanted = if accepted { "True/Accepted" } else { "False/UnsupportedValue" };
        assert!(world.route("r").starts_with(&format!("Accepted={wanted}")), "{matches}");
    }
}

#[test]
fn a_value_that_no_header_can_have_is_not_repeated() {
    let filter = "filters: [{type: RequestHeaderModifier, requestHeaderModifier: \
                  {set: [{name: authorization, value: \"secret\\n\"}]}}]";
    let world = routed(&route("r", &format!("{{{filter}}}")));
    assert!(!world.message("r", "Accepted").contains("secret"));
}

#[test]
fn a_route_that_cannot_be_read_is_passed_over_and_loses_its_status() {
    let world = routed(&route("r", &rule("timeouts: {request: soon}", "v1")));
    assert!(world.parents(StatusKind::HttpRoute, "r").is_empty());
    let (name, sentence) = &world.translation.skipped[0];
    assert_eq!(name.to_string(), "default/r");
    assert!(sentence.contains("spec.rules[0].timeouts.request"), "{sentence}");
    assert!(world.translation.plan.http_routes.is_empty());
}
