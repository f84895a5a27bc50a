//! The Pingora door: the life of one request.
