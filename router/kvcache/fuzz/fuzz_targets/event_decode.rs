//! Any payload: decoding and applying it end, and take no more memory than the payload accounts for.
#![no_main]

use kvasir_core::{ModelName, OwnerSlot};
use kvasir_kvcache::Index;
use kvasir_kvcache::event::decode_batch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let Ok(batch) = decode_batch(0, payload) else { return };
    let index = Index::default();
    let model = ModelName::from("m");
    index.register(OwnerSlot(0), &model, "fuzz").expect("slot 0 is taken");
    index.apply(OwnerSlot(0), &batch);
    // Whatever it stored, nothing is left behind.
    index.reset(OwnerSlot(0));
    assert_eq!(index.size().blocks, 0);
});
