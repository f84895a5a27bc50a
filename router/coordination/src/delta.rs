//! The stream's entries: changes of one owner, and the word that an owner was published anew.

mod changes;
mod entry;
mod stream_id;

pub use changes::{DeltaError, MOST_CHANGES, decode_changes, encode_changes};
pub use entry::{Delta, Entry, EntryError, Reason};
pub use stream_id::StreamId;
