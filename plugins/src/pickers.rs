//! How totals become ranked picks.

pub mod top_n;
