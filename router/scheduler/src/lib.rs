//! Who takes a request: gather, filter, score, pick.
