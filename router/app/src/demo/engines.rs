//! The demo's engines and the tokenizer they share with the router.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use kvasir_mock_engine::{Engine, EngineConfig, HuggingFace};

/// The served model name.
pub(super) const MODEL: &str = "demo-model";

/// How many engines.
const ENGINES: usize = 4;

/// Microseconds between output tokens: a quick decode, so that the demo is about the prefill.
const DECODE_US: f64 = 2_000.0;

/// The tokenizer of our own making, carried in the binary so that the demo needs no file.
const TOKENIZER: [(&str, &[u8]); 2] = [
    ("tokenizer.json", include_bytes!("../../../../demo/tokenizer/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../../demo/tokenizer/tokenizer_config.json")),
];

/// A folder that goes when its value does.
#[derive(Debug)]
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes the tokenizer where it can be loaded from.
pub(super) fn tokenizer_folder() -> anyhow::Result<Folder> {
    let path = std::env::temp_dir().join(format!(
        "kvasir-demo-{}-{:08x}",
        std::process::id(),
        rand::random::<u32>()
    ));
    std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
    let folder = Folder(path);
    for (name, bytes) in TOKENIZER {
        std::fs::write(folder.path().join(name), bytes)?;
    }
    Ok(folder)
}

/// Starts the engines on free ports of the loopback address.
pub(super) async fn start(tokenizer: &Path) -> anyhow::Result<Vec<Arc<Engine>>> {
    let tokenizer = Arc::new(HuggingFace::load(tokenizer)?);
    let mut engines = Vec::with_capacity(ENGINES);
    for _ in 0..ENGINES {
        let config = EngineConfig {
            model: MODEL.to_owned(),
            kv_blocks: 4096,
            prefill_us_per_token: 20.0,
            prefill_slots: 1,
            decode_us_per_token: DECODE_US,
            tokenizer: Arc::clone(&tokenizer) as Arc<_>,
            report_cached_tokens: true,
            record_requests: 0,
            ..EngineConfig::default()
        };
        engines.push(Arc::new(Engine::start(config).await?));
    }
    Ok(engines)
}

/// Empties every cache and counter.
pub(super) async fn restart(engines: &[Arc<Engine>]) -> anyhow::Result<()> {
    for engine in engines {
        engine.restart().await?;
    }
    Ok(())
}

/// Stops them all.
pub(super) async fn stop(engines: Vec<Arc<Engine>>) {
    for engine in engines {
        engine.stop().await;
    }
}
