//! From a request to token ids: the backend chain and the prefix-token memory.
