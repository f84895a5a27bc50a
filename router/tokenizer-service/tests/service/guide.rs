//! The guide names every flag, every variable and every metric.

use clap::{Args as _, Command};
use kvasir_tokenizer_service::{TokenizerArgs, metrics};

#[test]
fn the_guide_names_what_there_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/tokenizer-service.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let command = TokenizerArgs::augment_args(Command::new("tokenizer"));
    let flags = command.get_arguments().flat_map(|argument| {
        let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
        [argument.get_long().map(|flag| format!("--{flag}")), variable].into_iter().flatten()
    });
    let names = metrics::ALL.iter().map(|family| family.name.to_owned());
    let missing: Vec<String> =
        flags.chain(names).filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "the guide lacks {missing:?}");
}
