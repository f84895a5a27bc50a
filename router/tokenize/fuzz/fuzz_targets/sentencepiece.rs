//! Any bytes as a model file: an error or a model, which encodes any text, and keeps within the vocabulary.
#![no_main]

use kvasir_tokenize::local::sentencepiece::{LlamaConfig, Model, SentencePiece, tokenizer_json};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|input: (&[u8], &str)| {
    let (file, text) = input;
    let Ok(model) = Model::parse(file) else { return };
    let config = json!({"tokenizer_class": "LlamaTokenizer"});
    let files = LlamaConfig { config: &config, map: &Value::Null, added: &Value::Null, model: &Value::Null };
    let written = tokenizer_json(&model, &files).expect("nothing speaks against it");
    serde_json::from_slice::<Value>(&written).expect("JSON");
    if let Ok(encoder) = SentencePiece::new(model) {
        let ids = encoder.encode(text).expect("the text is short");
        assert!(ids.iter().all(|id| (*id as usize) < encoder.vocab_size()));
        drop(encoder.decode(&ids));
    }
});
