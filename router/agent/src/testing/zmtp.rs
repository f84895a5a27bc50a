//! Just enough of ZMTP 3.0 to publish events and to replay them, so that no socket library is needed here.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Batches that were published, by number.
pub type History = Arc<Mutex<Vec<(u64, Bytes)>>>;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Greets as a socket of `kind` without security, and reads the other side's greeting and READY.
async fn greet(stream: &mut TcpStream, kind: &str) -> std::io::Result<()> {
    let mut greeting = [0u8; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).await?;
    let mut theirs = [0u8; 64];
    stream.read_exact(&mut theirs).await?;
    let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
    ready.extend_from_slice(&(kind.len() as u32).to_be_bytes());
    ready.extend_from_slice(kind.as_bytes());
    stream.write_all(&[COMMAND, ready.len() as u8]).await?;
    stream.write_all(&ready).await?;
    read_frame(stream).await.map(|_| ())
}

/// Flags and body of one frame.
async fn read_frame(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let flags = stream.read_u8().await?;
    let length = if flags & LONG > 0 { stream.read_u64().await? } else { u64::from(stream.read_u8().await?) };
    let mut body = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut body).await?;
    Ok((flags, body))
}

async fn send(stream: &mut TcpStream, frames: &[&[u8]]) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let more = if number + 1 < frames.len() { MORE } else { 0 };
        bytes.push(more | LONG);
        bytes.extend_from_slice(&(frame.len() as u64).to_be_bytes());
        bytes.extend_from_slice(frame);
    }
    stream.write_all(&bytes).await
}

/// Accepts for ever; each connection is served by `serve` until `life` ends.
fn accept<F>(
    listener: Arc<TcpListener>,
    life: CancellationToken,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    tokio::spawn(async move {
        loop {
            let stream = tokio::select! {
                () = life.cancelled() => return,
                accepted = listener.accept() => accepted.unwrap().0,
            };
            let (life, served) = (life.clone(), serve(stream));
            tokio::spawn(async move {
                tokio::select! {
                    () = life.cancelled() => {}
                    _ = served => {}
                }
            });
        }
    });
}

/// Publishes what `live` brings, each with the topic `kv-events`, to everyone who connects.
pub fn publish(listener: Arc<TcpListener>, live: broadcast::Sender<(u64, Bytes)>, life: CancellationToken) {
    accept(listener, life, move |mut stream| {
        let live = live.clone();
        async move {
            greet(&mut stream, "PUB").await?;
            // The subscription.
            read_frame(&mut stream).await?;
            let mut batches = live.subscribe();
            while let Ok((seq, payload)) = batches.recv().await {
                send(&mut stream, &[b"kv-events", &seq.to_be_bytes(), &payload]).await?;
            }
            Ok(())
        }
    });
}

/// Answers requests for past batches.
pub fn replay(listener: Arc<TcpListener>, history: History, life: CancellationToken) {
    accept(listener, life, move |mut stream| {
        let history = Arc::clone(&history);
        async move {
            greet(&mut stream, "ROUTER").await?;
            loop {
                let (flags, _empty) = read_frame(&mut stream).await?;
                assert!(flags & MORE > 0, "a request begins with an empty frame");
                let (_, from) = read_frame(&mut stream).await?;
                let from = u64::from_be_bytes(from.try_into().unwrap());
                let batches: Vec<_> =
                    history.lock().iter().filter(|(seq, _)| *seq >= from).cloned().collect();
                for (seq, payload) in batches {
                    send(&mut stream, &[b"", &seq.to_be_bytes(), &payload]).await?;
                }
                send(&mut stream, &[b"", &u64::MAX.to_be_bytes(), b""]).await?;
            }
        }
    });
}
