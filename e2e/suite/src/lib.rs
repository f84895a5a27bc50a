//! Repository rules and whole-product cases.
