//! Whether asking Redis for each request makes sense, where the settings leave open whom to ask: when there is anything
//! in kthena's layout.

use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::Redis;
use kvasir_coordination::kthena::Presence;
use kvasir_plugins::HitSource;
use tokio_util::sync::CancellationToken;

/// How often Redis is looked at: soon after the start, when sidecars start too, then seldom.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// For one look.
const LIMIT: Duration = Duration::from_secs(2);

/// Looks again and again until something is found. From then on requests ask for the owners that neither an agent nor
/// their own events make known; while there are none, nobody is asked.
pub(super) async fn look_for_kthena(redis: Redis, source: Arc<HitSource>, stop: CancellationToken) {
    let mut pause = LOOK.0;
    let mut kthena = Presence::default();
    while !matches!(kthena.look(&redis, LIMIT).await, Ok(true)) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK.1),
        }
    }
    source.filled();
    tracing::info!(
        "Redis has blocks in kthena's layout. It is asked, for each request, about engines whose caches the router does \
         not know otherwise; kvasir agents beside them would let it know their caches in memory"
    );
}
