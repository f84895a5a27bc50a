//! Whole chat bodies to ids, through the fast encoder and the reference: first sight, and a conversation's next turn.
//!
//! Uses the Qwen2.5 tokenizer that `e2e/tokenizers/fetch.sh` fetches, else the demo's. Every measured prompt is another
//! one: the encoders keep caches of words, and an equal prompt would measure those.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use kvasir_core::RequestKind;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use serde_json::json;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[expect(clippy::disallowed_methods, reason = "the place of a bench's cache is no setting of the router")]
fn directory() -> PathBuf {
    let cache = std::env::var("KVASIR_CACHE").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache").join("kvasir")
    });
    let real = cache.join("tokenizers/qwen2_5");
    if real.join("tokenizer.json").is_file() { real } else { Path::new(HERE).join("../../demo/tokenizer") }
}

#[expect(clippy::panic, reason = "a bench without its tokenizer has nothing to measure")]
fn load(encoder: EncoderChoice, memory_bytes: usize) -> LocalTokenizer {
    let options = LoadOptions { encoder, memory_bytes, ..LoadOptions::default() };
    LocalTokenizer::load_with(&directory(), None, options).unwrap_or_else(|error| panic!("{error}"))
}

/// The long prompt with its lines turned by `number`, cut to `bytes`: about 4 bytes a token.
fn prompt(lines: &[&str], number: usize, bytes: usize) -> String {
    let start = number * 7 % lines.len().max(1);
    let (before, after) = lines.split_at(start);
    let mut text = format!("Request {number}. ");
    for line in after.iter().chain(before).cycle() {
        if text.len() >= bytes {
            break;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn body(turns: &[String]) -> Bytes {
    let mut messages = vec![json!({"role": "system", "content": "You are a careful assistant."})];
    for (number, text) in turns.iter().enumerate() {
        messages.push(json!({"role": if number % 2 == 0 { "user" } else { "assistant" }, "content": text}));
    }
    Bytes::from(json!({"model": "m", "messages": messages}).to_string())
}

fn encode(criterion: &mut Criterion) {
    let text =
        std::fs::read_to_string(Path::new(HERE).join("tests/data/long_prompt.txt")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut group = criterion.benchmark_group("chat");
    group.sample_size(20);
    for encoder in [EncoderChoice::Auto, EncoderChoice::Reference] {
        let cold = load(encoder, 0);
        for (label, bytes) in [("1k", 1 << 10), ("80k", 80 << 10)] {
            let mut number = 0;
            group.bench_function(
                BenchmarkId::new(format!("first sight {label}"), cold.encoder_name()),
                |bencher| {
                    let next = || {
                        number += 1;
                        body(&[prompt(&lines, number, bytes)])
                    };
                    bencher.iter_batched(
                        next,
                        |body| black_box(cold.encode_body(RequestKind::Chat, &body)),
                        BatchSize::SmallInput,
                    );
                },
            );
        }
        let warm = load(encoder, 32 << 20);
        let mut turns: Vec<String> = (0..19).map(|turn| prompt(&lines, turn * 31, 4 << 10)).collect();
        drop(black_box(warm.encode_body(RequestKind::Chat, &body(&turns))));
        let mut number = 1_000;
        group.bench_function(BenchmarkId::new("next turn of 80k", warm.encoder_name()), |bencher| {
            let next = || {
                number += 1;
                turns.truncate(19);
                turns.push(prompt(&lines, number, 1 << 10));
                body(&turns)
            };
            bencher.iter_batched(
                next,
                |body| black_box(warm.encode_body(RequestKind::Chat, &body)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, encode);
criterion_main!(benches);
