//! The rows of the behavioural reference, each as a case; the results were taken from runs of the Go libraries.

use super::{parse_bool, read_args, read_document};
use crate::problems::{Findings, Place};
use crate::raw::router_document::RouterDocument;
use crate::yaml::Tree;

/// Reads a document and hands it to `look`, with problems and warnings.
fn with_document<T>(text: &str, look: impl FnOnce(&RouterDocument<'_>, &[String], &[String]) -> T) -> T {
    let tree = match Tree::parse(text) {
        Ok(tree) => tree,
        Err(error) => return look(&RouterDocument::default(), &[error.message], &[]),
    };
    let mut findings = Findings::default();
    let document = read_document(&tree, &Place::file("r.yaml"), &mut findings);
    look(&document, &findings.problems(), findings.warnings())
}

fn filters_of(text: &str) -> Result<Vec<String>, String> {
    with_document(text, |document, problems, _| match problems {
        [] => Ok(document.filters.enabled.iter().map(|name| name.value.clone()).collect()),
        problems => Err(problems.join("\n")),
    })
}

fn weight_of(text: &str) -> Result<Option<i64>, String> {
    let text = format!(
        "scheduler:\n  plugins:\n    Score:\n      enabled:\n      - name: a\n        weight: {text}\n"
    );
    with_document(&text, |document, problems, _| match problems {
        [] => Ok(document.scorers.enabled[0].weight.as_ref().map(|weight| weight.value)),
        problems => Err(problems.join("\n")),
    })
}

#[test]
fn weights_are_whole_numbers() {
    for (text, expected) in [
        ("1", Some(1)),
        ("1.0", Some(1)),
        ("1.9", Some(1)),
        ("-1.9", Some(-1)),
        ("-3", Some(-3)),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", Some(8)),
        ("0o10", Some(8)),
        ("0x10", Some(16)),
        ("-0x10", Some(-16)),
        ("0b11", Some(3)),
        ("08", Some(8)),
        ("0777", Some(511)),
        ("1_000", Some(1000)),
        ("1__0", Some(10)),
        ("1e3", Some(1000)),
        ("1.e2", Some(100)),
        ("+5", Some(5)),
        ("-.inf", Some(i64::MIN)),
        ("-9.3e18", Some(i64::MIN)),
        ("9223372036854775807", Some(i64::MAX)),
        ("!!int \"5\"", Some(5)),
        ("!!float 5", Some(5)),
        ("5 # comment", Some(5)),
    ] {
        assert_eq!(weight_of(text), Ok(expected), "{text}");
    }
    for text in [
        "\"1\"",
        "'1'",
        "true",
        "yes",
        ".inf",
        ".nan",
        "9223372036854775808",
        "18446744073709551616",
        "1e19",
        "2001-01-01",
        "!!str 5",
        "!foo 5",
        "1:30",
        "0x",
        "0o8",
        "_1",
        "!!int 5.5",
        "[1]",
        "{a: 1}",
    ] {
        let error = weight_of(text).err().unwrap_or_else(|| panic!("{text} should be refused"));
        assert!(error.starts_with("r.yaml:6:") && error.contains("the weight is"), "{text}: {error}");
    }
}

#[test]
fn lists_of_names_hold_scalars() {
    let list =
        |text: &str| filters_of(&format!("scheduler:\n  plugins:\n    Filter:\n      enabled: {text}\n"));
    let words = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    assert_eq!(
        list("[1,true,~,yes,0x10,2001-01-01,1.50,\"q\"]"),
        words(&["1", "true", "", "yes", "0x10", "2001-01-01", "1.50", "q"])
    );
    assert_eq!(list("[a, a]"), words(&["a", "a"]), "a filter listed twice runs twice");
    for text in ["~", "", "[]"] {
        assert_eq!(list(text), words(&[]), "{text}");
    }
    for (text, part) in [
        ("a", "is a text, not a list"),
        ("{}", "is a mapping, not a list"),
        ("{a: b}", "is a mapping, not a list"),
        ("[{a: b}]", "is a mapping, not a text"),
        ("[[a]]", "is a list, not a text"),
        ("[*x]", "anchor"),
    ] {
        let error = list(text).err().unwrap_or_default();
        assert!(error.contains(part), "{text}: {error:?}");
    }
}

/// A document whose filters are `[q]` where it is taken, and empty where it is accepted without an effect.
#[test]
fn documents_are_taken_or_refused_as_go_yaml_does() {
    for text in [
        "x: &a {scheduler: {plugins: {Filter: {enabled: [q]}}}}\n<<: *a",
        "x: &a {plugins: {Filter: {enabled: [q]}}}\nscheduler: *a",
        "\u{feff}scheduler: {plugins: {Filter: {enabled: [q]}}}",
        "scheduler: {plugins: {Filter: {enabled: [q]}}, <<: {plugins: {Filter: {enabled: [z]}}}}",
        "x: &a {enabled: [q]}\ny: &b {enabled: [r]}\nscheduler: {plugins: {Filter: {<<: [*a, *b]}}}",
        "? scheduler\n: {plugins: {Filter: {enabled: [q]}}}",
        "scheduler: !foo {plugins: {Filter: {enabled: [q]}}}",
        "x: &a [q]\nscheduler: {plugins: {Filter: {enabled: *a}}}",
        "scheduler: {plugins: {Filter: {enabled: [q]}}}\n---\nscheduler: {plugins: {Filter: {enabled: [z]}}}",
        "unknown: 1\nscheduler: {also: [], plugins: {Filter: {enabled: [q], more: {}}}}",
    ] {
        assert_eq!(filters_of(text), Ok(vec!["q".to_owned()]), "{text}");
    }
    for text in [
        "",
        "~",
        "null",
        "# only a comment\n",
        "scheduler:",
        "scheduler: ~",
        "{Scheduler: {}}",
        "{x: {a: 1, a: 2}}",
        "a: 1\n---\nb: {",
        "a: 1\n... \ngarbage: [",
        "---\n...\n---\nscheduler: 5",
        "%YAML 1.1\n---\nscheduler: {}",
        "scheduler: &a {plugins: *a}",
        "~: 5\nscheduler: {}",
        "scheduler: {plugins: {filter: {enabled: [q]}, score: {enabled: 5}}}",
        "scheduler: {plugins: {Filter: ~, Score: ~}, pluginConfig: ~}\nauth: ~",
    ] {
        assert_eq!(filters_of(text), Ok(vec![]), "{text}");
    }
    for (text, part) in [
        ("5", "is a number, not a mapping"),
        ("a", "is a text, not a mapping"),
        ("[]", "is a list, not a mapping"),
        ("{scheduler: 5}", "scheduler: is a number"),
        ("{scheduler: []}", "scheduler: is a list"),
        ("{scheduler: ''}", "scheduler: is a text"),
        ("{scheduler: {}, scheduler: {}}", "the key \"scheduler\" is already defined at line 1"),
        ("{1: a, \"1\": b}", "the key \"1\" is already defined"),
        ("scheduler:\n  plugins: {}\n  plugins: {}", "r.yaml:3:3: scheduler.plugins: the key"),
        ("{[a]: b}", "a key is a list"),
        ("x: *nope", "anchor"),
        ("scheduler: {<<: 5}", "merges a number"),
        ("a: b: c", ""),
        ("scheduler:\n\tplugins: {}", ""),
        ("scheduler: {plugins: {Score: {enabled: [least-request]}}}", "is a text, not a mapping"),
        ("scheduler: {plugins: {Score: {enabled: [{name: [a]}]}}}", "is a list, not a text"),
        ("scheduler: {plugins: {Filter: {disabled: 5}}}", "is a number, not a list"),
        ("scheduler: {plugins: {Score: {disabled: [a]}}}", "is a text, not a mapping"),
        ("scheduler: {pluginConfig: {}}", "is a mapping, not a list"),
        ("scheduler: {pluginConfig: [5]}", "plugin configuration must be a mapping"),
        ("scheduler: {pluginConfig: [[a]]}", "plugin configuration must be a mapping"),
        ("scheduler: {pluginConfig: [{name: [a]}]}", "is a list, not a text"),
        ("auth: {audiences: a}", "is a text, not a list"),
    ] {
        let error = filters_of(text).err().unwrap_or_else(|| panic!("{text:?} should be refused"));
        assert!(error.contains(part), "{text:?}: {error:?}");
    }
}

#[test]
fn what_kthena_ignores_in_silence_is_said() {
    for (text, part) in [
        (
            "shceduler: {}",
            "r.yaml:1:1: shceduler: the key is unknown and has no effect; did you mean \"scheduler\"?",
        ),
        ("scheduler: {plugins: {filter: {}}}", "did you mean \"Filter\"?"),
        ("scheduler: {plugins: {score: {}}}", "did you mean \"Score\"?"),
        ("scheduler: {pluginConfig: [{name: a, arguments: {}}]}", "arguments: the key is unknown"),
        ("auth: {jwksURI: a}", "did you mean \"jwksUri\"?"),
        ("a: 1\n---\nb: 2", "only the first YAML document"),
    ] {
        with_document(text, |_, problems, warnings| {
            assert!(problems.is_empty(), "{text}: {problems:?}");
            assert!(warnings.iter().any(|warning| warning.contains(part)), "{text}: {warnings:?}");
        });
    }
}

#[test]
fn plugin_entries_keep_their_order_and_their_args() {
    let text = "scheduler: {pluginConfig: [~, {name: a, args: ~}, {args: {b: 1}, extra: 2}, {name: 7}]}";
    with_document(text, |document, problems, _| {
        assert!(problems.is_empty(), "{problems:?}");
        let entries: Vec<(&str, bool)> = document
            .plugin_config
            .iter()
            .map(|entry| (entry.name.value.as_str(), entry.args.is_some()))
            .collect();
        assert_eq!(entries, [("a", false), ("", true), ("7", false)]);
    });
}

#[test]
fn an_alias_to_an_anchor_outside_args_spoils_them() {
    for (args, is_read) in
        [("*x", false), ("{a: *x}", false), ("{<<: *x}", false), ("&z {a: &y 5, b: *y}", true)]
    {
        let text = format!("x: &x {{a: 1}}\nscheduler: {{pluginConfig: [{{name: n, args: {args}}}]}}");
        with_document(&text, |document, problems, _| {
            assert!(problems.is_empty(), "{text}: {problems:?}");
            let (value, _) = document.plugin_config[0].args.as_ref().unwrap();
            assert_eq!(read_args(*value, &[]).is_ok(), is_read, "{args}");
        });
    }
}

#[test]
fn booleans_of_variables_are_those_of_go() {
    for text in ["1", "t", "T", "TRUE", "true", "True"] {
        assert_eq!(parse_bool(text), Some(true), "{text}");
    }
    for text in ["0", "f", "F", "FALSE", "false", "False"] {
        assert_eq!(parse_bool(text), Some(false), "{text}");
    }
    for text in ["", "yes", "tRUE", "2"] {
        assert_eq!(parse_bool(text), None, "{text}");
    }
}
