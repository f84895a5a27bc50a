//! Whatever an engine sends as its metrics page, reading it ends with numbers or an error.
#![no_main]

use kvasir_core::EngineKind;
use kvasir_upstream::read_metrics;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|page: &[u8]| {
    for engine in [EngineKind::Vllm, EngineKind::Sglang] {
        let Ok(read) = read_metrics(page, engine) else { continue };
        let all = read.numbers(None);
        assert!(all.is_some_and(|numbers| (0.0..=1.0).contains(&numbers.kv_usage)));
        for rank in read.ranks() {
            assert!(read.numbers(Some(rank)).is_some());
        }
    }
});
