//! What a follower is doing, for start-up lines and explain.

use serde::Serialize;

/// State of the connection to the publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// No follower runs for the owner.
    #[default]
    None,
    /// Nobody is connected.
    Connecting,
    /// Connected, asking for what was missed.
    Replaying,
    /// Connected and up to date.
    Following,
}

/// A follower in a few words and numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FollowerStatus {
    /// The connection.
    pub link: Link,
    /// Whether the source has a replay socket.
    pub has_replay: bool,
    /// Lives of the engine seen: rises at each restart and each loss of history.
    pub epoch: u64,
    /// Connections made.
    pub connects: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Replays that failed.
    pub failed_replays: u64,
    /// Messages that are no KV event.
    pub bad_messages: u64,
    /// The last thing that went wrong, in words.
    pub last_error: Option<String>,
}
