//! One model's life: an engine is chosen, serves, fails, and is tried again.

use std::sync::Arc;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::board::{Backend, Entry};
use crate::model_set::EngineChoice;
use crate::native::{NativeEngine, NativeError};
use crate::render::{End, RenderEngine};
use crate::restarts::Pause;
use crate::timings::Timings;

/// What all models share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) native: NativeEngine,
    pub(crate) render: RenderEngine,
    pub(crate) engine: EngineChoice,
    pub(crate) timings: Timings,
}

/// Serves a model until it is stopped. No process of it is left when this returns.
pub(crate) async fn run(house: Arc<House>, model: String, entry: Arc<Entry>, stop: CancellationToken) {
    let mut pause = Pause::new(house.timings.retry);
    loop {
        match attempt(&house, &model, &entry, &stop).await {
            End::Stopped => return,
            End::Failed { reason, ready } => {
                if ready >= house.timings.refill {
                    pause.reset();
                }
                let before = pause.lengthen();
                tracing::error!(model, reason, ?before, "model failed; tried again after the pause");
                entry.failed(&reason);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(before) => {}
                }
            }
        }
    }
}

async fn attempt(house: &House, model: &str, entry: &Entry, stop: &CancellationToken) -> End {
    let choice = entry.spec().engine.unwrap_or(house.engine);
    if choice == EngineChoice::Render {
        return house.render.serve(model, entry, stop).await;
    }
    entry.loading("native", 0);
    let loaded = tokio::select! {
        () = stop.cancelled() => return End::Stopped,
        loaded = timeout(house.timings.startup, house.native.load(entry.spec())) => loaded,
    };
    let error = match loaded {
        Ok(Ok(native)) => {
            tracing::info!(
                model,
                source = entry.spec().source,
                encoder = native.encoder_name(),
                "native ready"
            );
            entry.ready(Backend::Native(Arc::new(native)));
            stop.cancelled().await;
            return End::Stopped;
        }
        Ok(Err(error)) => error,
        Err(_) => NativeError::Load(format!("start-up timeout: {} s", house.timings.startup.as_secs())),
    };
    if choice == EngineChoice::Native || !error.a_renderer_may_do_better() {
        return End::failed(error.to_string());
    }
    tracing::info!(model, reason = %error, "not served natively; a renderer is started");
    match house.render.serve(model, entry, stop).await {
        // The renderer's reason alone would hide why there was one at all.
        End::Failed { reason, ready } => End::Failed { reason: format!("{reason} (native: {error})"), ready },
        End::Stopped => End::Stopped,
    }
}
