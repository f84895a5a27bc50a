//! Small models for tests.

use std::path::Path;

use serde_json::{Value, json};

/// A ChatML template that begins with BOS.
pub const CHATML: &str = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                          {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes a model's directory: a byte-level tokenizer whose bytes begin at id `shift`, and a template.
pub fn write_model(directory: &Path, shift: usize, template: &str) {
    let write = |name: &str, value: &Value| std::fs::write(directory.join(name), value.to_string()).unwrap();
    write("tokenizer.json", &tokenizer(shift));
    write("tokenizer_config.json", &json!({"chat_template": template, "bos_token": "<s>"}));
    write("config.json", &json!({"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 8192}));
}

fn tokenizer(shift: usize) -> Value {
    let mut vocabulary = serde_json::Map::new();
    for filler in 0..shift {
        vocabulary.insert(format!("filler{filler}"), json!(vocabulary.len()));
    }
    let mut extra = 0;
    for byte in 0..=255u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        extra += u32::from(!printable);
        let letter = char::from_u32(if printable { byte } else { 255 + extra }).unwrap();
        vocabulary.insert(letter.to_string(), json!(vocabulary.len()));
    }
    let merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")];
    for (left, right) in merges {
        let id = vocabulary.len();
        vocabulary.insert(format!("{left}{right}"), json!(id));
    }
    let begin = vocabulary.len();
    let added: Vec<Value> = ["<s>", "<|im_start|>", "<|im_end|>"]
        .iter()
        .enumerate()
        .map(|(position, content)| {
            json!({"id": begin + position, "content": content, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges.map(|(left, right)| format!("{left} {right}"))},
    })
}
