//! Prefill on one engine, decode on another: the whole router over engines that refuse what a real pair could not serve.

mod apis;
mod bodies;
mod ends;
mod overlap;
mod pairing;
mod placement;
mod retries;
mod site;
