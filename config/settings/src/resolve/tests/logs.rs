//! The log's level, by our flag or by kthena's.

use super::*;
use crate::flags::KlogFlags;

fn level(log_level: Option<&str>, verbosity: Option<&str>) -> String {
    let args = RouterArgs {
        log_level: log_level.map(str::to_owned),
        klog: KlogFlags { verbosity: verbosity.map(str::to_owned), ..KlogFlags::default() },
        ..one_model()
    };
    settings(&args).log_level
}

#[test]
fn a_high_verbosity_means_debug_unless_a_level_is_given() {
    for (log_level, verbosity, expected) in [
        (None, None, "info"),
        (None, Some(""), "info"),
        (None, Some("3"), "info"),
        (None, Some("-1"), "info"),
        (None, Some("4"), "debug"),
        (None, Some("10"), "debug"),
        (Some(" "), Some("4"), "debug"),
        (Some("info"), Some("4"), "info"),
        (Some("warn,kvasir=trace"), None, "warn,kvasir=trace"),
    ] {
        assert_eq!(level(log_level, verbosity), expected, "{log_level:?} {verbosity:?}");
    }
    let klog = KlogFlags { verbosity: Some("high".to_owned()), ..KlogFlags::default() };
    let all = problems(&RouterArgs { klog, ..one_model() }, &SystemFacts::default());
    assert_eq!(all, "--v: \"high\" is no number; write -v 4 for debug");
}

#[test]
fn the_rest_of_kthenas_log_flags_is_taken_with_a_warning() {
    let set = |text: &str| Some(text.to_owned());
    let klog = KlogFlags {
        verbosity: set("2"),
        vmodule: set("store=5"),
        logtostderr: set("true"),
        alsologtostderr: set("false"),
        log_dir: set("/var/log"),
        log_file: set("/var/log/a"),
        log_file_max_size: set("1800"),
        stderrthreshold: set("INFO"),
        legacy_stderr_threshold_behavior: set("false"),
        one_output: set("true"),
        add_dir_header: set("true"),
        skip_headers: set("true"),
        skip_log_headers: set("true"),
        log_backtrace_at: set("a.go:1"),
    };
    let warnings = settings(&RouterArgs { klog, ..one_model() }).warnings;
    assert_eq!(warnings.len(), 13, "{warnings:?}");
    for warning in warnings {
        let rest = warning.strip_prefix("--").and_then(|text| text.split_once(": "));
        assert_eq!(
            rest.map(|(_, said)| said),
            Some("has no effect: the log goes to standard error, at --log-level")
        );
    }
}
