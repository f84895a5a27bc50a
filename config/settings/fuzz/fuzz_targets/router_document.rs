//! Any bytes as a router document: resolving them ends with settings or with problems.
#![no_main]

use std::io;
use std::path::Path;

use kvasir_settings::{Files, RouterArgs, SystemFacts, resolve_from};
use libfuzzer_sys::fuzz_target;

struct OneText<'a>(&'a str);

impl Files for OneText<'_> {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }

    fn is_directory(&self, _: &Path) -> bool {
        true
    }

    fn is_file(&self, _: &Path) -> bool {
        true
    }
}

fuzz_target!(|text: &str| {
    let args = RouterArgs {
        config: Some("document".to_owned()),
        model: vec!["a=http://a:1".to_owned()],
        ..RouterArgs::default()
    };
    if let Ok(settings) = resolve_from(&args, &OneText(text), &SystemFacts::default()) {
        assert!(settings.scheduler.scorers.iter().all(|(_, weight)| *weight >= 0.0));
        assert!(!settings.token_order(&settings.models[0]).contains(&kvasir_core::TokenSource::Given));
    }
});
