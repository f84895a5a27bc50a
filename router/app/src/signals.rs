//! SIGTERM and SIGINT: the first one asks for a clean end, the second one for a quick one.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Two wishes, in order.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// End cleanly.
    pub stop: CancellationToken,
    /// End now.
    pub hurry: CancellationToken,
}

impl Signals {
    /// Watches the process's signals from now on.
    ///
    /// # Errors
    /// When handlers cannot be installed.
    pub fn watch() -> std::io::Result<Self> {
        let signals = Self::default();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let told = signals.clone();
        tokio::spawn(async move {
            for token in [told.stop, told.hurry] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(signals)
    }
}
