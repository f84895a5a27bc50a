//! The flags of kthena's logging library: the verbosity counts, the rest is taken and said to have no effect.

use clap::Args;

use crate::problems::{Findings, Place};

const HEADING: &str = "Flags of kthena's log";

/// From this verbosity on kthena logs what is of use only to who looks for a fault.
const DEBUG_FROM: i64 = 4;

/// klog's flags, as they were typed.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct KlogFlags {
    /// 4 and above mean --log-level debug, where that is not given
    #[arg(short = 'v', long = "v", env = "KVASIR_V", value_name = "LEVEL", help_heading = HEADING, hide_short_help = true)]
    pub verbosity: Option<String>,
    /// Without an effect: --log-level takes directives for single parts
    #[arg(long = "vmodule", env = "KVASIR_VMODULE", value_name = "PATTERNS", help_heading = HEADING, hide_short_help = true)]
    pub vmodule: Option<String>,
    /// Without an effect: the log goes to standard error
    #[arg(long = "logtostderr", env = "KVASIR_LOGTOSTDERR", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub logtostderr: Option<String>,
    /// Without an effect: the log goes to standard error
    #[arg(long = "alsologtostderr", env = "KVASIR_ALSOLOGTOSTDERR", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub alsologtostderr: Option<String>,
    /// Without an effect: the log goes to standard error
    #[arg(long = "log_dir", env = "KVASIR_LOG_DIR", value_name = "DIR", help_heading = HEADING, hide_short_help = true)]
    pub log_dir: Option<String>,
    /// Without an effect: the log goes to standard error
    #[arg(long = "log_file", env = "KVASIR_LOG_FILE", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub log_file: Option<String>,
    /// Without an effect: the log goes to standard error
    #[arg(long = "log_file_max_size", env = "KVASIR_LOG_FILE_MAX_SIZE", value_name = "MEGABYTES", help_heading = HEADING, hide_short_help = true)]
    pub log_file_max_size: Option<String>,
    /// Without an effect: the whole log goes to standard error
    #[arg(long = "stderrthreshold", env = "KVASIR_STDERRTHRESHOLD", value_name = "LEVEL", help_heading = HEADING, hide_short_help = true)]
    pub stderrthreshold: Option<String>,
    /// Without an effect: the whole log goes to standard error
    #[arg(long = "legacy_stderr_threshold_behavior", env = "KVASIR_LEGACY_STDERR_THRESHOLD_BEHAVIOR", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub legacy_stderr_threshold_behavior: Option<String>,
    /// Without an effect: every line is written once
    #[arg(long = "one_output", env = "KVASIR_ONE_OUTPUT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub one_output: Option<String>,
    /// Without an effect: lines name no file
    #[arg(long = "add_dir_header", env = "KVASIR_ADD_DIR_HEADER", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub add_dir_header: Option<String>,
    /// Without an effect: every line has time and level
    #[arg(long = "skip_headers", env = "KVASIR_SKIP_HEADERS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub skip_headers: Option<String>,
    /// Without an effect: no log file is written
    #[arg(long = "skip_log_headers", env = "KVASIR_SKIP_LOG_HEADERS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub skip_log_headers: Option<String>,
    /// Without an effect: no stack is written
    #[arg(long = "log_backtrace_at", env = "KVASIR_LOG_BACKTRACE_AT", value_name = "FILE:LINE", help_heading = HEADING, hide_short_help = true)]
    pub log_backtrace_at: Option<String>,
}

impl KlogFlags {
    /// Whether the verbosity asks for debug lines. Says what has no effect.
    pub(crate) fn read(&self, findings: &mut Findings) -> bool {
        for (flag, text) in [
            ("--vmodule", &self.vmodule),
            ("--logtostderr", &self.logtostderr),
            ("--alsologtostderr", &self.alsologtostderr),
            ("--log_dir", &self.log_dir),
            ("--log_file", &self.log_file),
            ("--log_file_max_size", &self.log_file_max_size),
            ("--stderrthreshold", &self.stderrthreshold),
            ("--legacy_stderr_threshold_behavior", &self.legacy_stderr_threshold_behavior),
            ("--one_output", &self.one_output),
            ("--add_dir_header", &self.add_dir_header),
            ("--skip_headers", &self.skip_headers),
            ("--skip_log_headers", &self.skip_log_headers),
            ("--log_backtrace_at", &self.log_backtrace_at),
        ] {
            if text.as_deref().is_some_and(|text| !text.is_empty()) {
                findings.warn(
                    &Place::flag(flag),
                    "has no effect: the log goes to standard error, at --log-level",
                );
            }
        }
        let Some(text) = self.verbosity.as_deref().filter(|text| !text.is_empty()) else { return false };
        match text.trim().parse::<i64>() {
            Ok(level) => level >= DEBUG_FROM,
            Err(_) => {
                findings.error(&Place::flag("--v"), format!("{text:?} is no number"), "write -v 4 for debug");
                false
            }
        }
    }
}
