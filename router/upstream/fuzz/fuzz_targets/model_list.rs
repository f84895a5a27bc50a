//! Whatever an engine sends as its model list, reading it ends with bounded names or an error.
#![no_main]

use kvasir_upstream::read_model_list;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(models) = read_model_list(body) {
        assert!(models.len() <= 4096);
        assert!(models.iter().all(|model| !model.id.is_empty() && model.id.len() <= 512));
    }
});
