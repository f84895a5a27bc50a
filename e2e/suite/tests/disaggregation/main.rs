//! Prefill on one engine, decode on another: the whole router over engines that refuse what a real pair could not serve.

#![expect(clippy::expect_used, reason = "a test whose engines were not asked must fail loudly")]

mod apis;
mod bodies;
mod ends;
mod overlap;
mod pairing;
mod placement;
mod retries;
mod site;
