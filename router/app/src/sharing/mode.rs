//! Mirror or query, where the settings leave it open: decided by what is found in Redis.

use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::kthena::Presence;
use kvasir_coordination::{Mirror, Redis, StoreError};
use kvasir_plugins::HitSource;
use kvasir_settings::CoordinationMode;
use tokio_util::sync::CancellationToken;

/// How often Redis is looked at: soon after the start, when agents and sidecars start too, then seldom.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// For one look.
const LIMIT: Duration = Duration::from_secs(2);

/// Looks again and again, and says when its mind changes. Native data are better knowledge, so they win.
pub(super) async fn keep_deciding(redis: Redis, source: Arc<HitSource>, stop: CancellationToken) {
    let mut pause = LOOK.0;
    let mut kthena = Presence::default();
    loop {
        if let Ok(Some(mode)) = decide(&redis, &mut kthena).await
            && mode != source.mode()
        {
            source.switch(mode);
            match mode {
                CoordinationMode::Query => tracing::info!(
                    "coordination: query. Redis has only kthena's layout, so it is asked for each request; kvasir \
                     agents beside the engines would let the router know their caches in memory"
                ),
                CoordinationMode::Mirror => {
                    tracing::info!("coordination: mirror. Agents publish what the engines hold");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK.1),
        }
    }
}

/// What the data that are there ask for; `None` while there are none.
async fn decide(redis: &Redis, kthena: &mut Presence) -> Result<Option<CoordinationMode>, StoreError> {
    if Mirror::has_native_data(redis, LIMIT).await? {
        return Ok(Some(CoordinationMode::Mirror));
    }
    Ok(kthena.look(redis, LIMIT).await?.then_some(CoordinationMode::Query))
}
