//! The models file and the cluster's names, looked at again and again, and the fleet that follows them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::config::ServiceConfig;
use crate::fleet::Fleet;
use crate::model_set::ModelSet;
use crate::selection::{Known, Selection};

/// Applies the set, follows the file and the cluster until `stop`, and then ends the fleet. `known` says what set that
/// is once it is applied. A file that cannot be read, or is wrong, changes nothing: what it said last counts.
pub(crate) async fn follow(
    config: Arc<ServiceConfig>,
    mut selection: Selection,
    mut fleet: Fleet,
    known: Arc<Mutex<Known>>,
    stop: CancellationToken,
) {
    let mut mapped: Option<ModelSet> = None;
    let mut applied: Option<ModelSet> = None;
    let mut complaint = String::new();
    loop {
        let read = Arc::clone(&config);
        let found = tokio::task::spawn_blocking(move || read.read_models()).await;
        match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(found) => {
                complaint.clear();
                mapped = Some(found);
            }
            // Said once, and again when the reason changes.
            Err(reason) if reason != complaint => {
                tracing::error!(reason, "the models file cannot be used; what runs keeps running");
                complaint = reason;
            }
            Err(_) => {}
        }
        if let Some(mapped) = &mapped {
            let (now_known, wanted) = selection.choose(mapped);
            if let Some(wanted) = wanted
                && applied.as_ref() != Some(&wanted)
            {
                tracing::info!(models = wanted.len(), "the set of models is applied");
                fleet.apply(&wanted).await;
                applied = Some(wanted);
            }
            *known.lock() = now_known;
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
            () = selection.changed() => {}
        }
    }
    fleet.end_all().await;
}
