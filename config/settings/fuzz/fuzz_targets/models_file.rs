//! Any bytes as a models file: resolving them ends with settings or with problems.
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
    let args = RouterArgs { models: Some("models".to_owned()), ..RouterArgs::default() };
    if let Ok(settings) = resolve_from(&args, &OneText(text), &SystemFacts::default()) {
        assert!(settings.models.iter().all(|model| !model.name.as_str().trim().is_empty()));
        assert!(settings.models.iter().flat_map(|model| &model.endpoints).all(|endpoint| endpoint.ranks > 0));
    }
});
