//! A client's connection, byte by byte: for requests that no library would write.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::GUARD;

/// A connection and what was heard on it and not yet taken.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// One whole answer.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Status.
    pub status: u16,
    /// Status line and header lines, in lower case.
    pub head: String,
    /// The body, its framing undone.
    pub body: Bytes,
}

impl Heard {
    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(header, _)| *header == name).map(|(_, value)| value.trim()).collect()
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn open(to: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, heard: Vec::new() })
    }

    /// Writes these bytes.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Writes a POST of JSON with a length.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn post(&mut self, path: &str, body: &str) -> std::io::Result<()> {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: router\r\ncontent-length: {length}\r\n\r\n");
        self.say(head.as_bytes()).await?;
        self.say(body.as_bytes()).await
    }

    /// Waits for `needle` and takes everything up to its end.
    ///
    /// # Errors
    /// When the connection ends before, or the guard passes.
    pub async fn hear_until(&mut self, needle: &[u8]) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.heard.windows(needle.len()).position(|window| window == needle) {
                let rest = self.heard.split_off(at + needle.len());
                return Ok(std::mem::replace(&mut self.heard, rest));
            }
            if !self.hear_more().await? {
                bail!("the end came before {:?}: {:?}", lossy(needle), lossy(&self.heard));
            }
        }
    }

    /// Waits for the end of the connection and takes everything up to there; a reset is an end, too.
    ///
    /// # Errors
    /// When the guard passes first.
    pub async fn hear_out(&mut self) -> anyhow::Result<Vec<u8>> {
        while self.hear_more().await.or_else(|error| if is_cut(&error) { Ok(false) } else { Err(error) })? {}
        Ok(std::mem::take(&mut self.heard))
    }

    /// Waits for one whole answer; an informational one is an answer of its own.
    ///
    /// # Errors
    /// When it breaks off or is not HTTP.
    pub async fn answer(&mut self) -> anyhow::Result<Heard> {
        let head = String::from_utf8(self.hear_until(b"\r\n\r\n").await?)?.to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        let mut heard = Heard { status, head, body: Bytes::new() };
        let length = heard.header("content-length").map(str::parse).transpose()?;
        heard.body = if status < 200 || status == 204 || status == 304 {
            Bytes::new()
        } else if heard.header("transfer-encoding") == Some("chunked") {
            self.chunks().await?
        } else if let Some(length) = length {
            self.exactly(length).await?
        } else {
            self.hear_out().await?.into()
        };
        Ok(heard)
    }

    async fn chunks(&mut self) -> anyhow::Result<Bytes> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.hear_until(b"\r\n").await?)?;
            let size =
                usize::from_str_radix(line.trim(), 16).with_context(|| format!("{line:?} is no size"))?;
            let chunk = self.exactly(size + 2).await?;
            if size == 0 {
                return Ok(body.into());
            }
            body.extend_from_slice(chunk.get(..size).unwrap_or_default());
        }
    }

    async fn exactly(&mut self, length: usize) -> anyhow::Result<Bytes> {
        while self.heard.len() < length {
            if !self.hear_more().await? {
                bail!("the end came {} bytes early", length - self.heard.len());
            }
        }
        let rest = self.heard.split_off(length);
        Ok(std::mem::replace(&mut self.heard, rest).into())
    }

    /// Reads once; false at the end of the connection.
    async fn hear_more(&mut self) -> anyhow::Result<bool> {
        let mut buffer = vec![0; 64 * 1024];
        let read = timeout(GUARD, self.stream.read(&mut buffer)).await.context("nothing is heard")??;
        self.heard.extend_from_slice(buffer.get(..read).unwrap_or_default());
        Ok(read > 0)
    }
}

fn is_cut(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
