//! Streams of server-sent events: passed on as they come, read on the side.
//!
//! [`StreamTap`] follows the lines and decides what goes on; `open` holds the event in the making; `event` reads what
//! an event says.

mod event;
mod lines;
mod open;
mod tap;

pub(crate) use event::read_id;
pub use tap::{MAX_EVENT_BYTES, Pieces, StreamTap};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
