//! Asking an engine for past batches.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

use crate::event::{Received, ReplayFrame, parse_replay};

/// To connect to the replay socket.
const CONNECT: Duration = Duration::from_secs(2);

/// Longest silence inside a replay. Engines look for requests every 100 ms between their own batches.
const SILENCE: Duration = Duration::from_secs(5);

/// Longest replay. The 10,000 batches that engines keep take a second or two.
const LONGEST: Duration = Duration::from_secs(60);

/// Most batches taken in one replay: ten times what engines keep by default.
const MOST_BATCHES: usize = 100_000;

/// Batches that wait between the socket and the index.
const WAITING: usize = 256;

/// Why a replay did not reach its end marker. A fixed set of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error("cannot connect to the replay socket")]
    Connect,
    #[error("the replay socket does not answer")]
    Silent,
    #[error("the replay takes too long")]
    TooLong,
    #[error("the replay has more batches than are taken")]
    TooMany,
    #[error("the replay answer is not understood")]
    Malformed,
}

/// One message of a running replay.
#[derive(Debug)]
pub(super) enum Answer {
    Batch(Received),
    End(Result<(), ReplayError>),
}

/// A running replay. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Replay {
    answers: mpsc::Receiver<Answer>,
    _task: AbortOnDropHandle<()>,
}

impl Replay {
    /// Asks `endpoint` for the batches from `from` on.
    pub(super) fn start(endpoint: String, from: u64) -> Self {
        let (sender, answers) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            let end = match timeout(LONGEST, run(&endpoint, from, &sender)).await {
                Ok(end) => end,
                Err(_) => Err(ReplayError::TooLong),
            };
            // Nobody listens any more: the replay was dropped.
            let _ = sender.send(Answer::End(end)).await;
        });
        Self { answers, _task: AbortOnDropHandle::new(task) }
    }

    /// The next answer; `Silent` should the task have died.
    pub(super) async fn next(&mut self) -> Answer {
        self.answers.recv().await.unwrap_or(Answer::End(Err(ReplayError::Silent)))
    }
}

async fn run(endpoint: &str, from: u64, sender: &mpsc::Sender<Answer>) -> Result<(), ReplayError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(endpoint).await.map_err(|_| ReplayError::Connect)?;
    // Engines take a request only behind an empty frame.
    let mut request = ZmqMessage::from(Bytes::new());
    request.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
    socket.send(request).await.map_err(|_| ReplayError::Connect)?;
    for _ in 0..MOST_BATCHES {
        let message = match timeout(SILENCE, socket.recv()).await {
            Ok(Ok(message)) => message.into_vec(),
            Ok(Err(_)) | Err(_) => return Err(ReplayError::Silent),
        };
        match parse_replay(&message).map_err(|_| ReplayError::Malformed)? {
            ReplayFrame::End => return Ok(()),
            ReplayFrame::Batch(batch) => {
                if sender.send(Answer::Batch(batch)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
    Err(ReplayError::TooMany)
}
