//! The whole service over HTTP: native models, and renderers that a small program plays.

#![expect(clippy::unwrap_used, reason = "what a test cannot set up fails it")]

mod cluster;
mod guide;
mod native;
mod render;
mod support;
