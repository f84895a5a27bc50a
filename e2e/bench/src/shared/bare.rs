//! A bare client that asks for whole blocks, all of a prompt at once: what lookups are measured against.

use std::io::Write as _;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection. It does less than a client library does: no tasks, no limits, no reconnecting, and of an answer only
/// whose names are in it is kept.
#[derive(Debug)]
pub struct Bare {
    stream: TcpStream,
    asked: Vec<u8>,
    answered: Vec<u8>,
}

impl Bare {
    /// Connects to a server on this machine.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, asked: Vec::new(), answered: Vec::new() })
    }

    /// How many leading blocks each of `fields` is in: one `HGETALL` for every key, all in one pipeline, and every answer
    /// read.
    ///
    /// # Errors
    /// The connection broke, or an answer is no map.
    pub async fn leading(&mut self, keys: &[String], fields: &[String]) -> anyhow::Result<Vec<u32>> {
        self.asked.clear();
        for key in keys {
            write!(self.asked, "*2\r\n$7\r\nHGETALL\r\n${}\r\n{key}\r\n", key.len())?;
        }
        self.stream.write_all(&self.asked).await?;
        self.answered.clear();
        let mut leading = vec![0; fields.len()];
        let mut matching = vec![true; fields.len()];
        let (mut at, mut done) = (0, 0);
        while done < keys.len() {
            let mut holders = vec![false; fields.len()];
            let mut answer = Answer { bytes: &self.answered, at };
            if answer.map(|field| {
                if let Some(place) = fields.iter().position(|one| one.as_bytes() == field)
                    && let Some(holds) = holders.get_mut(place)
                {
                    *holds = true;
                }
            })? {
                (at, done) = (answer.at, done + 1);
                for ((matches, holds), blocks) in matching.iter_mut().zip(holders).zip(&mut leading) {
                    *matches &= holds;
                    *blocks += u32::from(*matches);
                }
            } else if self.stream.read_buf(&mut self.answered).await? == 0 {
                anyhow::bail!("the server left");
            }
        }
        Ok(leading)
    }
}

/// Reads the protocol from where the last answer ended.
struct Answer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Answer<'a> {
    /// Reads one map and shows its fields. False while it is not there as a whole.
    fn map(&mut self, mut show: impl FnMut(&[u8])) -> anyhow::Result<bool> {
        let Some(length) = self.length(b'*')? else { return Ok(false) };
        for number in 0..length {
            let Some(text) = self.text()? else { return Ok(false) };
            if number % 2 == 0 {
                show(text);
            }
        }
        Ok(true)
    }

    fn text(&mut self) -> anyhow::Result<Option<&'a [u8]>> {
        let Some(length) = self.length(b'$')? else { return Ok(None) };
        let Some(text) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        self.at += length + 2;
        Ok(text.get(..length))
    }

    fn length(&mut self, kind: u8) -> anyhow::Result<Option<usize>> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', rest) else { return Ok(None) };
        let line = rest.get(..end).unwrap_or_default().trim_ascii_end();
        self.at += end + 1;
        let digits = line.strip_prefix(&[kind]).context("an answer of another kind")?;
        Ok(Some(std::str::from_utf8(digits)?.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Option<Vec<String>> {
        let mut found = Vec::new();
        let mut answer = Answer { bytes, at: 0 };
        let whole = answer.map(|field| found.push(String::from_utf8_lossy(field).into_owned()));
        whole.unwrap().then_some(found)
    }

    #[test]
    fn a_map_is_read_when_it_is_whole() {
        let bytes = b"*4\r\n$2\r\nab\r\n$1\r\n1\r\n$3\r\ncde\r\n$0\r\n\r\n";
        assert_eq!(fields(bytes), Some(vec!["ab".to_owned(), "cde".to_owned()]));
        assert_eq!(fields(b"*0\r\n"), Some(Vec::new()));
        for length in 0..bytes.len() {
            assert_eq!(fields(&bytes[..length]), None, "{length}");
        }
        let mut error = Answer { bytes: b"-ERR no\r\n", at: 0 };
        assert!(error.map(|_| ()).is_err());
    }
}
