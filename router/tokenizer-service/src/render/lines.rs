//! What a child writes: cut into lines, bounded, kept for a while and passed on to the log.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longest line that is kept, bytes; the rest of a longer one is dropped.
const MOST_LINE_BYTES: usize = 1_024;

/// Last lines that are kept.
const KEPT: usize = 20;

/// Cuts bytes into lines of bounded length.
#[derive(Debug, Default)]
pub struct LineCutter {
    line: Vec<u8>,
}

impl LineCutter {
    /// Takes bytes and gives every line that they complete.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        if let Some(first) = pieces.next() {
            self.grow(first);
        }
        for piece in pieces {
            self.finish(&mut each);
            self.grow(piece);
        }
    }

    /// Gives the last line, which no line feed ends.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        if !text.is_empty() {
            each(text);
        }
        self.line.clear();
    }

    fn grow(&mut self, piece: &[u8]) {
        let room = MOST_LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }
}

/// The last lines of one child, shared by its two streams.
#[derive(Clone, Debug)]
pub struct Tail {
    model: Arc<str>,
    /// Not to be seen in any log.
    secret: Option<Arc<str>>,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    /// Nothing yet. `secret` is blotted out wherever it appears.
    pub fn new(model: &str, secret: Option<&str>) -> Self {
        Self { model: model.into(), secret: secret.map(Arc::from), lines: Arc::default() }
    }

    /// Reads a stream to its end.
    pub async fn follow(self, mut stream: impl AsyncRead + Unpin) {
        let mut cutter = LineCutter::default();
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            cutter.push(buffer.get(..count).unwrap_or_default(), |line| self.keep(line));
        }
        cutter.finish(|line| self.keep(line));
    }

    fn keep(&self, line: &str) {
        let line = match &self.secret {
            Some(secret) if line.contains(&**secret) => line.replace(&**secret, "***"),
            _ => line.to_owned(),
        };
        // The log shows them at its most talkative only: a renderer writes a line for every request.
        tracing::debug!(model = &*self.model, "[render] {line}");
        let mut lines = self.lines.lock();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, for the log of a failure.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().iter().cloned().collect()
    }

    /// The line that most likely says why a start failed: the last that speaks of an error, else the last.
    pub fn reason(&self) -> Option<String> {
        let lines = self.lines.lock();
        let speaks = |line: &&String| line.contains("Error") || line.contains("error:");
        lines.iter().rev().find(speaks).or_else(|| lines.back()).map(|line| line.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let mut cutter = LineCutter::default();
        let mut lines = Vec::new();
        for piece in pieces {
            cutter.push(piece, |line| lines.push(line.to_owned()));
        }
        cutter.finish(|line| lines.push(line.to_owned()));
        lines
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_arrive(
            text in "[a-c \n]{0,60}",
            at in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let whole: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
            let mut cuts: Vec<usize> = at.into_iter().map(|at| at.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(cut(&pieces), whole);
        }
    }

    #[test]
    fn long_lines_are_cut_and_bad_bytes_shown_as_such() {
        let long = [b'x'; 5_000];
        assert_eq!(cut(&[&long, b"\nnext"]), ["x".repeat(MOST_LINE_BYTES), "next".to_owned()]);
        assert_eq!(cut(&[b"a\xffb\r\n"]), ["a\u{fffd}b"]);
    }

    #[tokio::test]
    async fn the_tail_is_bounded_and_hides_the_secret() {
        let tail = Tail::new("m", Some("hf_secret"));
        let text: String = (0..50).map(|number| format!("line {number} hf_secret\n")).collect();
        tail.clone().follow(text.as_bytes()).await;
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (KEPT, "line 30 ***"));
        assert_eq!(tail.reason().as_deref(), Some("line 49 ***"));
        tail.clone().follow(&b"ValueError: no such model\nbye\n"[..]).await;
        assert_eq!(tail.reason().as_deref(), Some("ValueError: no such model"));
        assert_eq!(Tail::new("m", None).reason(), None);
    }
}
