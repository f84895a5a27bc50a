//! The models file, looked at again and again, and the fleet that follows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::config::ServiceConfig;
use crate::fleet::Fleet;
use crate::model_set::ModelSet;

/// Applies the set, follows the file until `stop`, and then ends the fleet. `synced` is set once the first set is
/// applied. A file that cannot be read, or is wrong, changes nothing: what runs keeps running.
pub(crate) async fn follow(
    config: Arc<ServiceConfig>,
    mut fleet: Fleet,
    synced: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let mut applied: Option<ModelSet> = None;
    let mut complaint = String::new();
    loop {
        let read = Arc::clone(&config);
        let wanted = tokio::task::spawn_blocking(move || read.read_models()).await;
        match wanted.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(wanted) => {
                complaint.clear();
                if applied.as_ref() != Some(&wanted) {
                    tracing::info!(models = wanted.len(), "the set of models is applied");
                    fleet.apply(&wanted).await;
                    applied = Some(wanted);
                    synced.store(true, Ordering::Release);
                }
            }
            // Said once, and again when the reason changes.
            Err(reason) if reason != complaint => {
                tracing::error!(reason, "the models file cannot be used; what runs keeps running");
                complaint = reason;
            }
            Err(_) => {}
        }
        let next = async {
            match config.models_file {
                Some(_) => sleep(config.timings.file).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = next => {}
        }
    }
    fleet.end_all().await;
}
