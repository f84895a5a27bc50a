//! Any text: the pieces the memory works with give the ids of the whole.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use libfuzzer_sys::fuzz_target;

fn load(encoder: EncoderChoice, memory_bytes: usize) -> LocalTokenizer {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/tokenizer");
    let options = LoadOptions { encoder, memory_bytes, ..LoadOptions::default() };
    LocalTokenizer::load_with(&directory, None, options).expect("the demo's tokenizer loads")
}

fuzz_target!(|text: &str| {
    static LOADED: OnceLock<[LocalTokenizer; 2]> = OnceLock::new();
    let [fast, reference] =
        LOADED.get_or_init(|| [load(EncoderChoice::Auto, 1 << 20), load(EncoderChoice::Reference, 0)]);
    // Marks are rare in random text.
    let text = text.replace('\u{1}', "<|im_start|>").replace('\u{2}', "<|im_end|>");
    let expected = reference.encode_text(&text, false);
    assert_eq!(fast.encode_text(&text, false), expected);
    assert_eq!(fast.encode_text(&text, false), expected);
});
