//! What whole-router tests stand on: a router in this process, engines that follow a script to the byte, and a client
//! that sees every byte. The cases and the repository's rules are in `tests/`.

pub mod client;
pub mod cluster;
pub mod echo;
pub mod h2c;
pub mod paths;
pub mod report;
pub mod router;
pub mod scale;
pub mod scripted;
pub mod socket;

use std::time::Duration;

/// The guard of every wait: ten times and more what any of them should take.
pub const GUARD: Duration = Duration::from_secs(20);

/// Waits for a condition, or fails loudly.
///
/// # Panics
/// When the guard passes first: `what` says what was waited for.
#[expect(clippy::panic, reason = "a test's wait that never ends must fail with its reason")]
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + GUARD;
    while !holds() {
        if tokio::time::Instant::now() > deadline {
            panic!("never happened: {what}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
