//! What tokenizing a chat of 20,000 tokens costs on one thread, by tokenizer: template and ids, through the router's own
//! path, beside plain Hugging Face `tokenizers` in the same run.
//!
//! The tokenizers are those that `e2e/tokenizers/fetch.sh` fetches, else the demo's. Every prompt of the first two rows is
//! another one: the encoders keep caches of words, and an equal prompt would measure those. Run it with
//! `FASTOKENS_BPE_THREADS=1 FASTOKENS_SPIN_US=0`, which the router sets for itself.
//!
//!   cargo bench -p kvasir-tokenize --bench encode [NAME...]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::RequestKind;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use serde_json::json;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Size of a conversation: about 20,000 tokens.
const BYTES: usize = 80 << 10;

/// Turns of a conversation: the last one is a question.
const TURNS: usize = 21;

/// Prompts that warm the encoders' caches of words up, as a service that has run for a while has them.
const WARM_UP: usize = 8;

#[expect(clippy::disallowed_methods, reason = "the place of a bench's cache is no setting of the router")]
fn directories() -> Vec<(String, PathBuf)> {
    let cache = std::env::var("KVASIR_CACHE").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache").join("kvasir")
    });
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(cache.join("tokenizers"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            (path.is_dir() && !name.starts_with('.')).then_some((name, path))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        found.push(("demo".to_owned(), Path::new(HERE).join("../../demo/tokenizer")));
    }
    found
}

/// A source of conversations that differ from the first letter on.
struct Conversations {
    lines: Vec<String>,
    made: usize,
}

impl Conversations {
    fn new() -> Self {
        let text =
            std::fs::read_to_string(Path::new(HERE).join("tests/data/long_prompt.txt")).unwrap_or_default();
        Self { lines: text.lines().map(str::to_owned).collect(), made: 0 }
    }

    fn text(&mut self, bytes: usize) -> String {
        self.made += 1;
        let start = self.made * 7 % self.lines.len().max(1);
        let mut text = format!("Request {}. ", self.made);
        for line in self.lines.iter().cycle().skip(start) {
            if text.len() >= bytes {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    fn turns(&mut self) -> Vec<String> {
        (0..TURNS - 1).map(|_| self.text(BYTES / TURNS)).collect()
    }

    /// The conversation with a new question at its end.
    fn body(&mut self, turns: &[String]) -> Bytes {
        let question = self.text(BYTES / TURNS);
        let messages: Vec<_> = turns
            .iter()
            .chain([&question])
            .enumerate()
            .map(|(number, text)| json!({"role": if number % 2 == 0 { "user" } else { "assistant" }, "content": text}))
            .collect();
        Bytes::from(json!({"model": "m", "messages": messages}).to_string())
    }
}

/// Median of the runs.
fn median(runs: usize, mut next: impl FnMut() -> Bytes, tokenizer: &LocalTokenizer) -> (Duration, usize) {
    let mut times = Vec::with_capacity(runs);
    let mut ids = 0;
    for _ in 0..runs {
        let body = next();
        let began = Instant::now();
        let encoded = black_box(tokenizer.encode_body(RequestKind::Chat, &body));
        times.push(began.elapsed());
        ids = encoded.map_or(0, |encoded| encoded.len());
    }
    times.sort_unstable();
    (times.get(runs / 2).copied().unwrap_or_default(), ids)
}

fn load(directory: &Path, encoder: EncoderChoice, memory_bytes: usize) -> Result<LocalTokenizer, String> {
    let options = LoadOptions { encoder, memory_bytes, ..LoadOptions::default() };
    LocalTokenizer::load_with(directory, None, options).map_err(|error| error.to_string())
}

fn row(name: &str, directory: &Path, runs: usize) -> Result<String, String> {
    let mut talk = Conversations::new();
    let ours = load(directory, EncoderChoice::Auto, 32 << 20)?;
    let fresh = |talk: &mut Conversations| {
        let turns = talk.turns();
        talk.body(&turns)
    };
    median(WARM_UP.min(runs), || fresh(&mut talk), &ours);
    let (first, ids) = median(runs, || fresh(&mut talk), &ours);
    let turns = talk.turns();
    let known = talk.body(&turns);
    median(2, || known.clone(), &ours);
    let (next, _) = median(runs, || talk.body(&turns), &ours);
    let (warm, _) = median(runs, || known.clone(), &ours);
    let plain = load(directory, EncoderChoice::Reference, 0)?;
    median(1, || fresh(&mut talk), &plain);
    let (reference, _) = median(runs.div_ceil(4), || fresh(&mut talk), &plain);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let mut out = String::new();
    let _ = write!(
        out,
        "{name:16} {:10} {ids:7} {:12.2} {:10.2} {:11.2} {:12.1} {:8.0}x",
        ours.encoder_name(),
        milliseconds(first),
        milliseconds(next),
        milliseconds(warm),
        milliseconds(reference),
        reference.as_secs_f64() / first.as_secs_f64().max(1e-9)
    );
    Ok(out)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let trial = arguments.iter().any(|argument| argument == "--test");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let runs = if trial { 1 } else { 40 };
    let mut out = std::io::stdout().lock();
    let head =
        "tokenizer        encoder        ids  first sight  next turn  fully warm  plain HF ms    ratio";
    let _ = writeln!(out, "p50 of {runs}, milliseconds, one thread, a chat of {} kB\n{head}", BYTES >> 10);
    for (name, directory) in directories() {
        if !wanted.is_empty() && !wanted.contains(&&name) {
            continue;
        }
        let line = row(&name, &directory, runs).unwrap_or_else(|error| format!("{name:16} {error}"));
        let _ = writeln!(out, "{line}");
    }
}
