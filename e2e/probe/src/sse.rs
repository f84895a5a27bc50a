//! An incremental reader of server-sent events.

use memchr::memchr2;

/// Largest event, bytes. A chunk of a chat stream is a few hundred; log probabilities can make it some ten
/// thousand.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event<'a> {
    /// The `event` field, empty when there is none.
    pub(crate) name: &'a [u8],
    /// The `data` lines, joined with a line feed.
    pub(crate) data: &'a [u8],
}

/// An event outgrew the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EventTooLarge;

/// Takes bytes as they arrive, cut anywhere, and hands out whole events.
///
/// Lines end with LF, CR LF or CR. Comments and fields other than `data` and `event` are skipped. An event that
/// is not closed by an empty line when the stream ends was never complete, so it is never handed out.
#[derive(Debug, Default)]
pub(crate) struct SseReader {
    /// The part of a line whose end has not arrived.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR, so a LF that follows belongs to it.
    after_carriage_return: bool,
    past_first_line: bool,
}

impl SseReader {
    /// Reads `bytes`, calling `on_event` for each event they complete. The first error ends the reading.
    pub(crate) fn feed<E: From<EventTooLarge>>(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some((&first, after_first)) = bytes.split_first() {
            if std::mem::take(&mut self.after_carriage_return) && first == b'\n' {
                bytes = after_first;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.keep(bytes)?;
                return Ok(());
            };
            let (part, rest) = bytes.split_at(end);
            self.after_carriage_return = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.end_line(part, &mut on_event)?;
            } else {
                self.keep(part)?;
                let mut line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut on_event)?;
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + part.len() + self.data.len() > MAX_EVENT_BYTES {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line<E: From<EventTooLarge>>(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = if std::mem::replace(&mut self.past_first_line, true) {
            line
        } else {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        };
        if line.is_empty() {
            let outcome =
                if self.has_data { on_event(Event { name: &self.name, data: &self.data }) } else { Ok(()) };
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            return outcome;
        }
        self.take_field(line).map_err(E::from)
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), EventTooLarge> {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len() + value.len() >= MAX_EVENT_BYTES {
                    return Err(EventTooLarge);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader
                .feed(piece, |event| {
                    events.push((
                        String::from_utf8_lossy(event.name).into_owned(),
                        String::from_utf8_lossy(event.data).into_owned(),
                    ));
                    Ok::<(), EventTooLarge>(())
                })
                .unwrap();
        }
        events
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn fields_comments_and_line_ends() {
        for (stream, expected) in [
            ("data: a\n\n", vec![event("", "a")]),
            ("data:a\r\n\r\n", vec![event("", "a")]),
            ("data: a\rdata:  b\r\r", vec![event("", "a\n b")]),
            ("\u{feff}data: a\n\n", vec![event("", "a")]),
            (
                ": hello\nid: 7\nevent: error\ndata: x\n\ndata: y\n\n",
                vec![event("error", "x"), event("", "y")],
            ),
            ("event: ping\n\ndata: y\n\n", vec![event("", "y")]),
            ("data\n\n", vec![event("", "")]),
            ("data: never closed\n", vec![]),
        ] {
            assert_eq!(read(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut reader = SseReader::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES / 2];
        let mut feed = |bytes: &[u8]| reader.feed(bytes, |_| Ok::<(), EventTooLarge>(()));
        assert_eq!(feed(b"data: "), Ok(()));
        assert_eq!(feed(&piece), Ok(()));
        assert_eq!(feed(&piece), Err(EventTooLarge));
    }

    fn stream() -> impl Strategy<Value = String> {
        let line_end = prop_oneof!["\n", "\r\n", "\r"];
        let line = prop_oneof!["data: [a-zä{}:]{0,12}", "event: [a-z]{0,5}", ":[a-z ]{0,4}", "", ""];
        prop::collection::vec((line, line_end), 0..24)
            .prop_map(|lines| lines.into_iter().map(|(line, end)| line + &end).collect())
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in stream(), cuts in prop::collection::vec(0usize..400, 0..12)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[bytes]));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single), read(&[bytes]));
        }
    }
}
