//! One published batch: its time, its rank, its events and what could not be read.

use kvasir_core::KvEvent;

use super::fields::read_event;
use super::reader::{DecodeError, Kind, Reader};

/// What one message says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// Sequence number of the message, from its own frame.
    pub seq: u64,
    /// When the engine made it, seconds since 1970 by the engine's clock.
    pub ts: f64,
    /// Data-parallel rank, when said.
    pub rank: Option<u32>,
    /// The events that could be read, in the order of the wire. Order matters: a removal often stands before
    /// the store that caused it.
    pub events: Vec<KvEvent>,
    /// Events of a known kind that could not be read, and a tail that is lost because its bytes are broken.
    pub malformed: u32,
    /// Events of a kind that is not known here.
    pub unknown: u32,
}

/// Decodes one payload.
///
/// # Errors
/// The payload is no batch at all. A bad event inside a batch is counted in [`Batch::malformed`] instead.
pub fn decode_batch(seq: u64, payload: &[u8]) -> Result<Batch, DecodeError> {
    let mut reader = Reader::new(payload);
    let mut batch = Batch { seq, ..Batch::default() };
    match reader.kind()? {
        Kind::Array => {
            let length = reader.array_len()?;
            if length < 2 {
                return Err(DecodeError::Missing("events"));
            }
            batch.ts = reader.number()?;
            if batch.read_events(&mut reader)? && length > 2 {
                batch.read_rank(&mut reader);
            }
        }
        Kind::Map => batch.read_map(&mut reader)?,
        _ => return Err(reader.unexpected("a batch")),
    }
    Ok(batch)
}

impl Batch {
    fn read_map(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut found = false;
        for _ in 0..reader.map_len()? {
            match reader.text()? {
                "ts" => self.ts = reader.number()?,
                "events" => {
                    found = true;
                    if !self.read_events(reader)? {
                        return Ok(());
                    }
                }
                "data_parallel_rank" | "attn_dp_rank" => self.read_rank(reader),
                _ => reader.skip()?,
            }
        }
        if found { Ok(()) } else { Err(DecodeError::Missing("events")) }
    }

    /// Reads the list; false when its bytes are broken, so that nothing after it can be found.
    fn read_events(&mut self, reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
        let length = reader.array_len()?;
        self.events.reserve(length.min(1024));
        for _ in 0..length {
            let mut attempt = reader.clone();
            let event = read_event(&mut attempt);
            if let Ok(Some(event)) = event {
                *reader = attempt;
                self.events.push(event);
                continue;
            }
            // The attempt may stand anywhere inside the event.
            if reader.skip().is_err() {
                self.malformed += 1;
                return Ok(false);
            }
            match event {
                Ok(_) => self.unknown += 1,
                Err(_) => self.malformed += 1,
            }
        }
        Ok(true)
    }

    /// A rank that cannot be read is as good as none: ranks are told by port, the field is a cross-check.
    fn read_rank(&mut self, reader: &mut Reader<'_>) {
        let mut attempt = reader.clone();
        self.rank = attempt.u32("data_parallel_rank").ok();
        let _ = reader.skip();
    }
}
