//! The binary `kvasir`.
fn main() {}
