//! What an agent keeps in Redis for its own next start.
//!
//! One state for each rank: what the index held after some batch, and what kthena's ledger held after the same one. A
//! restarted agent goes on from it when the engine still offers that batch for replay, so a state is only of use while it
//! is younger than the engine's replay buffer (10,000 batches in vLLM, by default).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::EndpointId;
use kvasir_kvcache::{BatchMark, SavedOwner};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::board::{Board, EngineBoard, Owner};
use crate::kthena_ledger::SavedLedger;

/// Start of every state; changes with the layout.
const TAG: &[u8; 8] = b"kvagent1";

/// Bytes a second that one owner's states may cost Redis. A state of 10,000 blocks has some 160 kB.
const BYTES_PER_SECOND: f64 = 128.0 * 1024.0;

/// How often it is looked whether a state is due.
const LOOK: Duration = Duration::from_millis(250);

/// One rank's state.
#[derive(Clone, PartialEq, Debug)]
pub struct ResumeState {
    /// The index's part.
    pub owner: SavedOwner,
    /// The ledger's part, after the same batch; `None` where kthena's layout is not written.
    pub kthena: Option<SavedLedger>,
}

impl ResumeState {
    /// The bytes. Redis is read by others, so there are no token ids in them.
    pub fn into_bytes(self) -> Bytes {
        let mut bytes = TAG.to_vec();
        let ledger = self.kthena.map(|kthena| kthena.to_bytes()).unwrap_or_default();
        for part in [self.owner.without_tails().to_bytes(), ledger] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&part);
        }
        bytes.into()
    }

    /// Reads them back.
    ///
    /// # Errors
    /// Why they are of no use, in words.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let foreign = || "it is of another version".to_owned();
        let rest = bytes.strip_prefix(TAG).ok_or_else(foreign)?;
        let (owner, rest) = part(rest).ok_or_else(foreign)?;
        let (ledger, rest) = part(rest).ok_or_else(foreign)?;
        if !rest.is_empty() {
            return Err(foreign());
        }
        let owner = SavedOwner::from_bytes(owner).map_err(|error| error.to_string())?;
        let kthena = if ledger.is_empty() {
            None
        } else {
            Some(SavedLedger::from_bytes(ledger).map_err(|error| error.to_string())?)
        };
        // Of two batches, they cannot go on together.
        let kthena = kthena.filter(|ledger| ledger.seq() == owner.last_batch().seq);
        Ok(Self { owner, kthena })
    }
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// What was saved of one owner.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Saves {
    /// How often.
    pub saves: u64,
    /// Bytes of the last one.
    pub bytes: usize,
    last: Option<BatchMark>,
    at: Option<Instant>,
    refused: bool,
}

impl Saves {
    /// Whether a state after the batch `last` is due: it is another than the one saved, and the earlier ones had their
    /// time.
    fn is_due(&self, last: Option<BatchMark>, now: Instant, interval: Duration) -> bool {
        let Some(at) = self.at else { return last.is_some() };
        let pause = Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_SECOND).max(interval);
        last.is_some() && last != self.last && now.saturating_duration_since(at) >= pause
    }
}

/// What was saved of every owner.
#[derive(Debug, Default)]
pub struct SaveLog(Mutex<HashMap<EndpointId, Saves>>);

impl SaveLog {
    /// What was saved of one.
    pub fn of(&self, owner: &EndpointId) -> Saves {
        self.0.lock().get(owner).copied().unwrap_or_default()
    }

    /// An owner is gone, or begins anew.
    pub fn forget(&self, owner: &EndpointId) {
        self.0.lock().remove(owner);
    }
}

/// Saves what changed, every `interval`, until `stop`.
pub async fn keep_saving(board: Arc<Board>, interval: Duration, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK.min(interval));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        for engine in &board.engines {
            save(&board, engine, Some(interval)).await;
        }
    }
}

/// Hands the states of an engine's ranks that are due to its publisher; with no interval, all that changed. How many bytes.
pub async fn save(board: &Arc<Board>, engine: &EngineBoard, interval: Option<Duration>) -> usize {
    let mut bytes = 0;
    if !engine.publisher.is_open() {
        return bytes;
    }
    for owner in engine.state().owners {
        let last = board.index.progress(owner.slot).and_then(|progress| progress.last_batch);
        let saves = board.saves.of(&owner.id);
        let due = match interval {
            Some(interval) => saves.is_due(last, Instant::now(), interval),
            None => last.is_some() && last != saves.last,
        };
        if due {
            bytes += save_one(board, engine, owner).await;
        }
    }
    bytes
}

async fn save_one(board: &Arc<Board>, engine: &EngineBoard, owner: Owner) -> usize {
    let taken = {
        let (board, owner) = (Arc::clone(board), owner.clone());
        // Copies 16 bytes a block under the owner's lock, and as much again to put it into bytes.
        tokio::task::spawn_blocking(move || {
            let state = take(&board, &owner)?;
            let last = state.owner.last_batch();
            Some((last, state.into_bytes()))
        })
    };
    let Ok(Some((last, bytes))) = taken.await else { return 0 };
    let length = bytes.len();
    let taken = engine.publisher.set_resume_state(&owner.id, bytes);
    let mut log = board.saves.0.lock();
    let saves = log.entry(owner.id.clone()).or_default();
    (saves.last, saves.at, saves.bytes) = (Some(last), Some(Instant::now()), length);
    saves.saves += u64::from(taken);
    if !taken && !std::mem::replace(&mut saves.refused, true) {
        tracing::warn!(
            owner = %owner.id, bytes = length,
            "the state is too large to be saved; a restarted agent reads the engine's history anew"
        );
    }
    length
}

/// Both parts after the same batch.
fn take(board: &Board, owner: &Owner) -> Option<ResumeState> {
    match &owner.tap {
        None => board.index.save(owner.slot).map(|owner| ResumeState { owner, kthena: None }),
        Some(tap) => {
            let (owner, kthena) = tap.save_with(|| board.index.save(owner.slot))?;
            Some(ResumeState { owner, kthena: Some(kthena) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> Option<BatchMark> {
        Some(BatchMark { seq, ts: 1.0, digest: Some(1) })
    }

    #[test]
    fn a_state_is_due_when_it_changed_and_the_last_one_had_its_time() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let never = Saves::default();
        assert!(never.is_due(mark(0), now, second) && !never.is_due(None, now, second));
        let small = Saves { last: mark(4), at: Some(now), bytes: 1000, saves: 1, refused: false };
        assert!(!small.is_due(mark(4), now + 2 * second, second), "nothing happened");
        assert!(!small.is_due(mark(5), now + second / 2, second), "too early");
        assert!(small.is_due(mark(5), now + second, second));
        let large = Saves { bytes: 1 << 20, ..small };
        assert!(!large.is_due(mark(5), now + 7 * second, second), "a megabyte is paid for in 8 seconds");
        assert!(large.is_due(mark(5), now + 8 * second, second));
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for bytes in [&b""[..], b"kvagent0", b"kvagent1", b"kvagent1\x01\0\0\0\0\0\0\0"] {
            assert!(ResumeState::from_bytes(bytes).is_err(), "{bytes:?}");
        }
        let mut bytes = TAG.to_vec();
        bytes.extend_from_slice(&[0; 16]);
        assert!(ResumeState::from_bytes(&bytes).is_err(), "parts without content");
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(ResumeState::from_bytes(&bytes).is_err(), "a length that lies");
    }
}
