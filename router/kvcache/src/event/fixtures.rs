//! The captured frames of `tests/data`, read for tests.

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::Value;

pub(crate) const LIVE: [&str; 5] = [
    "vllm-0.18-array-events-bs16",
    "vllm-0.32-bytes-hash-lora-bs16",
    "vllm-0.32-data-parallel-2",
    "vllm-0.32-hybrid-sliding-window-bs32",
    "vllm-0.32-int-hash-bs32",
];

/// The lines of one file.
pub(crate) fn lines(name: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn frames(line: &Value, key: &str) -> Vec<Bytes> {
    line[key].as_array().unwrap().iter().map(|frame| unhex(frame.as_str().unwrap()).into()).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
