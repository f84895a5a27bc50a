//! Chats of mixed text, prose and code and data, of which no line is used twice.

use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;

use crate::corpus::Corpus;

/// Bytes of one message of a long chat.
const MESSAGE_BYTES: usize = 4000;

/// What a message is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// What people write: readme files and documentation.
    Prose,
    /// What they paste.
    Code,
    /// What their tools answer: JSON.
    Data,
}

/// What the messages of a chat are made of, over and over: questions and answers about code, with a tool's output now
/// and then.
const ORDER: [Kind; 7] =
    [Kind::Prose, Kind::Code, Kind::Prose, Kind::Code, Kind::Prose, Kind::Data, Kind::Code];

/// Text of every kind, read from its beginning to its end.
#[derive(Debug)]
pub struct Mix {
    prose: Reader,
    code: Reader,
    data: Reader,
    /// Messages made so far, over all chats.
    made: usize,
}

#[derive(Debug)]
struct Reader {
    corpus: Corpus,
    line: usize,
}

impl Reader {
    fn open(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self { corpus: Corpus::new(&text)?, line: 0 })
    }

    fn next(&mut self, bytes: usize) -> Option<&str> {
        let (passage, line) = self.corpus.from_line(self.line, bytes)?;
        self.line = line;
        Some(passage)
    }
}

impl Mix {
    /// The files `SIDE-prose.txt`, `SIDE-code.txt` and `SIDE-data.txt` of a folder.
    ///
    /// # Errors
    /// A file that cannot be read, or has too few lines.
    pub fn open(folder: &Path, side: &str) -> anyhow::Result<Self> {
        let open = |kind: &str| Reader::open(folder, &format!("{side}-{kind}.txt"));
        Ok(Self { prose: open("prose")?, code: open("code")?, data: open("data")?, made: 0 })
    }

    /// From its beginning again, when a kind of text is used up.
    pub fn rewind(&mut self) {
        for reader in [&mut self.prose, &mut self.code, &mut self.data] {
            reader.line = 0;
        }
    }

    /// A conversation of about so many bytes of text that ends with a question. Each message begins with `stamp`.
    /// `None` when a kind of text is used up.
    pub fn chat(&mut self, bytes: usize, stamp: &str) -> Option<Chat> {
        // The system's message, then turns of two: an even number in all.
        let messages = bytes.div_ceil(MESSAGE_BYTES).next_multiple_of(2).max(2);
        let mut chat = Chat::new();
        for number in 0..messages {
            let role = match number {
                0 => "system",
                odd if odd % 2 == 1 => "user",
                _ => "assistant",
            };
            self.say(&mut chat, role, bytes / messages, stamp)?;
        }
        Some(chat)
    }

    /// The conversation's next turn: an answer and a question that share `bytes`.
    pub fn grow(&mut self, chat: &mut Chat, bytes: usize) -> Option<()> {
        self.say(chat, "assistant", bytes / 2, "")?;
        self.say(chat, "user", bytes / 2, "")
    }

    fn say(&mut self, chat: &mut Chat, role: &str, bytes: usize, stamp: &str) -> Option<()> {
        let kind = *ORDER.get(self.made % ORDER.len())?;
        self.made += 1;
        let reader = match kind {
            Kind::Prose => &mut self.prose,
            Kind::Code => &mut self.code,
            Kind::Data => &mut self.data,
        };
        chat.push(role, stamp, reader.next(bytes.saturating_sub(stamp.len()))?);
        Some(())
    }
}

/// A conversation that can grow.
#[derive(Clone, Debug)]
pub struct Chat {
    /// The body but for its end.
    open: String,
    /// Where each message's stamp is.
    stamps: Vec<Range<usize>>,
}

impl Chat {
    fn new() -> Self {
        Self { open: r#"{"model":"bench","max_tokens":16,"messages":["#.to_owned(), stamps: Vec::new() }
    }

    /// One more message. The texts are ready to stand in a JSON string.
    fn push(&mut self, role: &str, stamp: &str, text: &str) {
        if !self.open.ends_with('[') {
            self.open.push(',');
        }
        self.open.push_str(&format!(r#"{{"role":"{role}","content":""#));
        let start = self.open.len();
        self.open.push_str(stamp);
        self.stamps.push(start..self.open.len());
        self.open.push_str(text);
        self.open.push_str("\"}");
    }

    /// The request's body.
    pub fn body(&self) -> Bytes {
        format!("{}]}}", self.open).into()
    }
}

/// A chat whose messages carry a number, so that each copy of it is one that nobody has seen.
#[derive(Debug)]
pub struct Stamped {
    bytes: Vec<u8>,
    stamps: Vec<Range<usize>>,
}

impl Stamped {
    /// What chats that will be stamped begin their messages with.
    pub const PLACE: &'static str = "0000000000000000 ";

    /// Takes a chat that was made with [`Self::PLACE`].
    pub fn new(chat: &Chat) -> Self {
        Self { bytes: chat.body().into(), stamps: chat.stamps.clone() }
    }

    /// The body with a number.
    pub fn body(&mut self, number: u64) -> Bytes {
        let stamp = format!("{number:016x} ");
        for place in &self.stamps {
            if let Some(place) = self.bytes.get_mut(place.clone()).filter(|place| place.len() == stamp.len())
            {
                place.copy_from_slice(stamp.as_bytes());
            }
        }
        Bytes::copy_from_slice(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn mix() -> Mix {
        let reader = |kind: &str| Reader {
            corpus: Corpus::new(&(0..3000).map(|line| format!("{kind} \"{line}\"\n")).collect::<String>())
                .unwrap(),
            line: 0,
        };
        Mix { prose: reader("prose"), code: reader("code"), data: reader("data"), made: 0 }
    }

    fn messages(body: &Bytes) -> Vec<(String, String)> {
        let value: Value = serde_json::from_slice(body).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        value["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| (text(&message["role"]), text(&message["content"])))
            .collect()
    }

    #[test]
    fn no_line_is_used_twice() {
        let mut mix = mix();
        let mut lines = std::collections::HashSet::new();
        let mut chats = 0;
        while let Some(chat) = mix.chat(10_000, "") {
            chats += 1;
            for (_, text) in messages(&chat.body()) {
                for line in text.lines() {
                    assert!(lines.insert(line.to_owned()), "{line}");
                }
            }
        }
        assert!(chats > 3 && lines.iter().any(|line| line.starts_with("data")), "{chats}");
        mix.rewind();
        assert!(mix.chat(10_000, "").is_some());
    }

    #[test]
    fn a_conversation_ends_with_a_question_and_grows() {
        let mut mix = mix();
        let mut chat = mix.chat(10_000, "").unwrap();
        let first = messages(&chat.body());
        let roles: Vec<&str> = first.iter().map(|(role, _)| role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert!((9_000..11_000).contains(&chat.body().len()), "{}", chat.body().len());
        mix.grow(&mut chat, 800).unwrap();
        let next = messages(&chat.body());
        assert_eq!(next[..4], first[..]);
        assert_eq!((next.len(), next[4].0.as_str(), next[5].0.as_str()), (6, "assistant", "user"));
        assert!(next[4].1.len() + next[5].1.len() < 1000);
    }

    #[test]
    fn stamped_copies_differ_in_every_message() {
        let mut stamped = Stamped::new(&mix().chat(1000, Stamped::PLACE).unwrap());
        let (one, other) = (messages(&stamped.body(7)), messages(&stamped.body(0x1f)));
        assert_eq!(one.len(), 2);
        for (one, other) in one.iter().zip(&other) {
            assert!(one.1.starts_with("0000000000000007 "), "{}", one.1);
            assert!(other.1.starts_with("000000000000001f "), "{}", other.1);
            assert_eq!(one.1[17..], other.1[17..]);
        }
    }
}
