//! Reading what is added to the streams, as it is added.

use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::connection::Redis;
use crate::delta::{Entry, StreamId};
use crate::key::{self, STREAMS};

/// How long one read waits for entries.
const BLOCK: Duration = Duration::from_millis(500);
/// Entries of one stream in one read.
const AT_ONCE: usize = 256;
/// The pause after a read that found something: more comes together then, at a tenth of the cost.
const PAUSE: Duration = Duration::from_millis(2);
/// How long one read waits while a stream is left out of it.
const SHORT_BLOCK: Duration = Duration::from_millis(10);
/// The pause between two reads on Cluster, while something comes and while nothing does.
const POLL_BUSY: Duration = Duration::from_millis(10);
const POLL_IDLE: Duration = Duration::from_millis(50);
/// The wait after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// How long the first read waits for the other streams to be known.
const GATHER: Duration = Duration::from_millis(250);

/// Entries of one stream, and how many could not be read.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<(StreamId, Entry)>,
    pub(super) malformed: u64,
}

/// From where each stream is read on; `None` until its first refresh.
#[derive(Debug, Default)]
pub(super) struct Positions {
    places: Mutex<[Option<StreamId>; STREAMS as usize]>,
    changed: Notify,
}

impl Positions {
    /// A stream is read from here on.
    pub(super) fn rewind(&self, stream: u8, to: StreamId) {
        if let Some(place) = self.places.lock().get_mut(usize::from(stream)) {
            *place = Some(to);
        }
        self.changed.notify_waiters();
    }

    fn get(&self) -> [Option<StreamId>; STREAMS as usize] {
        *self.places.lock()
    }

    /// Moves on, unless the stream was rewound meanwhile.
    fn advance(&self, stream: u8, from: StreamId, to: StreamId) {
        if let Some(place) = self.places.lock().get_mut(usize::from(stream))
            && *place == Some(from)
        {
            *place = Some(to);
        }
    }
}

/// Reads all streams over one connection that waits at the server.
pub(super) async fn tail_all(
    redis: Redis,
    positions: &Positions,
    streams: &[mpsc::Sender<Batch>],
    limit: Duration,
    stop: CancellationToken,
) {
    let reading = async {
        gather(positions).await;
        loop {
            let Ok(mut connection) = redis.dedicated().await else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            loop {
                let changed = positions.changed.notified();
                let places = positions.get();
                if places.iter().all(Option::is_none) {
                    changed.await;
                    continue;
                }
                let known = (0..STREAMS).zip(places).filter_map(|(stream, place)| Some((stream, place?)));
                // A stream that is busy entering what it has got does not hold the others up.
                let (free, busy): (Vec<_>, Vec<_>) =
                    known.partition(|(stream, _)| has_room(streams, *stream));
                if free.is_empty() {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                let block = if busy.is_empty() { BLOCK } else { SHORT_BLOCK };
                let answer = connection.query(&read(free.into_iter(), Some(block)), block + limit).await;
                let Ok(answer) = answer else { break };
                let most = hand_on(&answer, &places, positions, streams).await;
                if (1..AT_ONCE).contains(&most) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = reading => {}
        () = stop.cancelled() => {}
    }
}

/// Reads one stream again and again: on Cluster no connection waits at several servers.
pub(super) async fn tail_one(
    redis: Redis,
    stream: u8,
    positions: &Positions,
    streams: &[mpsc::Sender<Batch>],
    limit: Duration,
    stop: CancellationToken,
) {
    let reading = async {
        loop {
            let mut places = [None; STREAMS as usize];
            let place = positions.get().get(usize::from(stream)).copied().flatten();
            let Some(place) = place else {
                tokio::time::sleep(POLL_BUSY).await;
                continue;
            };
            if let Some(own) = places.get_mut(usize::from(stream)) {
                *own = Some(place);
            }
            let wait = match redis.query(&read(std::iter::once((stream, place)), None), limit).await {
                Err(_) => RETRY,
                Ok(answer) => match hand_on(&answer, &places, positions, streams).await {
                    0 => POLL_IDLE,
                    AT_ONCE.. => continue,
                    _ => POLL_BUSY,
                },
            };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = reading => {}
        () = stop.cancelled() => {}
    }
}

fn has_room(streams: &[mpsc::Sender<Batch>], stream: u8) -> bool {
    streams.get(usize::from(stream)).is_some_and(|sender| sender.capacity() > 0 || sender.is_closed())
}

/// Waits a moment until all streams are known, for a read that waits for some of them does not hear the others.
async fn gather(positions: &Positions) {
    let all = async {
        loop {
            let changed = positions.changed.notified();
            if positions.get().iter().all(Option::is_some) {
                return;
            }
            changed.await;
        }
    };
    // With too few of them after that, the next reads have the others.
    let _ = tokio::time::timeout(GATHER, all).await;
}

fn read(places: impl Iterator<Item = (u8, StreamId)>, block: Option<Duration>) -> Cmd {
    let (keys, ids): (Vec<String>, Vec<String>) =
        places.map(|(stream, place)| (key::deltas(stream), place.to_string())).unzip();
    let mut cmd = redis::cmd("XREAD");
    cmd.arg("COUNT").arg(AT_ONCE);
    if let Some(block) = block {
        cmd.arg("BLOCK").arg(block.as_millis() as u64);
    }
    cmd.arg("STREAMS").arg(keys).arg(ids);
    cmd
}

/// Gives each stream its entries; the most that one got.
async fn hand_on(
    answer: &Value,
    places: &[Option<StreamId>; STREAMS as usize],
    positions: &Positions,
    streams: &[mpsc::Sender<Batch>],
) -> usize {
    let mut most = 0;
    for (name, entries) in parts(answer) {
        let Some(stream) = (0..STREAMS).find(|stream| key::deltas(*stream).as_bytes() == name) else {
            continue;
        };
        let at = usize::from(stream);
        let (Some(Some(from)), Some(sender)) = (places.get(at), streams.get(at)) else { continue };
        let mut batch = Batch::default();
        let mut last = *from;
        for entry in entries {
            let (id, entry) = Entry::parse(entry);
            last = id.unwrap_or(last);
            match (id, entry) {
                (Some(id), Ok(entry)) => batch.entries.push((id, entry)),
                _ => batch.malformed += 1,
            }
        }
        most = most.max(entries.len());
        positions.advance(stream, *from, last);
        if sender.send(batch).await.is_err() {
            return most;
        }
    }
    most
}

/// The streams of an answer: a list of pairs, or a map in the newer protocol.
fn parts(answer: &Value) -> Vec<(&[u8], &[Value])> {
    fn pair<'a>(name: &'a Value, entries: &'a Value) -> Option<(&'a [u8], &'a [Value])> {
        match (name, entries) {
            (Value::BulkString(name), Value::Array(entries)) => Some((name, entries)),
            _ => None,
        }
    }
    match answer {
        Value::Array(streams) => streams
            .iter()
            .filter_map(|stream| match stream {
                Value::Array(parts) => pair(parts.first()?, parts.get(1)?),
                _ => None,
            })
            .collect(),
        Value::Map(streams) => streams.iter().filter_map(|(name, entries)| pair(name, entries)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_room_is_left_out_until_it_has_some() {
        let (sender, mut entries) = mpsc::channel(1);
        let streams = [sender];
        assert!(has_room(&streams, 0) && !has_room(&streams, 1));
        streams[0].try_send(Batch::default()).unwrap();
        assert!(!has_room(&streams, 0));
        entries.try_recv().unwrap();
        assert!(has_room(&streams, 0));
    }
}
