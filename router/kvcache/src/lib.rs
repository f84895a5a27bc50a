//! Tokens to block hashes, the block index, and engine KV events.
