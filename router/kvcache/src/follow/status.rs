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

/// What became of the saved state that a follower was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedState {
    /// It was given none, or one that cannot be used.
    #[default]
    None,
    /// The engine has not been asked yet whether it is the same.
    Unproven,
    /// It is, and the state was taken in.
    Taken,
    /// It is not, has gone on too far, or does not answer.
    Dropped,
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
    /// What became of the saved state it was given.
    pub saved: SavedState,
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
