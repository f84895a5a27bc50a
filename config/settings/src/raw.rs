//! What was said, before it is known what it means: the two documents, with the place of every value.

mod fields;
pub(crate) mod models;
pub(crate) mod router_document;

pub(crate) use fields::{Fields, UnknownKeys, list_of, text_of};
