//! Any body, as any kind of request: an error or ids, never a panic, and the same again from the memory.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use kvasir_core::RequestKind;
use kvasir_tokenize::LocalTokenizer;
use libfuzzer_sys::fuzz_target;

fn tokenizer() -> &'static LocalTokenizer {
    static LOADED: OnceLock<LocalTokenizer> = OnceLock::new();
    LOADED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/tokenizer");
        LocalTokenizer::load(&directory, None).expect("the demo's tokenizer loads")
    })
}

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    for kind in [RequestKind::Chat, RequestKind::Completions, RequestKind::Messages, RequestKind::Responses] {
        let first = tokenizer().encode_body(kind, &body);
        assert_eq!(first, tokenizer().encode_body(kind, &body));
    }
});
