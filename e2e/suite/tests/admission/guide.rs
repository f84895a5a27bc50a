//! The guide names every flag and every metric, and its commands start.

use clap::FromArgMatches as _;
use kvasir_settings::flags::{RouterArgs, command};
use kvasir_settings::resolved::AdmissionSettings;
use kvasir_telemetry::names;

fn guide() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/fairness.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_guide_names_what_there_is() {
    let guide = guide();
    let command = command();
    let flags = command
        .get_arguments()
        .filter(|argument| argument.get_help_heading() == Some("Admission"))
        .filter_map(|argument| argument.get_long().map(|flag| format!("--{flag}")));
    let metrics = names::admission::ALL.iter().map(|family| family.name.to_owned());
    let all: Vec<String> = flags.chain(metrics).collect();
    assert!(all.len() > 30, "{all:?}");
    // A flag may be shown with its value.
    let is_named =
        |name: &String| guide.contains(&format!("`{name}`")) || guide.contains(&format!("`{name} "));
    let missing: Vec<&String> = all.iter().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "the guide lacks {missing:?}");
}

#[test]
fn the_commands_of_the_guide_switch_a_queue_on() {
    let guide = guide();
    let blocks = guide.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut seen = Vec::new();
    for block in blocks {
        let line = block.replace("\\\n", " ");
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let known = command().mut_args(|argument| argument.env(None::<&str>));
        let matches = known.try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        let args = RouterArgs::from_arg_matches(&matches).unwrap();
        let settings = kvasir_settings::resolve(args).unwrap_or_else(|problems| panic!("{line}: {problems}"));
        assert_ne!(settings.admission, AdmissionSettings::Off, "{line}");
        assert_eq!(settings.warnings, Vec::<String>::new(), "{line}");
        seen.push(settings.admission);
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}
